"""``torch.ops.spyre``."""

from typing import Any

import torch


class _Namespace(torch._ops._OpNamespace):
    __module__ = torch._ops.__name__  # ops are called by it in generated code

    def __getattr__(self, op_name: str) -> Any:
        from torch_spyre.ops import custom as custom  # defines them, once

        return super().__getattr__(op_name)


def custom_ops() -> None:
    """Its ops are defined when the first of them is looked up.

    Missing upstream: a hook for namespaces of ops, so that nothing is defined by an import.
    """
    torch.ops.spyre = _Namespace("spyre")  # type: ignore[attr-defined]
