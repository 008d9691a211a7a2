"""Checks of a bundle that the reader cannot do field by field: what its ops do to memory.

A bundle that passes touches only its tensors and scratchpads, with no two cores writing one stick.
"""

from __future__ import annotations

from torch_spyre.backend.bundle import FILE, LX_BYTES, Bundle, Execute, Node
from torch_spyre.backend.errors import MalformedBundle
from torch_spyre.backend.places import (
    SEGMENT_BYTES,
    Place,
    Region,
    address_field,
    place_of,
    region_of,
)
from torch_spyre.backend.program import SCRATCHPAD, LxBytes
from torch_spyre.backend.sdsc import CARD_BYTES, DeviceOp, Tensor
from torch_spyre.machine import load as load_machine

SPAN_BYTES = int(load_machine().value("memory.core_span_bytes"))


def check(bundle: Bundle) -> None:
    """Raises :class:`MalformedBundle` for what would go wrong on the card."""
    checker = _Checker(bundle)
    checker.nodes(bundle.nodes, {})
    checker.end()


class _Checker:
    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.in_lx: list[LxBytes] = [*bundle.handover.found]  # and what was written

    def nodes(self, nodes: list[Node], counts: dict[str, int]) -> None:
        for node in nodes:
            if isinstance(node, Execute):
                self.op(node, counts)
            elif node.count:
                self.nodes(node.body, counts | {node.variable: node.count})

    def op(self, node: Execute, counts: dict[str, int]) -> None:
        op = node.op
        _check_sticks_are_whole(op)
        regions = [self._region(node, tensor, counts) for tensor in op.tensors]
        *inputs, output = regions
        for region in regions:
            _check_bounds(op, region)
        self._check_lx_is_written(op, inputs)
        _check_split_k(op)
        _check_outputs_apart(op, output)
        _check_result_is_whole(op)
        for region in inputs:
            _check_overlap(op, region, output)
        if output.place.operand == SCRATCHPAD:
            self.in_lx.append(LxBytes(output.begin, output.end, op.cores))

    def end(self) -> None:
        """Checks that what the bundle leaves in LX is there, and has not been overwritten."""
        for left in self.bundle.handover.left:
            last = next((known for known in reversed(self.in_lx) if known.meets(left)), None)
            if last is None or not last.covers(left):
                raise MalformedBundle(
                    f"{self.bundle.where}/{FILE}",
                    "sdscbundle.lx_left",
                    f"bytes {left.begin}..{left.end} of the scratchpads of {left.cores} cores are "
                    "not all that one op wrote there last, nor found; leave what is there",
                )

    def _region(self, node: Execute, tensor: Tensor, counts: dict[str, int]) -> Region:
        region = region_of(node.op, tensor, place_of(self.bundle, node, tensor), counts)
        if region.core_bytes > SPAN_BYTES and tensor.component == "hbm":
            raise MalformedBundle(
                node.op.file,
                "dataStageParam_.0.ss_",
                f"a core spans {region.core_bytes} bytes of Tensor{tensor.index}, it reaches "
                f"{SPAN_BYTES}; split its outer dimensions over more cores, or loop over tiles",
            )
        return region

    def _check_lx_is_written(self, op: DeviceOp, inputs: list[Region]) -> None:
        for region in inputs:
            if region.place.operand != SCRATCHPAD:
                continue
            if region.tensor.held:
                self._check_others_wrote(op, region)
            elif not any(
                known.meets(LxBytes(region.begin, region.end, op.cores)) and known.cores >= op.cores
                for known in self.in_lx
            ):
                raise _refuse(
                    op,
                    region.tensor,
                    f"no op before wrote bytes {region.begin}..{region.end} of the scratchpads of "
                    f"{op.cores} cores; a core reads only its own scratchpad, and what another "
                    "bundle left there only if sdscbundle.lx_found says so",
                )

    def _check_others_wrote(self, op: DeviceOp, region: Region) -> None:
        """Checks that other cores have written all that a core takes from them."""
        count = len(region.place.offsets)
        wanted = LxBytes(region.begin, region.end, count)
        if not any(known.covers(wanted) for known in self.in_lx):
            raise _refuse(
                op,
                region.tensor,
                f"no op before wrote all of bytes {region.begin}..{region.end} of the scratchpads "
                f"of {count} cores; cores take from others what these have",
            )


