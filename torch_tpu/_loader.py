"""Loads the C++ module and registers the device, once per process. Opens no engine and starts no thread."""

import atexit
import glob
import importlib.metadata
import importlib.util
import os
import re
import sys
import threading
from types import ModuleType

import torch
from torch.utils import backend_registration

from torch_tpu._version import TORCH_MINOR, __version__

_lock = threading.RLock()
_loaded = False
_inactive = ""

GOOGLE_PCI_VENDOR = "0x1ae0"


class Refusal(ImportError):
    """The package will not load here, for a reason the user can act on; the message is one sentence."""


def load() -> None:
    """Registers the device; calls after the first do nothing.

    Raises:
        ImportError: wrong PyTorch version, the distribution ``torch-tpu`` is installed as well, or the device is not
            registered because this process has a CUDA device and no TPU.
    """
    load_at_import()
    if _inactive:
        raise Refusal(_inactive)


def load_at_import() -> None:
    """Like :func:`load`, but leaves a machine with a CUDA device and no TPU alone without an error."""
    global _loaded, _inactive
    with _lock:
        if _loaded or _inactive:
            return
        _refuse_foreign_distribution()
        _refuse_other_torch()
        if _cuda_present() and not _tpu_present() and os.environ.get("TORCH_TPU_FORCE") != "1":
            # Registering would make PyTorch's accelerator `tpu`, which breaks CUDA's backward pass.
            _inactive = "this machine has a CUDA device and no TPU; set TORCH_TPU_FORCE=1 to register it all the same"
            return
        _register()
        _loaded = True


def inactive_reason() -> str:
    """Why nothing was registered, or '' if the device is registered."""
    return _inactive


def _refuse_foreign_distribution() -> None:
    try:
        version = importlib.metadata.version("torch-tpu")
    except importlib.metadata.PackageNotFoundError:
        return
    raise Refusal(
        f"the distribution torch-tpu {version} is installed and has the same import name as torchtpu {__version__}: "
        "uninstall one of them (pip uninstall torch-tpu)"
    )


def _refuse_other_torch() -> None:
    installed = re.match(r"\d+\.\d+", torch.__version__)
    if installed is None or installed.group() != TORCH_MINOR:
        raise Refusal(
            f"torchtpu {__version__} is built for PyTorch {TORCH_MINOR}, but PyTorch {torch.__version__} is installed"
        )


def _tpu_present() -> bool:
    """A PCI device of Google's with a vfio or accel node; opens nothing."""
    for vendor in glob.glob("/sys/bus/pci/devices/*/vendor"):
        try:
            with open(vendor) as file:
                if file.read().strip() == GOOGLE_PCI_VENDOR:
                    return bool(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))
        except OSError:
            continue
    return False


def _cuda_present() -> bool:
    """A GPU that this PyTorch could use; does not initialise CUDA (that would spoil a later fork)."""
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return False
    if torch.version.hip:
        return os.path.exists("/dev/kfd")
    count: int = torch.cuda._device_count_nvml()
    return count > 0 if count >= 0 else os.path.exists("/dev/nvidia0")


def _library(package: str, *parts: str) -> str:
    """Path of a library inside an installed package, '' if there is none; does not import the package."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return ""
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(glob.glob(os.path.join(folder, *parts))):
            return path
    return ""


def _register() -> None:
    from torch_tpu import _C

    _C.configure(
        _library("libtpu", "libtpu.so"),
        _library("xla_plugins.xla_cpu_pjrt", "*.so"),
        os.path.join(os.path.dirname(torch.__file__), ""),
        os.path.join(os.path.dirname(__file__), ""),
    )
    _C.check_environment()
    backend_registration.rename_privateuse1_backend("tpu")
    torch._register_device_module("tpu", _load_device_module())  # type: ignore[no-untyped-call]
    from torch_tpu import backends, patches

    sys.modules["torch.backends.tpu"] = backends.module
    torch.backends.tpu = backends.module  # type: ignore[attr-defined]
    quantised = [torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True, unsupported_dtype=quantised)
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.tpu)  # type: ignore[attr-defined]
    torch.set_autocast_dtype("tpu", torch.bfloat16)
    _set_checkpoint_device()
    patches.apply()
    _decompose_when_traced()
    # Runs late, because it is registered early: users' own exit handlers may still use the device.
    atexit.register(_C.shutdown)


def _decompose_when_traced() -> None:
    """Tracers decompose aten::lstm as on other devices, although this one has a kernel of its own (csrc/aten/lstm.cc)."""
    lstm = torch.ops.aten.lstm.input
    for key in (torch._C.DispatchKey.AutogradPrivateUse1, torch._C.DispatchKey.PrivateUse1):
        lstm.py_impl(key)(lstm.decompose)


def _load_device_module() -> ModuleType:
    """The package torch_tpu/tpu under the name ``torch.tpu``: ``import torch.tpu.amp`` then works like any import."""
    folder = os.path.join(os.path.dirname(__file__), "tpu")
    spec = importlib.util.spec_from_file_location(
        "torch.tpu", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch.tpu"] = sys.modules["torch_tpu.tpu"] = module
    spec.loader.exec_module(module)
    return module


def _set_checkpoint_device() -> None:
    """Activation checkpointing saves the random state of this device type when it sees no device tensor."""
    from torch.utils.checkpoint import DefaultDeviceType

    DefaultDeviceType.set_device_type("tpu")
