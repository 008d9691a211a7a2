"""Streams and events of the spyre device.

A stream runs its work in order; different streams run concurrently. Stream 0 of a device is its
default stream, 1 to 32 are the low-priority pool and 33 to 64 the high-priority pool; each pool
hands out its streams in turn. Streams and events are ``torch.Stream`` and ``torch.Event``, so
everything that takes one of those takes these.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch

from torch_spyre import _C
from torch_spyre.constants import DEVICE_NAME

__all__ = [
    "Event",
    "Stream",
    "checked",
    "current_stream",
    "default_stream",
    "stream",
    "synchronize",
]

Device = torch.device | int | str | None


def resolve_device(device: Device) -> torch.device | None:
    """A spyre device from what users write: a device, an index, a string, or None (current)."""
    if device is None:
        return None
    if isinstance(device, int):
        _C._check_device_index(device)  # torch.device would cut large numbers to 8 bits
        return torch.device(DEVICE_NAME, device)
    resolved = torch.device(device)
    if resolved.type != DEVICE_NAME:
        raise ValueError(f"expected a {DEVICE_NAME} device, got {device!r}")
    return resolved


def device_index(device: Device) -> int:
    """The index of a device; the current one for None and for a device without index."""
    resolved = resolve_device(device)
    if resolved is None or resolved.index is None:
        return _C.current_device()
    return resolved.index


class Stream(torch.Stream):
    """A stream of a spyre device. In a ``with`` block it is the current stream.

    Args:
        device: device of the stream; the current one if None.
        priority: 0 takes a stream of the low-priority pool, anything else one of the
            high-priority pool.
    """

    def __new__(cls, device: Device = None, priority: int = 0) -> Self:
        return cls._wrap(_C._get_stream_from_pool(resolve_device(device), priority))

    @classmethod
    def _wrap(cls, stream: torch.Stream) -> Self:
        return super().__new__(
            cls,
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        )

    def id(self) -> int:
        """0 for the default stream, 1 to 64 for streams of the pools."""
        return self.stream_id

    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the stream. A method, as the public API has it."""
        return torch.device(DEVICE_NAME, self.device_index)

    def priority(self) -> int:
        """-1 for streams of the high-priority pool, else 0."""
        return -1 if self.stream_id > 32 else 0

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record an event in this stream, a new one if none is given."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<torch_spyre.Stream device={self.device_index} id={self.stream_id}>"


class Event(torch.Event):
    """A point in a stream that can be waited for and timed.

    ``elapsed_time`` measures wall time on this machine, ``modelled_elapsed_time`` the time the
    work would take on a real card.
    """

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Self:
        if interprocess:
            raise NotImplementedError("spyre events cannot be shared between processes")
        return super().__new__(cls, DEVICE_NAME, enable_timing=enable_timing, blocking=blocking)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds of wall time from this event to ``end_event``; waits for both."""
        return _C._elapsed_ms(self, end_event)

    def modelled_elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds of modelled card time from this event to ``end_event``."""
        return _C._modelled_elapsed_ms(self, end_event)


def stream(stream: Stream) -> Stream:
    """``with torch.spyre.stream(s):`` makes ``s`` the current stream; the stream does the work."""
    return stream


def current_stream(device: Device = None) -> Stream:
    """The stream that work of this thread goes to."""
    return Stream._wrap(_C._current_stream(resolve_device(device)))


def default_stream(device: Device = None) -> Stream:
    """Stream 0 of a device."""
    return Stream._wrap(_C._default_stream(resolve_device(device)))


def set_stream(stream: torch.Stream) -> None:
    """Make a stream the current one of its device, for this thread."""
    _C.set_current_stream(stream)


@contextmanager
def checked(stream: torch.Stream | None = None, *, on: bool = True) -> Iterator[None]:
    """Check every access of what a stream runs in the ``with`` block: docs/checker.md.

    The first fault is raised as a RuntimeError that names op, tensor and element, before it does
    harm. Takes a stream, the current one if None. Very slow. ``on=False`` leaves the block out of
    what is checked otherwise: it reads memory on purpose that nobody has written.
    """
    stream = current_stream() if stream is None else stream
    before = _C._set_stream_checks(stream, on)
    try:
        yield
    finally:
        _C._set_stream_checks(stream, before)


def synchronize(device: Device = None) -> None:
    """Wait for all work of a device, or of all devices if none is given.

    Raises the first error of asynchronous work that has not been reported yet.
    """
    _C._synchronize(None if device is None else torch.device(DEVICE_NAME, device_index(device)))


def _sleep(seconds: float) -> None:
    """Occupy the current stream for a while: makes ordering visible in tests."""
    _C._sleep(seconds)
