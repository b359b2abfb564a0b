"""Random numbers: one generator {seed, offset} per device, on the host. Nothing here opens the device, so a seed set
before its first use counts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import torch
from torch import Tensor

from torch_tpu import _C

from ._devices import Device, current_device, device_count, index_of


class _Generators(Sequence[torch.Generator]):
    """The devices' own generators, by index."""

    def __len__(self) -> int:
        return device_count()

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...
    def __getitem__(self, index: int | slice) -> "torch.Generator | tuple[torch.Generator, ...]":
        if isinstance(index, slice):
            return tuple(self)[index]
        if not -len(self) <= index < len(self):
            raise IndexError(f"torch.tpu.default_generators: expected an index below {len(self)}, got <{index}>")
        return _C.default_generator(index % len(self))

    def __iter__(self) -> Iterator[torch.Generator]:
        return (_C.default_generator(i) for i in range(len(self)))


default_generators = _Generators()


def get_rng_state(device: Device = "tpu") -> Tensor:
    """The state of a device's generator: 16 bytes (uint8, CPU), the seed and the offset, little endian."""
    return _C.default_generator(index_of(device)).get_state()


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: Tensor, device: Device = "tpu") -> None:
    """Restores a state. Raises TypeError or RuntimeError if it is not 16 bytes of uint8 on the CPU."""
    _C.default_generator(index_of(device)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Restores the states of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device; does nothing if there is none."""
    seed = int(seed)
    if device_count() > 0:
        _C.default_generator(current_device()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds all devices; does nothing if there is none."""
    seed = int(seed)
    for generator in default_generators:
        generator.manual_seed(seed)


def seed() -> None:
    """Seeds the current device with a number that nobody can foresee; does nothing if there is none."""
    if device_count() > 0:
        _C.default_generator(current_device()).seed()


def seed_all() -> None:
    """Seeds all devices with one number that nobody can foresee; does nothing if there is none."""
    chosen: int | None = None
    for generator in default_generators:
        if chosen is None:
            chosen = generator.seed()
        else:
            generator.manual_seed(chosen)


def initial_seed() -> int:
    """The seed of the current device. Raises RuntimeError if there is no device."""
    return _C.default_generator(index_of(None)).initial_seed()
