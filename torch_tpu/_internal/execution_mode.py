"""How ops are executed. Results are the same in every mode."""

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from torch_tpu import _C


class EagerMode(enum.Enum):
    """``DEFER_NEVER``: each op is submitted when it is called. ``..._AND_LAUNCH_BLOCKING``: and waited for.
    ``DEFER_AND_FUSE``: ops may be joined into larger programs."""

    DEFER_NEVER = "strict"
    DEFER_NEVER_AND_LAUNCH_BLOCKING = "debug"
    DEFER_AND_FUSE = "fused"


def get_eager_mode() -> EagerMode:
    """The mode in force."""
    return EagerMode(_C.eager_mode())


def set_eager_mode(mode: EagerMode) -> None:
    """Changes the mode of the whole process. Raises TypeError for anything but an :class:`EagerMode`."""
    if not isinstance(mode, EagerMode):
        raise TypeError(f"set_eager_mode: expected an EagerMode, got <{mode!r}>")
    _C.set_eager_mode(mode.value)


@contextmanager
def eager_mode(mode: EagerMode) -> Iterator[None]:
    """The mode for a block."""
    before = get_eager_mode()
    set_eager_mode(mode)
    try:
        yield
    finally:
        set_eager_mode(before)
