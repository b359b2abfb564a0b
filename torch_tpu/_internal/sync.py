"""Waiting for tensors."""

from collections.abc import Iterable

import torch


def synchronize(tensors: torch.Tensor | Iterable[torch.Tensor] | None = None, wait: bool = True) -> None:
    """Waits for all work on the devices of ``tensors`` (None: the current device); with ``wait=False`` does nothing,
    because every op is submitted when it is called."""
    if not wait:
        return
    if tensors is None:
        torch.tpu.synchronize()  # type: ignore[attr-defined]
        return
    listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    for index in sorted({t.device.index for t in listed if t.device.type == "tpu"}):
        torch.tpu.synchronize(index)  # type: ignore[attr-defined]
