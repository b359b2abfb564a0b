"""The one place where PyTorch itself is changed at run time.

Each patch says what it replaces, why, for which PyTorch versions, and which test fails once it is no longer needed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch._tensor_str


@dataclass(frozen=True)
class Patch:
    """One replaced attribute: ``make(original)`` returns the replacement."""

    owner: Any
    name: str
    make: Callable[[Callable[..., Any]], Callable[..., Any]]
    reason: str
    versions: str
    test: str


def _dlpack_device(original: Callable[..., Any]) -> Callable[..., Any]:
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        if self.device.type != "tpu":
            result: tuple[Any, int] = original(self)
            return result
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index or 0

    return __dlpack_device__


def _printed_on_host(original: Callable[..., Any]) -> Callable[..., Any]:
    def _tensor_str(self: torch.Tensor, indent: int) -> str:
        if self.device.type == "tpu":
            self = self.detach().cpu()
        text: str = original(self, indent)
        return text

    return _tensor_str


def _refuse_sharing(original: Callable[..., Any]) -> Callable[..., Any]:
    def share_memory_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "tpu":
            raise NotImplementedError(
                "share_memory_: memory of the tpu device cannot be shared between processes; share tensor.cpu() instead"
            )
        return original(self, *args, **kwargs)

    return share_memory_


def _compiled_by_device(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Any, model_: Any, inputs_: Any, **kwargs: Any) -> Any:
        made = [node.meta.get("example_value") for node in model_.graph.nodes]
        tensors = [*inputs_, *model_.parameters(), *model_.buffers(), *made]
        if not any(isinstance(t, torch.Tensor) and t.device.type == "tpu" for t in tensors):
            return original(self, model_, inputs_, **kwargs)
        from torch_tpu.compile import backend

        return backend(model_, inputs_)

    return __call__


def _prepares_dynamo(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        from torch_tpu.compile import dynamo

        dynamo.prepare()

    return __init__


PATCHES = [
    Patch(
        torch.Tensor,
        "__dlpack_device__",
        _dlpack_device,
        "compares the device type with the literal 'privateuse1', so it fails for every renamed backend",
        "2.13",
        "tests/package/test_patches.py::test_dlpack_device_needs_patch",
    ),
    Patch(
        torch._tensor_str,
        "_tensor_str",
        _printed_on_host,
        "formats values on the tensor's own device, which compiles dozens of programs per print",
        "2.13",
        "tests/package/test_patches.py::test_printing_needs_patch",
    ),
    Patch(
        torch.UntypedStorage,
        "share_memory_",
        _refuse_sharing,
        "silently does nothing for devices other than the CPU, where CUDA shares through IPC",
        "2.13",
        "tests/package/test_patches.py::test_share_memory_needs_patch",
    ),
    Patch(
        torch._TorchCompileInductorWrapper,
        "__call__",
        _compiled_by_device,
        "the default backend, Inductor, is chosen before the device is known and generates code for GPUs and CPUs only",
        "2.13",
        "tests/package/test_patches.py::test_compile_needs_patch",
    ),
    Patch(
        torch._TorchCompileInductorWrapper,
        "__init__",
        _prepares_dynamo,
        "Dynamo skips PyTorch's own modules when it traces, but knows of no other package that is part of a device",
        "2.13",
        "tests/package/test_patches.py::test_tracing_needs_patch",
    ),
]

ORIGINALS: dict[str, Callable[..., Any]] = {}


def apply() -> None:
    """Puts every patch in place; a second call does nothing."""
    for patch in PATCHES:
        if patch.name in ORIGINALS:
            continue
        original = getattr(patch.owner, patch.name)
        replacement = patch.make(original)
        replacement.__doc__ = original.__doc__
        replacement.__module__ = original.__module__
        replacement.__qualname__ = original.__qualname__
        ORIGINALS[patch.name] = original
        setattr(patch.owner, patch.name, replacement)