def _refuse(op: DeviceOp, tensor: Tensor, why: str) -> MalformedBundle:
    return MalformedBundle(op.file, address_field(tensor), why)


def _check_sticks_are_whole(op: DeviceOp) -> None:
    for tensor in op.tensors:
        for dim in op.cut(tensor).dims:
            if dim.splits > 1 and tensor.along_stick(dim.label):
                if dim.chunk % tensor.elems_per_stick:
                    raise MalformedBundle(
                        op.file,
                        f"dataStageParam_.0.ss_.{dim.label}_",
                        f"parts of {dim.chunk} cut sticks of Tensor{tensor.index}; make them "
                        f"multiples of {tensor.elems_per_stick}",
                    )


def _check_bounds(op: DeviceOp, region: Region) -> None:
    if region.place.operand == SCRATCHPAD:
        if region.end > LX_BYTES:
            raise _refuse(
                op,
                region.tensor,
                f"Tensor{region.tensor.index} ends at byte {region.end} of a scratchpad, which "
                f"has {LX_BYTES}; give a core less of it, or move it to hbm",
            )
        return
    limit = CARD_BYTES if region.tensor.symbolic else SEGMENT_BYTES
    if region.end > limit:
        raise _refuse(
            op,
            region.tensor,
            f"Tensor{region.tensor.index} ends at byte {region.end} of its memory; "
            f"no tensor has more than {limit}",
        )


def _check_split_k(op: DeviceOp) -> None:
    if not op.splits_k:
        return
    for tensor in op.tensors:
        if tensor.component == "lx":
            raise MalformedBundle(
                op.file,
                f"numWkSlicesPerDim_.{op.contracted}",
                f"cores that share a result tile cannot reach Tensor{tensor.index} in each "
                "other's scratchpads; move it to hbm, or do not split K",
            )


def _check_outputs_apart(op: DeviceOp, output: Region) -> None:
    tensor = output.tensor
    if output.place.operand == SCRATCHPAD or op.cores == 1:
        return
    for dim in op.dims:
        if dim.splits > 1 and not tensor.has(dim.label) and dim.label != op.contracted:
            raise MalformedBundle(
                op.file,
                f"numWkSlicesPerDim_.{dim.label}",
                f"{dim.splits} cores would write the same part of Tensor{tensor.index}, which has "
                f"no dimension {dim.label}; only K of a matrix product can be split like this",
            )
    one_iteration = Place(output.place.operand, output.place.offsets)
    if not region_of(op, tensor, one_iteration, {}).cores_are_apart():
        raise _refuse(
            op, tensor, "cores write overlapping parts; start each where its slice of the tensor is"
        )


def _check_result_is_whole(op: DeviceOp) -> None:
    """Checks that an op that is no reduction and no product has room for all of its results."""
    if op.op.kind not in ("pointwise", "move"):
        return
    for dim in op.dims:
        most = min(dim.chunk, dim.size)  # of a core
        if most > 1 and not op.output.has(dim.label):
            raise MalformedBundle(
                op.file,
                f"labeledDs_.{op.output.index}.scale_",
                f"{op.op.name} has {most} results along {dim.label} and one place for them; "
                "give the output this dimension, or use a reduction",
            )


def _check_overlap(op: DeviceOp, source: Region, output: Region) -> None:
    if not source.overlaps(output) or (source.alike(output) and not source.tensor.held):
        return
    if source.place.operand == SCRATCHPAD or op.cores > 1:
        raise _refuse(
            op,
            source.tensor,
            f"Tensor{source.tensor.index} overlaps the output in another arrangement, so a core "
            "may write what another has not read yet; write to memory of its own",
        )
