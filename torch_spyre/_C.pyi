"""The native runtime of torch_spyre. Devices are indices here; -1 means the current one."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, overload

import torch

class _Enum:
    """A pybind11 enumeration: hashable, convertible to int, not iterable."""

    __members__: ClassVar[dict[str, Any]]
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __init__(self, value: int) -> None: ...
    def __int__(self) -> int: ...

class DataFormats(_Enum):
    SEN169_FP16: ClassVar[DataFormats]
    IEEE_FP32: ClassVar[DataFormats]
    INVALID: ClassVar[DataFormats]
    SEN143_FP8: ClassVar[DataFormats]
    SEN152_FP8: ClassVar[DataFormats]
    SEN153_FP9: ClassVar[DataFormats]
    SENINT2: ClassVar[DataFormats]
    SENINT4: ClassVar[DataFormats]
    SENINT8: ClassVar[DataFormats]
    SENINT16: ClassVar[DataFormats]
    SENINT24: ClassVar[DataFormats]
    IEEE_INT64: ClassVar[DataFormats]
    IEEE_INT32: ClassVar[DataFormats]
    SENUINT32: ClassVar[DataFormats]
    SENUINT2: ClassVar[DataFormats]
    IEEE_FP16: ClassVar[DataFormats]
    BOOL: ClassVar[DataFormats]
    BFLOAT16: ClassVar[DataFormats]
    SEN18F_FP24: ClassVar[DataFormats]
    IEEE_FP64: ClassVar[DataFormats]
    HOST_UINT8: ClassVar[DataFormats]
    HOST_UINT16: ClassVar[DataFormats]
    HOST_UINT64: ClassVar[DataFormats]
    FP8_E5M2: ClassVar[DataFormats]
    FP8_E4M3FNUZ: ClassVar[DataFormats]

    def elems_per_stick(self) -> int: ...

class ElementArrangement(_Enum):
    STANDARD: ClassVar[ElementArrangement]
    DL16_TO_FP32: ClassVar[ElementArrangement]
    QFP8CH: ClassVar[ElementArrangement]
    EXX2: ClassVar[ElementArrangement]

class SpyreTensorLayout:
    @overload
    def __init__(self, host_size: list[int], dtype: torch.dtype) -> None: ...
    @overload
    def __init__(
        self,
        host_size: list[int],
        host_strides: list[int],
        dtype: torch.dtype,
        dim_order: list[int],
        element_arrangement: ElementArrangement = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        device_size: list[int],
        stride_map: list[int],
        device_dtype: DataFormats,
        element_arrangement: ElementArrangement = ...,
    ) -> None: ...
    @property
    def device_size(self) -> list[int]: ...
    @property
    def stride_map(self) -> list[int]: ...
    @property
    def device_dtype(self) -> DataFormats: ...
    @property
    def element_arrangement(self) -> ElementArrangement: ...
    def elems_per_stick(self) -> int: ...
    def device_bytes(self) -> int: ...
    def with_element_arrangement(self, arrangement: ElementArrangement) -> SpyreTensorLayout: ...

# formats
def get_device_dtype(dtype: torch.dtype) -> DataFormats: ...
def get_elem_in_stick(dtype: torch.dtype) -> int: ...
def encode_constant(value: float, format: DataFormats) -> int: ...
def _convert(data: bytes, src: DataFormats, dst: DataFormats, narrow: int = 0) -> bytes: ...
def get_downcast_warning() -> bool: ...
def set_downcast_warning(enabled: bool) -> None: ...

# layouts
def get_spyre_tensor_layout(tensor: torch.Tensor) -> SpyreTensorLayout: ...
def _follows_strides(layout: SpyreTensorLayout) -> bool:
    """Whether an offset lies where the layout's strides, in falling order, divide it to."""

def _find_layout(tensor: torch.Tensor) -> SpyreTensorLayout | None:
    """None for tensors of other devices, and for those that are on this one in name only."""

def _turn_weights(turned: bool) -> bool:
    """Until it is set again on this thread, new row-major matrices have their rows in the stick.
    Returns what it was."""

