# shim until the cost branch lands
import math
from dataclasses import dataclass
@dataclass
class OpCost:
    unit: str = "sfp"
    passes: float = 1
    element_bytes: int = 2
    cores: int = 1
    points: int = 0
    all_points: int = 0
    rows: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    lx_bytes: int = 0
    all_lx_bytes: int = 0
    partial_sums: int = 0
    ring_bytes: int = 0
    ring_link_bytes: int = 0
    ring_hops: int = 0
class P: pass
def price(o):
    p=P()
    if o.unit=="pt":
        passes=max(1,o.rows/8); eff=min(1,math.sqrt(passes/8))
        p.compute=o.points/(1.536e6*eff)*1e3
    else:
        p.compute=o.points*o.passes*o.element_bytes/256/1.5
    p.read=o.read_bytes/204.8; p.write=o.written_bytes/204.8
    p.lx=o.lx_bytes/512/1.5
    p.ring=o.partial_sums*1.4e-1
    p.overhead=100
    p.total=max(p.compute,p.read,p.write,p.lx,p.ring)+p.overhead
    return p
def multicast_bytes(bytes, sharers): return bytes*-(-sharers//8)
def sfp_passes(op): return 1
