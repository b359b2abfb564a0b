"""``torch.tpu``: the device ``tpu``, with the names and meanings of ``torch.cuda``.

The device is opened by its first use, never by an import or a question. Errors raised here are RuntimeError with one
sentence when there is no device, ValueError for one of another type.
"""

from typing import Any

import torch

from torch_tpu import _C

from . import amp, distributed, memory, random, streams
from ._devices import (
    DeviceProperties,
    _exchange_device,
    _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    ipc_collect,
    set_device,
    synchronize,
)
from ._legacy_types import LEGACY_TYPES
from .memory import (
    empty_cache,
    get_per_process_memory_fraction,
    host_memory_stats,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .programs import (
    compile_count,
    compile_log,
    debug_mode,
    eager_mode,
    execute_count,
    explain_last_compile,
    explain_regions,
    fallback,
    fallback_count,
    get_sync_debug_mode,
    index_check,
    set_sync_debug_mode,
    stats,
    synchronize_compiles,
)
from .random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
    set_stream,
    stream,
)

OutOfMemoryError = torch.OutOfMemoryError

__all__ = [
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "compile_count",
    "compile_log",
    "current_device",
    "current_stream",
    "debug_mode",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "distributed",
    "eager_mode",
    "empty_cache",
    "execute_count",
    "explain_last_compile",
    "explain_regions",
    "fallback",
    "fallback_count",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "host_memory_stats",
    "index_check",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stats",
    "stream",
    "streams",
    "synchronize",
    "synchronize_compiles",
]

# PyTorch itself calls these.
_PRIVATE = (_exchange_device, _maybe_exchange_device, _set_stream_by_id)


def is_available() -> bool:
    """Could a device be used? Never raises, opens nothing."""
    return _C.is_available()


def is_initialized() -> bool:
    """Has the engine been opened (and not lost in a fork)?"""
    return _C.is_initialized() and not _C.in_bad_fork()


def init() -> None:
    """Opens the engine. Raises RuntimeError with one sentence if it cannot be opened; does nothing if it is open."""
    _C.init()


def _lazy_init() -> None:
    _C.init()


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always True."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What ``torch.autocast("tpu")`` may lower to; the first is the default."""
    return [torch.bfloat16, torch.float16]


def __getattr__(name: str) -> Any:
    if name == "_initialized":
        # Activation checkpointing saves the random state only if this is true; ours needs no open device.
        return _C.is_available()
    if name in LEGACY_TYPES:
        return LEGACY_TYPES[name]
    raise AttributeError(f"module 'torch.tpu' has no attribute '{name}'")