def set_spyre_tensor_layout(tensor: torch.Tensor, layout: SpyreTensorLayout) -> None: ...
def spyre_empty_with_layout(
    size: list[int], stride: list[int], dtype: torch.dtype, layout: SpyreTensorLayout
) -> torch.Tensor: ...
def empty_with_layout(
    size: list[int],
    layout: SpyreTensorLayout,
    dtype: torch.dtype,
    device: torch.device | None = None,
    pin_memory: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor: ...
def as_strided_with_layout(
    tensor: torch.Tensor,
    size: list[int],
    stride: list[int],
    storage_offset: int,
    layout: SpyreTensorLayout,
) -> torch.Tensor: ...
def reinterpret_tensor(
    tensor: torch.Tensor, size: list[int], stride: list[int], offset_increment: int = 0
) -> torch.Tensor: ...
def reinterpret_tensor_with_layout(
    tensor: torch.Tensor,
    size: list[int],
    stride: list[int],
    offset_increment: int,
    layout: SpyreTensorLayout,
) -> torch.Tensor: ...

# copies
def copy_tensor(
    self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor: ...
def _data_conversion_info(source: torch.Tensor, target: torch.Tensor) -> dict[str, Any]: ...

# devices
def start_runtime() -> None: ...
def free_runtime() -> None: ...
def _shutdown() -> None: ...
def _is_initialized() -> bool: ...
def _scratchpads_survive() -> bool:
    """Whether what a program leaves in LX is there for the next: not on a share of a card (VF)."""

def _is_available() -> bool: ...
def _is_in_bad_fork() -> bool: ...
def _mark_bad_fork() -> None: ...
def device_count() -> int: ...
def set_device(device: int) -> None: ...
def current_device() -> int: ...
def _check_device_index(device: int) -> None: ...
def _properties(device: int) -> dict[str, Any]: ...
def _counters(device: int) -> dict[str, int]: ...
def _reset_card(device: int) -> None: ...

# memory
def _spyre_get_allocator_stats(device: int) -> dict[str, int]: ...
def _spyre_reset_accumulated_stats(device: int) -> None: ...
def _spyre_reset_peak_stats(device: int) -> None: ...
def _memory_info(device: int) -> dict[str, int]: ...
def _host_memory_stats() -> dict[str, int]: ...
def _reset_accumulated_host_memory_stats() -> None: ...
def _reset_peak_host_memory_stats() -> None: ...

# random numbers
def manual_seed(seed: int, device: int = -1) -> None: ...
def manual_seed_all(seed: int) -> None: ...
def get_rng_state(device: int = -1) -> torch.Tensor: ...
def set_rng_state(state: torch.Tensor, device: int = -1) -> None: ...
def initial_seed(device: int = -1) -> int: ...
def _get_default_generator(device: int = -1) -> torch.Generator: ...

# fallbacks
def _set_fallback_hook(hook: Callable[[str], None]) -> None: ...
def _fallback_counts() -> dict[str, int]: ...
def _reset_fallback_counts() -> None: ...
def _set_debug_log(on: bool) -> None: ...
def _set_fallback_error(error: bool) -> None: ...

# streams and events
def _get_stream_from_pool(
    device: torch.device | None = None, priority: int = 0
) -> torch.Stream: ...
def _current_stream(device: torch.device | None = None) -> torch.Stream: ...
def _default_stream(device: torch.device | None = None) -> torch.Stream: ...
def set_current_stream(stream: torch.Stream) -> torch.Stream: ...
def _set_stream_checks(stream: torch.Stream, on: bool) -> bool: ...  # whether it did before
def _synchronize(device: torch.device | None = None) -> None: ...
def _sleep(seconds: float) -> None: ...
def _elapsed_ms(start: torch.Event, end: torch.Event) -> float: ...
def _modelled_elapsed_ms(start: torch.Event, end: torch.Event) -> float: ...

# programs

class _Program:
    """A program in the memory of one card."""

    def __init__(self, binary: bytes, device: int = -1) -> None: ...
    @property
    def bytes(self) -> int: ...
    def launch(self, operands: Sequence[torch.Tensor]) -> None: ...

class _Kernel:
    """A compiled kernel in the memory of one card, with the operands that are its own."""

    def __init__(
        self,
        binary: bytes,
        device: int,
        expected: list[tuple[SpyreTensorLayout, list[int], int]],  # layout, strides, offset
        constants: list[torch.Tensor],  # operands after the arguments
        pool_bytes: int,  # of an operand before them
        name: str = ...,  # and the user's lines that it is made of, for messages
        source: str = ...,
    ) -> None: ...
    def launcher(self) -> Callable[[tuple[torch.Tensor, ...]], int]:
        """Launches the kernel with a tuple of arguments, and returns the number of the first that
        does not lie as expected, or -1: then it was launched."""
    def bind(
        self, arguments: tuple[torch.Tensor, ...]
    ) -> tuple[_Program, list[torch.Tensor]] | None:
        """The program and its operands; None if an argument does not lie as expected."""

def _launch_together(launches: Sequence[tuple[_Program, Sequence[torch.Tensor]]]) -> None:
    """One after the other, with nothing in between in the scratchpads of the card."""

def _layout_guard(layout: SpyreTensorLayout) -> Callable[[torch.Tensor], bool]:
    """Whether a tensor has the layout, for guards."""

def _empty_strided(
    size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: int
) -> torch.Tensor:
    """What compiled graphs allocate with. Positional arguments only."""

# doors in functions of PyTorch and safetensors

def _open_layout_doors(
    empty: Callable[..., Any],
    to: Callable[..., Any],
    make: Callable[..., torch.Tensor],
    move: Callable[..., torch.Tensor],
) -> None:
    """Calls of ``empty`` and ``to`` with ``device_layout=`` go to ``make`` and ``move``."""

def _keep_attribute(cpu: Callable[..., Any], name: str) -> None:
    """What ``Tensor.to`` and ``cpu`` return has this attribute of the tensor, if there is one."""

def _open_module_door(parse_to: Callable[..., Any], act: Callable[[], None]) -> None:
    """``act`` is called when somebody parses the arguments of ``to()`` and the card is meant."""

def _open_byteswap_door(byteswap: Callable[..., Any]) -> None:
    """It refuses device memory."""

def _open_safetensors_door(safe_open: type, act: Callable[..., Any]) -> None:
    """Calls with the card for a device go to ``act``, which may return NotImplemented."""

def _on_first_use(act: Callable[[], None]) -> None:
    """``act`` is called once, before a card is opened or a tensor is made for one."""

# the cost model: torch_spyre.cost

class OpCost:
    """What an op asks of each part of the card; spyre/cost.h says what the numbers are."""

    unit: str  # "sfp" or "pt"
    passes: float
    element_bytes: int
    cores: int
    points: int
    all_points: int
    rows: int
    read_bytes: int
    written_bytes: int
    lx_bytes: int
    all_lx_bytes: int
    partial_sums: int
    ring_bytes: int
    ring_link_bytes: int
    ring_hops: int
    def __init__(self, **fields: str | float) -> None: ...

class Price:
    """Nanoseconds. ``total`` is the longest of the others, which overlap, plus ``overhead``."""

    compute: int
    read: int
    write: int
    lx: int
    ring: int
    overhead: int
    total: int
    @property
    def bound(self) -> str: ...  # "memory", "compute", "lx", "ring" or "overhead"
    @property
    def busiest(self) -> str: ...  # the same, without the overhead

class RingLoad:
    @property
    def bytes(self) -> int: ...
    @property
    def link_bytes(self) -> int: ...
    @property
    def hops(self) -> int: ...
    @property
    def ns(self) -> int: ...

def price(op: OpCost) -> Price: ...
def multicast_bytes(bytes: int, sharers: int) -> int: ...
def transfer_ns(device_bytes: int) -> int: ...
def ring_load(sends: Sequence[tuple[int, int, int]]) -> RingLoad: ...
def ring_all_gather(groups: Sequence[int], bytes: int) -> RingLoad: ...
