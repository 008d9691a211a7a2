"""The wrapper code around kernels."""

from __future__ import annotations

from typing import Any

from torch._inductor.codegen.wrapper import PythonWrapperCodegen


class SpyrePythonWrapperCodegen(PythonWrapperCodegen):
    """Inductor's Python wrapper, which also knows OpSpecs."""

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
            from sympy import sympify
            from torch_spyre._C import DataFormats, SpyreTensorLayout
            from torch_spyre._inductor.kernel_ir import Buffer, Ramp
            from torch_spyre._inductor.kernel_template import At, Nest, Op, Template
            from torch_spyre._inductor.op_spec import IndirectAccess, LoopSpec, OpSpec, TensorArg
            from torch_spyre._inductor.runtime import SpyreAsyncCompile
            from torch_spyre._inductor.template_runner import SDSCTemplateRunner
            async_compile = SpyreAsyncCompile()
            """,
            strip=True,
        )
