"""The model zoo: real architectures at small sizes, built without any download.

`models()` lists them; tests, `python -m torch_spyre models` and benchmarks all take them from here.
Importing this package imports neither `transformers` nor `fms`: building a model does.
"""

from torch_spyre.zoo.registry import SIZES, Size, ZooModel, get, models, register

__all__ = ["SIZES", "Size", "ZooModel", "get", "models", "register"]
