"""A program that does without the card, and what can be seen of its run: for `test_guest.py`.

Run as `python guest_program.py OUT`: writes to OUT, as JSON, the Python functions that were called,
what the program printed and logged, and which objects it found under PyTorch's names.
"""

import gc
import io
import json
import sys
import types
import warnings
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

SEEN: list[str] = []


class Functions(TorchFunctionMode):
    """Logs what it is asked, and whether it is what a program finds under the name."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        known = [name for name in ("empty", "zeros", "add") if func is getattr(torch, name)]
        known += [name for name in ("to", "cpu", "mul") if func is getattr(torch.Tensor, name)]
        SEEN.append(f"function {getattr(func, '__name__', func)} {known}")
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        SEEN.append(f"dispatched {func}")
        return func(*args, **(kwargs or {}))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.norm = nn.BatchNorm1d(4)
        self.rnn = nn.LSTM(4, 3)

    def forward(self, x):
        return self.rnn(self.norm(self.two(torch.relu(self.one(x)))))[0]


def tensors() -> None:
    x = torch.empty(2, 3, dtype=torch.float64).fill_(2)
    with Functions():
        torch.empty(3).to(torch.float64).cpu().mul(2)
        torch.empty((2, 2), device="cpu").to("cpu", copy=True)
    with Dispatched():
        torch.zeros(3).to(torch.float16).sum()
    with torch.device("meta"):
        SEEN.append(str(torch.empty(3).device))
    SEEN.append(repr(x.to(torch.int32)))
    SEEN.append(repr(torch.arange(2000.0).reshape(2, 1000)))
    for wrong in (
        lambda: torch.empty(3, device_layouts=None),
        lambda: x.to(nonsense=1),
        lambda: torch.empty("three"),
    ):
        try:
            wrong()
        except TypeError as error:
            SEEN.append(str(error))
    swapped = torch.arange(4, dtype=torch.int16).untyped_storage()
    swapped.byteswap(torch.int16)
    SEEN.append(str(bytes(swapped)))
    torch.manual_seed(7)
    SEEN.append(str(torch.rand(3).tolist()))


def modules() -> None:
    model = Tied()
    weight = model.one.weight
    model.to(torch.float64).half().float().cpu().to("cpu")
    model.to(memory_format=torch.channels_last)
    SEEN.append(str([model.one.weight is weight, model.two.weight is weight]))
    SEEN.append(str([model.one.weight.data_ptr() == weight.data_ptr(), repr(model)]))
    lazy = nn.LazyLinear(3).to(torch.float64)
    SEEN.append(str(lazy(torch.ones(2, 5, dtype=torch.float64)).shape))
    with torch.device("meta"):
        empty = Tied()
    SEEN.append(str(empty.to_empty(device="cpu").one.weight.shape))
    try:
        nn.Linear(2, 2, device="meta").to("cpu")
    except NotImplementedError as error:
        SEEN.append(str(error))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file, map_location="cpu"))


def training() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.ones(2, 4)).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    SEEN.append(str(model.weight.grad.tolist()))


def compiled(backend: str) -> None:
    torch._dynamo.reset()

    @torch.compile(backend=backend)
    def function(x, y):
        return torch.empty(3).fill_(1) + (x.to(torch.float64) * y).sum()

    SEEN.append(str(function(torch.ones(3), torch.full((3,), 2.0)).tolist()))
    model = torch.compile(nn.Linear(3, 2), backend=backend)
    SEEN.append(str(model(torch.zeros(1, 3)).shape))


def describe(value: Any) -> str:
    """What an object is, in words that mean the same in another process."""
    kind = type(value).__name__
    if type(value) is types.FunctionType:
        code = value.__code__
        return f"{kind} {code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
    if type(value) in (type, types.BuiltinFunctionType, types.MethodDescriptorType):
        return f"{kind} {value.__module__ if type(value) is type else ''} {value.__qualname__}"
    return kind


def names() -> dict[str, str]:
    """What a program finds under PyTorch's names: in all of its modules and their classes."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] != "torch" or not isinstance(module, types.ModuleType):
            continue
        if name.startswith("torch._inductor.runtime.compile_tasks."):  # written by Inductor
            continue
        for key, value in list(vars(module).items()):
            if key.startswith(("__compiled_fn", "__import_torch")):  # written by Dynamo
                continue
            found[f"{name}.{key}"] = describe(value)
            if type(value) is type and value.__module__ == name:
                for attribute, member in list(vars(value).items()):
                    found[f"{name}.{key}.{attribute}"] = describe(member)
    return found


class Calls:
    """The Python functions that are called, without what those of this package call."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.of_package: set[str] = set()
        self.inside: types.FrameType | None = None

    def __call__(self, frame: types.FrameType, event: str, _: Any) -> None:
        if self.inside is not None:
            if event == "return" and frame is self.inside:
                self.inside = None
            return
        if event != "call":
            return
        code = frame.f_code
        if "/torch_spyre/" in code.co_filename:
            self.inside = frame
            self.of_package.add(code.co_qualname)
        elif "/torch/" in code.co_filename:  # other libraries walk sets in any order
            call = f"{code.co_filename}:{code.co_qualname}"
            if not call.endswith("/torch/__init__.py:__getattr__"):  # looks for torch.spyre
                self.made.append(call)


def run(compile_too: bool) -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(3)
    for part in (tensors, modules, training):
        part()
    if compile_too:
        for backend in ("eager", "inductor"):
            compiled(backend)


def main() -> None:
    out, *options = sys.argv[1:]
    loaded = sorted(sys.modules)
    at_start = names()
    calls = Calls()
    gc.disable()
    sys.setprofile(calls)
    run("compile" in options)
    sys.setprofile(None)
    result = {
        "seen": SEEN,
        "calls": calls.made,
        "of_package": sorted(calls.of_package),
        "names": at_start,
        "names_after": names(),
        "modules": loaded,
        "modules_after": sorted(sys.modules),
    }
    with open(out, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
