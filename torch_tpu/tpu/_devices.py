"""Devices: how many, which is current, what they are."""

import os
import re
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import torch

from torch_tpu import _C

Device: TypeAlias = torch.device | str | int | None


def index_of(device: Device) -> int:
    """The index of an existing device; None, -1 and a device without an index mean the current one.

    Raises:
        ValueError: a device of another type.
        TypeError: something that names no device.
        RuntimeError: a device that does not exist, or no device at all.
    """
    index = requested_index(device)
    return _C.device_index(-1 if index is None or index < 0 else index)


def requested_index(device: Device) -> int | None:
    """The index as written, unchecked; None if there is none."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        raise TypeError(f"expected a device, a string, an int or None, got <{type(device).__name__}>")
    if device.type != "tpu":
        raise ValueError(f"Expected a tpu device, but got: {device}")
    index: int | None = device.index
    return index


@dataclass(frozen=True)
class DeviceProperties:
    """What is known about a device. ``total_memory`` is in bytes; ``engine`` is 'libtpu' or 'xla-cpu'."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    engine: str
    platform_version: str


def device_count() -> int:
    """Number of devices of this process; 0 if there is none. Never raises, opens nothing."""
    return _C.device_count()


def current_device() -> int:
    """Index of the calling thread's device."""
    return _C.current_device()


def set_device(device: Device) -> None:
    """Makes a device the calling thread's; a negative index changes nothing.

    Where each process has one device, the process's own ``LOCAL_RANK`` is accepted as another name for it.
    """
    index = requested_index(device)
    if index is None or index < 0:
        return
    if index > 0 and device_count() == 1 and os.environ.get("LOCAL_RANK") == str(index):
        index = 0
    torch._C._accelerator_setDeviceIndex(_C.device_index(index))


def _exchange_device(index: int) -> int:
    """Makes a device current and returns the one before; a negative index changes nothing and returns -1."""
    if index < 0:
        return -1
    before = _C.current_device()
    if index != before:
        torch._C._accelerator_setDeviceIndex(_C.device_index(index))
    return before


def _maybe_exchange_device(index: int) -> int:
    return _exchange_device(index)


class device:
    """Context manager: the device for a block. A negative index or None changes nothing."""

    def __init__(self, device: Device) -> None:
        index = requested_index(device)
        self.idx = -1 if index is None else index
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager: the device of a tensor or storage; changes nothing if that is not on a tpu."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == "tpu" else -1)


def get_device_name(device: Device = None) -> str:
    """For example ``"TPU v6e"``; begins with TPU on every engine."""
    name: str = _C.device_info(index_of(device))["name"]
    return name


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Everything known about a device; opens it."""
    index = index_of(device)
    info = _C.device_info(index)
    generation = re.search(r"\bv?(\d+)", info["kind"]) if info["engine"] == "libtpu" else None
    return DeviceProperties(
        name=info["name"],
        total_memory=_C.memory_info(index)[1],
        major=int(generation.group(1)) if generation else 0,
        minor=0,
        multi_processor_count=(os.cpu_count() or 1) if info["engine"] == "xla-cpu" else 1,
        engine=info["engine"],
        platform_version=info["platform_version"],
    )


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(generation, 0): (6, 0) on a v6e; (0, 0) on the embedded engine."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Can one device be copied to the other without the host? True for two different devices of this process."""
    return index_of(device) != index_of(peer_device)


def synchronize(device: Device = None) -> None:
    """Waits for everything submitted to a device, on all streams; raises what went wrong there meanwhile."""
    torch._C._accelerator_synchronizeDevice(index_of(device))


def ipc_collect() -> None:
    """Does nothing: device memory is never shared between processes."""
