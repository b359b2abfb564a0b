"""Device memory: counters, limits, snapshots. All sizes are bytes. Every buffer is an allocation of its own, so what is
allocated, active and reserved is the same number."""

import collections
import pickle
from collections.abc import Callable
from typing import Any

import torch

from torch_tpu import _C

from ._devices import Device, index_of

__all__ = [
    "empty_cache",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

_fractions: dict[int, float] = {}


def _stat(current: int, peak: int, allocated: int, freed: int) -> dict[str, dict[str, int]]:
    """One statistic over the pools of torch.cuda: all of it is in ``all``, the two size pools do not exist here."""
    empty = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    total = {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
    return {"all": total, "small_pool": dict(empty), "large_pool": dict(empty)}


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Like :func:`memory_stats`, not flattened."""
    now = _C.memory_counters(index_of(device))
    sizes = (now["allocated"], now["peak"], now["total_allocated"], now["total_freed"])
    counts = (now["allocations"], now["allocations_peak"], now["allocations_total"], now["frees_total"])
    nothing = (0, 0, 0, 0)
    stats: dict[str, Any] = {
        name: _stat(*sizes) for name in ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes")
    }
    stats |= {name: _stat(*counts) for name in ("allocation", "active", "segment")}
    stats |= {name: _stat(*nothing) for name in ("inactive_split", "inactive_split_bytes")}
    stats |= {name: _stat(*nothing)["all"] for name in ("oversize_allocations", "oversize_segments")}
    stats |= {
        "num_ooms": now["out_of_memory"],
        "num_alloc_retries": now["retries"],
        "num_device_alloc": now["allocations_total"],
        "num_device_free": now["frees_total"],
        "num_sync_all_streams": now["retries"],
        "max_split_size": -1,
    }
    return stats


def memory_stats(device: Device = None) -> dict[str, Any]:
    """The counters of a device under the keys of ``torch.cuda.memory_stats``, e.g. ``allocated_bytes.all.peak``."""
    flat: list[tuple[str, int]] = []

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                flatten(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat.append((prefix, value))

    flatten("", memory_stats_as_nested_dict(device))
    return collections.OrderedDict(sorted(flat))


def memory_allocated(device: Device = None) -> int:
    """Bytes in live buffers."""
    return _C.memory_counters(index_of(device))["allocated"]


def max_memory_allocated(device: Device = None) -> int:
    """The most that was live since the start or the last :func:`reset_peak_memory_stats`."""
    return _C.memory_counters(index_of(device))["peak"]


def memory_reserved(device: Device = None) -> int:
    """The same as :func:`memory_allocated`: nothing is kept for reuse."""
    return memory_allocated(device)


def max_memory_reserved(device: Device = None) -> int:
    """The same as :func:`max_memory_allocated`."""
    return max_memory_allocated(device)


memory_cached = memory_reserved
max_memory_cached = max_memory_reserved


def reset_peak_memory_stats(device: Device = None) -> None:
    """The peaks become what is live now."""
    _C.reset_peak(index_of(device))


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """What was allocated and freed in all counts from zero again."""
    _C.reset_accumulated(index_of(device))


def empty_cache() -> None:
    """Frees what is kept only for reuse: uploaded scalars, programs nobody runs."""
    _C.empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total); total is the limit where one is set."""
    return _C.memory_info(index_of(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Lets this process use only a part of a device's memory; more raises ``torch.OutOfMemoryError``.

    Raises:
        TypeError: the fraction is not a float.
        ValueError: it is not between 0 and 1.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"set_per_process_memory_fraction: expected a float, got <{type(fraction).__name__}>")
    if not 0 <= fraction <= 1:
        raise ValueError(f"set_per_process_memory_fraction: expected a fraction between 0 and 1, got <{fraction}>")
    index = index_of(device)
    _C.memory_info(index)  # opens the device: only then is there a limit to take a part of
    _C.set_memory_fraction(index, fraction)
    _fractions[index] = fraction


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The fraction set, 1.0 if none was."""
    return _fractions.get(index_of(device), 1.0)


def host_memory_stats() -> dict[str, Any]:
    """Counters of pinned host memory, under the keys of ``torch.cuda.host_memory_stats``."""
    return _C.host_memory_stats()


def _size(value: int) -> str:
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The counters of a device as a table for people; ``abbreviated`` leaves out the counts."""
    index = index_of(device)
    stats = memory_stats_as_nested_dict(index)
    free, total = mem_get_info(index)
    rows: list[tuple[str, str, Callable[[int], str]]] = [("memory in buffers", "allocated_bytes", _size)]
    if not abbreviated:
        rows.append(("buffers", "allocation", str))
    rule = "-" * 75
    lines = [
        f"memory of tpu:{index}: {_size(total)}, of which {_size(free)} free",
        f"out of memory: {stats['num_ooms']}, after caches were freed: {stats['num_alloc_retries']}",
        rule,
        f"{'':<19}{'now':>14}{'peak':>14}{'allocated':>14}{'freed':>14}",
        rule,
    ]
    for title, key, show in rows:
        numbers = stats[key]["all"]
        cells = "".join(f"{show(numbers[name]):>14}" for name in ("current", "peak", "allocated", "freed"))
        lines.append(f"{title:<19}{cells}")
    return "\n".join([*lines, rule]) + "\n"


def memory_snapshot() -> list[dict[str, Any]]:
    """Every live storage in the form of ``torch.cuda.memory_snapshot``: one segment with one block each."""
    frames = {entry[1]: entry[5] for entry in _C.memory_history() if entry[0] == "alloc"}
    segments = []
    for device, address, size, buffer_bytes, type_name in _C.live_allocations():
        block = {
            "address": address,
            "size": size,
            "requested_size": size,
            "state": "active_allocated",
            "frames": _frames(frames.get(address, [])),
        }
        segments.append(
            {
                "device": device,
                "address": address,
                "total_size": size,
                "allocated_size": size,
                "active_size": size,
                "requested_size": size,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [block],
                "buffer_bytes": buffer_bytes,
                "contents": type_name,
            }
        )
    return segments


def _frames(frames: list[tuple[str, int, str]]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in frames]


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "python",
    max_entries: int = 100_000,
    device: Device = None,
) -> None:
    """Starts (``"state"``, ``"all"``, True) or stops (None, False) recording allocations and frees of all devices.

    ``context``: None records no Python stacks. ``stacks`` is accepted; only Python frames are recorded.
    """
    if enabled not in (None, "state", "all", True, False):
        raise ValueError(f"_record_memory_history: expected 'state', 'all' or None, got <{enabled!r}>")
    if context not in (None, "state", "alloc", "all"):
        raise ValueError(
            f"_record_memory_history: expected a context 'state', 'alloc', 'all' or None, got <{context!r}>"
        )
    on = enabled not in (None, False)
    _C.record_memory_history(min(max_entries, 1_000_000) if on else 0, 32 if context is not None else 0)


def _snapshot(device: Device = None) -> dict[str, Any]:
    """Live storages and the recorded history, in the form that PyTorch's memory viewer reads."""
    wanted = None if device is None else index_of(device)
    segments = [s for s in memory_snapshot() if wanted is None or s["device"] == wanted]
    traces: list[list[dict[str, Any]]] = [[] for _ in range(max(1, _C.device_count()))]
    for action, address, size, index, microseconds, frames in _C.memory_history():
        if wanted is None or index == wanted:
            traces[index].append(
                {
                    "action": action,
                    "addr": address,
                    "size": size,
                    "stream": 0,
                    "time_us": microseconds,
                    "frames": _frames(frames),
                }
            )
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}}


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Writes :func:`_snapshot` to a file for PyTorch's memory viewer."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


OutOfMemoryError = torch.OutOfMemoryError
