"""Every ATen op and what happens to it on spyre, read from PyTorch's dispatcher.

Not a list kept by hand: an op is native if there is a kernel of ours for it, and so on. The ops of
the card itself are in ``torch_spyre.ops.table``.
"""

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch

# How an op comes to run, best first.
NATIVE = "native"  # a kernel of ours, on the card
COMPOSITE = "composite"  # PyTorch expresses it by other ops
FALLBACK = "fallback"  # on the CPU, with a warning
REFUSED = "refused"  # neither the card nor the CPU has a kernel, or ours says no
WAYS = (NATIVE, COMPOSITE, FALLBACK, REFUSED)

_COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
_STRUCTURED = "CompositeExplicitAutogradNonFunctional"  # by way of the out= overload
# Sources whose kernels do not compute on the card.
_NOT_NATIVE = {"csrc/fallback/fallback.cpp": FALLBACK, "csrc/fallback/refused.cpp": REFUSED}


@dataclass(frozen=True)
class Operation:
    """An ATen op with all of its overloads; `add_` and `add.out` belong to `add`."""

    name: str
    overloads: dict[str, str]  # how each runs, by names such as "add.out"

    @property
    def way(self) -> str:
        """How it runs: the best way of an overload that does not lead to another overload."""
        ways = set(self.overloads.values())
        return min(ways - {COMPOSITE} or ways, key=WAYS.index)

    @property
    def exceptions(self) -> dict[str, str]:
        """Overloads that run a worse way."""
        worse = WAYS[WAYS.index(self.way) + 1 :]
        return {n: way for n, way in self.overloads.items() if way in worse and way != COMPOSITE}

    @property
    def internal(self) -> bool:
        """Not for users: private, or another device's."""
        return self.name.startswith("_") or self.way == REFUSED


def operations(name: str = "") -> list[Operation]:
    """Every ATen op with `name` in its name, in alphabetical order."""
    found: dict[str, dict[str, str]] = {}
    for overload in _overloads():
        base = _base(overload)
        if name in base:
            found.setdefault(base, {})[overload] = way(overload)
    return [Operation(base, dict(sorted(found[base].items()))) for base in sorted(found)]


def way(overload: str) -> str:
    """How an overload such as "add.Tensor" runs on spyre."""
    if _has(overload, "PrivateUse1"):
        return _of_kernel(overload)
    if _has(overload, _STRUCTURED):
        out = _out_overload(overload)
        return way(out) if out else COMPOSITE
    if any(_has(overload, key) for key in _COMPOSITES):
        return COMPOSITE
    return FALLBACK if _has(overload, "CPU") else REFUSED


def device_dtypes() -> dict[str, bool]:
    """Every torch dtype, and whether spyre tensors can have it."""
    from torch_spyre import _C

    found = {}
    for name, dtype in sorted(vars(torch).items()):
        if isinstance(dtype, torch.dtype) and name == str(dtype).removeprefix("torch."):
            try:
                _C.SpyreTensorLayout([1], dtype)
                found[name] = True
            except (TypeError, ValueError, RuntimeError):
                found[name] = False
    return found


@functools.cache
def _overloads() -> tuple[str, ...]:
    names = torch._C._dispatch_get_all_op_names()
    return tuple(sorted(n.removeprefix("aten::") for n in names if n.startswith("aten::")))


def _base(overload: str) -> str:
    name = overload.split(".")[0]
    in_place = name.endswith("_") and not name.endswith("__")
    return name[:-1] if in_place and name[:-1] in _functional() else name


@functools.cache
def _functional() -> frozenset[str]:
    return frozenset(overload.split(".")[0] for overload in _overloads())


def _has(overload: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{overload}", key)


def _of_kernel(overload: str) -> str:
    """What a kernel of ours does, by the source it is registered in."""
    lines = torch._C._dispatch_dump(f"aten::{overload}").splitlines()
    registered = next((line for line in lines if line.startswith("PrivateUse1:")), "")
    return next((way for source, way in _NOT_NATIVE.items() if source in registered), NATIVE)


def _out_overload(overload: str) -> str | None:
    """The out= overload with the same inputs: there the kernel of a structured op is."""
    name = overload.split(".")[0]
    base = _base(overload)
    own = next((s for s in _schemas(name) if _written(s) == overload), None)
    if own is None:
        return None
    wanted = [(a.name, str(a.type)) for a in own.arguments]
    for schema in _schemas(base):
        inputs = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
        if len(inputs) < len(schema.arguments) and inputs == wanted:
            return _written(schema)
    return None


@functools.cache
def _schemas(name: str) -> tuple[torch.FunctionSchema, ...]:
    return tuple(torch._C._jit_get_schemas_for_operator(f"aten::{name}"))


def _written(schema: torch.FunctionSchema) -> str:
    name = schema.name.removeprefix("aten::")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def totals(found: list[Operation]) -> Iterator[tuple[str, int, int]]:
    """For every way: how many ops, how many overloads."""
    ops = Counter(operation.way for operation in found)
    overloads = Counter(way for operation in found for way in operation.overloads.values())
    for each in WAYS:
        yield each, ops[each], overloads[each]
