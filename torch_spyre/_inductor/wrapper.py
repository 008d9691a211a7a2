"""The wrapper code around kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.codegen.common import DeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.stream_utils import get_stream_name
from torch._inductor.virtualized import V

from torch_spyre._inductor.hinted_graph import graph_hints
from torch_spyre.constants import DEVICE_NAME


class SpyreDeviceOpOverrides(DeviceOpOverrides):
    """Lines of generated wrapper code that are about the device."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from torch_spyre.execution.kernel_runner import get_raw_stream as {name}"

    def set_device(self, device_idx: int) -> str:
        return f"torch.spyre.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.spyre.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.spyre.device({device_idx})"


class SpyrePythonWrapperCodegen(PythonWrapperCodegen):
    """Inductor's Python wrapper, extended by our kernels."""

    streams_found = False

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            return PythonWrapperCodegen.create(
                is_subgraph, subgraph_name, parent_wrapper, partition_signatures
            )
        return SpyrePythonWrapperCodegen()

    def write_header(self) -> None:
        super().write_header()
        self.header.splice(
            """
            from torch_spyre._C import DataFormats, SpyreTensorLayout
            from torch_spyre._C import _empty_strided as empty_strided_spyre
            from torch_spyre._inductor.kernel_ir import Ramp
            from torch_spyre.execution.async_compile import SpyreAsyncCompile
            from torch_spyre.execution.kernel_runner import run_together
            async_compile = SpyreAsyncCompile()
            """,
            strip=True,
        )

    def generate(self, is_inference: bool) -> Any:
        graph_hints().check_all_used()
        return super().generate(is_inference)

    def codegen_deferred_input_asserts(self, input_names: Iterable[str]) -> None:
        """Not of the card's tensors: kernels look at what they get."""
        super().codegen_deferred_input_asserts(
            name for name in input_names if not self._is_on_card(name)
        )

    def _is_on_card(self, name: str) -> bool:
        """Whether an input is a tensor of the card. An input that is no tensor has no device."""
        value = self.get_graph_inputs().get(name)
        device = value.get_device() if isinstance(value, ir.IRNode) else None
        return device is not None and device.type == DEVICE_NAME

    def codegen_cuda_stream_enter(self, stream_idx: int) -> Any:
        """Inductor finds streams where it guards a device, which ours need not be: found here."""
        scheduler: Any = V.graph.scheduler
        if not self.streams_found:
            self.streams_found = True
            objects = "torch._dynamo.graph_bytecode_inputs.get_external_object_by_index"
            index = scheduler.current_device.index
            self.writeline(f"default_stream = torch.accelerator.current_stream({index})")
            for stream, user_object in scheduler.stream_idx_to_user_obj_idx.items():
                self.writeline(f"{get_stream_name(stream)} = {objects}({user_object})")
        return super().codegen_cuda_stream_enter(stream_idx)

    def make_allocation(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        shape: Any,
        stride: Any,
        allocation_shape: Any = None,
        is_pinned: bool = False,
    ) -> str:
        """Without dispatch, as Inductor allocates on the devices that it knows."""
        if device.type != DEVICE_NAME:
            return str(
                super().make_allocation(
                    name, device, dtype, shape, stride, allocation_shape, is_pinned
                )
            )
        shown, strides = map(self.codegen_python_shape_tuple, (shape, stride))
        allocated = self.codegen_python_shape_tuple(
            shape if allocation_shape is None else allocation_shape
        )
        index = -1 if device.index is None else device.index
        line = f"{name} = empty_strided_spyre({allocated}, {strides}, {dtype}, {index})"
        return line if shown == allocated else f"{line}.as_strided({shown}, {strides})"
