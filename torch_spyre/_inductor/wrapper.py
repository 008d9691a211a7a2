"""The wrapper code around kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.codegen.wrapper import PythonWrapperCodegen

from torch_spyre._inductor.hinted_graph import graph_hints


class SpyrePythonWrapperCodegen(PythonWrapperCodegen):
    """Inductor's Python wrapper, which also knows our kernels."""

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
            from torch_spyre._inductor.kernel_ir import Ramp
            from torch_spyre.execution.async_compile import SpyreAsyncCompile
            async_compile = SpyreAsyncCompile()
            """,
            strip=True,
        )

    def generate(self, is_inference: bool) -> Any:
        graph_hints().check_all_used()
        return super().generate(is_inference)

    def make_allocation(self, name: str, device: torch.device, *args: Any, **kwargs: Any) -> str:
        """Inductor names the kind of device, and sets the current one for devices it knows."""
        line = super().make_allocation(name, device, *args, **kwargs)
        return str(line.replace(f"device='{device.type}'", f"device='{device}'"))
