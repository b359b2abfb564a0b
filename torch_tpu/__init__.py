"""TorchTPU: makes ``tpu`` a native PyTorch device.

``import torch`` is enough (the package registers itself through the entry point ``torch.backends``); where autoloading
is off, ``import torch_tpu`` does the same. Everything public lives in ``torch.tpu``.
"""

import os
import sys
import traceback

from torch_tpu._version import __version__

# With autoloading on, `import torch` below would come back here while this module is half made. Children of this
# process must still see what the user had set, so the variable is put back at once.
_autoload_setting = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
try:
    import torch
finally:
    if _autoload_setting is None:
        del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
    else:
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = _autoload_setting

from torch_tpu import _loader  # noqa: E402

__all__ = ["__version__", "require"]

_failure: BaseException | None = None


def _inside_import_torch() -> bool:
    """Is this module being imported by ``import torch`` itself?"""
    return bool(getattr(torch.__spec__, "_initializing", False))


try:
    _loader.load_at_import()
except Exception as error:
    # `import torch` must survive whatever is wrong here; an import of this package by name must not.
    if not _inside_import_torch():
        raise
    _failure = error
else:
    from torch_tpu import _internal as _internal
    from torch_tpu import api as api


def _autoload() -> None:
    """Entry point ``torch.backends``: importing this module did the work; what went wrong is said here."""
    if _failure is None:
        return
    if isinstance(_failure, (_loader.Refusal, ValueError)):  # ValueError: an environment variable that does not parse
        print(f"torch_tpu is not loaded: {_failure}", file=sys.stderr)
    else:
        print("torch_tpu is not loaded because of an error:", file=sys.stderr)
        traceback.print_exception(_failure, file=sys.stderr)
    # A later `import torch_tpu` tries again and raises.
    for name in [name for name in sys.modules if name == "torch_tpu" or name.startswith("torch_tpu.")]:
        del sys.modules[name]


def require() -> None:
    """Opens the device. Raises RuntimeError with one sentence if it cannot be used in this process."""
    if _loader.inactive_reason():
        raise RuntimeError(f"the tpu device is not registered: {_loader.inactive_reason()}")
    from torch_tpu import _C

    _C.init()
