"""Acting on a library when somebody imports it, and not before."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any


def when_imported(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call ``act`` with a module: now if it is there, else once it has been imported."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder(MetaPathFinder):
    """Waits for the first import of a module."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.act = act

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self.act(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
