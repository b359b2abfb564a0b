"""The summary line both examples end with: what ran, where, and whether anything left the device."""

import torch


def summary_line(device: torch.device, before: dict[str, int]) -> str:
    """One line over the counters since `before` (a `torch.tpu.stats()`); empty on other devices."""
    if device.type != "tpu":
        return f"summary: device {device}"
    now = torch.tpu.stats()
    ran = {key: now[key] - before[key] for key in ("ops", "compiles", "disk_hits", "fallbacks")}
    return (
        f"summary: device {device}, engine {torch.tpu.get_device_properties(device).engine}, ops run {ran['ops']}, "
        f"programs compiled {ran['compiles']}, served from the disk store {ran['disk_hits']}, CPU fallbacks {ran['fallbacks']}"
    )


def counters(device: torch.device) -> dict[str, int]:
    """The device's running totals; empty on other devices."""
    return torch.tpu.stats() if device.type == "tpu" else {}


def fallbacks(device: torch.device, before: dict[str, int]) -> int:
    """How many ops ran on the CPU since `before`."""
    return torch.tpu.stats()["fallbacks"] - before["fallbacks"] if device.type == "tpu" else 0
