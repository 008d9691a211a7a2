"""A bundle for people: what every op does on how many cores, and when cores wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

from torch_spyre.backend.bundle import Bundle, Execute, Loop, Node
from torch_spyre.backend.places import Place, place_of, region_of
from torch_spyre.backend.program import SCRATCHPAD
from torch_spyre.backend.schedule import Group, WorkLoop, groups, works
from torch_spyre.backend.sdsc import Tensor
from torch_spyre.partition.dims import Dim
from torch_spyre.tools.tables import size


def lines(bundle: Bundle) -> Iterator[str]:
    """The summary, line by line."""
    executes = list(_executes(bundle.nodes))
    most = max((node.op.cores for node in executes), default=0)
    arguments = ", ".join(bundle.parameters) or "none: addresses are baked in"
    ops = "1 op" if len(executes) == 1 else f"{len(executes)} ops"
    yield f"{bundle.where}: {ops} on up to {most} cores"
    yield f"arguments: {arguments}"
    for what, ranges in (("finds", bundle.handover.found), ("leaves", bundle.handover.left)):
        for begin, end, cores in ranges:
            yield f"{what} in LX: bytes {begin}..{end} of {cores} cores"
    yield from _body(bundle, bundle.nodes, "", {})
    yield ""
    yield "schedule: cores wait for each other between these groups"
    for i, group in enumerate(groups(bundle)):
        yield f"  {i}: {_group(group)}"


def _executes(nodes: list[Node]) -> Iterator[Execute]:
    for node in nodes:
        if isinstance(node, Execute):
            yield node
        else:
            yield from _executes(node.body)


def _body(bundle: Bundle, nodes: list[Node], indent: str, counts: dict[str, int]) -> Iterator[str]:
    for node in nodes:
        yield ""
        if isinstance(node, Loop):
            yield f"{indent}loop {node.variable}, {node.count} iterations"
            yield from _body(bundle, node.body, indent + "  ", counts | {node.variable: node.count})
            continue
        op = node.op
        cores = "1 core" if op.cores == 1 else f"{op.cores} cores"
        yield f"{indent}{op.op.name}, {cores}, {op.file}"
        yield f"{indent}  dims    {', '.join(map(_dim, op.dims))}"
        for tensor in op.tensors:
            role = "output" if tensor is op.output else "input"
            place = place_of(bundle, node, tensor)
            span = size(region_of(op, tensor, place, counts).core_bytes)
            yield (
                f"{indent}  {role:7} Tensor{tensor.index} {tensor.format.name} "
                f"[{_layout(tensor)}] at {_where(bundle, place)}, {span} a core"
            )
            if tensor.held:
                have = ", ".join(map(_dim, tensor.held.dims))
                yield f"{indent}          taken over the ring from cores that have {have}"
        for name, value in op.constants.items():
            yield f"{indent}  {name} = {value:g}"


def _dim(dim: Dim) -> str:
    text = f"{dim.label}={dim.size}"
    if dim.extent > dim.size:
        text += f" (padded to {dim.extent})"
    if dim.splits > 1:
        last = dim.extent - (dim.splits - 1) * dim.chunk
        text += f" / {dim.splits} x {dim.chunk}"
        text += f", last {last}" if last != dim.chunk else ""
    return text


def _layout(tensor: Tensor) -> str:
    """Outermost first, as tensors are written; the stick at the end."""
    eps = tensor.elems_per_stick
    outer = [
        f"{label}/{eps}" if label == tensor.stick else label
        for label in reversed(tensor.dims)
        if tensor.has(label)
    ]
    inner = f"{tensor.stick}%{eps}" if tensor.has(tensor.stick) else f"1 of {eps}"
    return ", ".join([*outer, inner])


def _where(bundle: Bundle, place: Place) -> str:
    if place.operand == SCRATCHPAD:
        return f"scratchpad + {place.offsets[0]}"
    if not bundle.parameters:
        base = f"segment {place.operand}"
    elif bundle.has_pool:
        base = "pool" if place.operand == 0 else f"arg_{place.operand - 1}"
    else:
        base = f"arg_{place.operand}"
    text = f"{base} + {place.offsets[0]}"
    if len(set(place.offsets)) > 1:
        text += f" .. {max(place.offsets)}"
    for variable, stride in place.strides:
        text += f" + {stride} {variable}"
    return text


def _group(group: Group) -> str:
    parts = []
    for work in group.works:
        if isinstance(work, WorkLoop):
            inner = ", ".join(entry.op.op.name for entry in works(work.body))
            parts.append(f"{work.loop.count} x ({inner})")
        else:
            parts.append(work.op.op.name)
    cores = max((work.op.cores for work in works(group.works)), default=1)
    return f"{', '.join(parts)} on {cores} cores"
