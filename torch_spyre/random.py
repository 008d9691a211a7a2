"""Random numbers on the spyre device.

A seed gives the numbers it gives on the CPU, rounded to the device format. Dropout and ``rrelu``
are the exceptions: they repeat under a seed, too, but draw in another order.
"""

import torch

from torch_spyre import _C
from torch_spyre.streams import Device, device_index

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _unsigned(seed: int) -> int:
    return int(seed) % 2**64  # as torch.manual_seed: negative seeds count from the end


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device."""
    _C.manual_seed(_unsigned(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    _C.manual_seed_all(_unsigned(seed))


def seed() -> None:
    """Seed the generator of the current device with a number nobody knows."""
    _C._get_default_generator().seed()


def seed_all() -> None:
    """Seed all generators with one number nobody knows."""
    _C.manual_seed_all(torch.Generator().seed())


def initial_seed(device: Device = None) -> int:
    """The seed a device's generator started from."""
    return _C.initial_seed(device_index(device))


def get_rng_state(device: Device = "spyre") -> torch.Tensor:
    """State of a device's generator, as a byte tensor on the CPU."""
    return _C.get_rng_state(device_index(device))


def set_rng_state(new_state: torch.Tensor, device: Device = "spyre") -> None:
    """Put a device's generator into a state that ``get_rng_state`` returned."""
    _C.set_rng_state(new_state, device_index(device))


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all devices' generators."""
    return [_C.get_rng_state(device) for device in range(_C.device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Put all devices' generators into states that ``get_rng_state_all`` returned."""
    for device, state in enumerate(new_states):
        _C.set_rng_state(state, device)
