from dataclasses import dataclass, field
@dataclass(eq=False)
class LifetimeBoundBuffer:
    name: str
    size: int
    uses: list
    first_use_is_read: bool = False
    address: int | None = None
    in_place_parents: list = field(default_factory=list)
class S:
    def __init__(self, limit): self.limit=limit
    def plan_layout(self, bs):
        placed=[]
        for b in bs:
            near=sorted((o for o in placed if o.address is not None and not (o.uses[-1]<b.uses[0] or b.uses[-1]<o.uses[0] or (o in b.in_place_parents and o.uses[-1]==b.uses[0]))), key=lambda o:o.address)
            for q in b.in_place_parents:
                if q.address is not None and q.uses[-1]==b.uses[0] and b.size<=q.size and not any(o.address<q.address+b.size and q.address<o.address+o.size for o in near): b.address=q.address
            if b.address is not None: placed.append(b); continue
            near=sorted(near+[q for q in b.in_place_parents if q.address is not None], key=lambda o:o.address)
            at=0
            for o in near:
                if o.address-at>=b.size: break
                at=max(at,-(-(o.address+o.size)//128)*128)
            if at+b.size<=self.limit: b.address=at
            placed.append(b)
        return bs
def solver(limit): return S(limit)
