"""Launch helpers for one process per device."""

import os
from typing import Any

__all__ = ["environment", "global_device_id", "set_tpu_launch_env"]


def set_tpu_launch_env(nproc_per_node: int = 1, *, local_rank: int | None = None, port: int = 8471) -> dict[str, str]:
    """Fills in what libtpu wants to know about the processes of this host, and returns what was set.

    Variables that are already set win. ``local_rank`` defaults to ``LOCAL_RANK``. Raises ValueError for a count below 1
    or a rank outside of it.
    """
    from .environment import launch_environment

    rank = int(os.environ.get("LOCAL_RANK", "0")) if local_rank is None else local_rank
    values = launch_environment(nproc_per_node, rank, port)
    for name, value in values.items():
        os.environ.setdefault(name, value)
    return {name: os.environ[name] for name in values}


def global_device_id() -> int:
    """Position of this process's device among all processes: ``RANK``, 0 outside a launcher."""
    return int(os.environ.get("RANK", "0"))


def __getattr__(name: str) -> Any:
    # Not imported above: `python -m torch.tpu.distributed.environment` would otherwise find it half run.
    if name == "environment":
        import importlib

        return importlib.import_module(f"{__name__}.environment")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
