"""Where in the user's program something happens: the line, and the layer."""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
from pathlib import Path
from types import FrameType

import torch
from torch.nn import Module

import torch_spyre

_PACKAGES = tuple(f"{Path(str(package.__file__)).parent}/" for package in (torch, torch_spyre))
_CALL = Module._call_impl.__code__  # one frame of a module's call has this code


def origin() -> tuple[str, str]:
    """The innermost line outside of PyTorch and this package, and the module that is called.

    The line is written as compiled kernels have it; both are empty where nothing is known.
    """
    line = ""
    modules: list[Module] = []  # innermost first
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL:
            modules.append(frame.f_locals["self"])
        elif not line and _is_users(frame.f_code.co_filename):
            line = _text(frame)
        frame = frame.f_back
    if not line:
        node = torch._C._current_autograd_node()  # backward has no frames
        line = f"({node.name()})" if node is not None else ""
        return line, "(backward)" if node is not None else ""
    if not modules:
        return line, ""
    root, called = modules[-1], modules[0]
    names = {id(module): name for name, module in root.named_modules()}
    return line, plain_name(names.get(id(called), ""))


def plain_name(name: str) -> str:
    """A module's name without what ``torch.compile`` puts around it."""
    return ".".join(part for part in name.split(".") if part and part != "_orig_mod")


@functools.cache
def _is_users(file: str) -> bool:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    generated = (f"{cache_dir()}/", "<eval_with_key>", "<frozen ")
    return not file.startswith((*_PACKAGES, *generated, contextlib.__file__))


def _text(frame: FrameType) -> str:
    file, number, name = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
    code = linecache.getline(file, number, frame.f_globals).strip()
    return f'File "{file}", line {number}, in {name}: {code}'
