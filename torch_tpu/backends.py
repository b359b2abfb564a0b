"""``torch.backends.tpu``."""

from types import ModuleType

from torch_tpu import _C

__all__ = ["module"]


class _Backend(ModuleType):
    """The module object: a class, because ``allow_excess_precision`` is a property."""

    @staticmethod
    def is_built() -> bool:
        """Always True: the package is installed."""
        return True

    @staticmethod
    def is_available() -> bool:
        """Could a device be used? Never raises, opens nothing."""
        return _C.is_available()

    @property
    def allow_excess_precision(self) -> bool:
        """May the compiler keep values in a wider dtype than written (skip float32 -> bfloat16 -> float32)?

        Off by default: results then are those of the ops one by one. Concerns programs compiled after the change.
        """
        return _C.allow_excess_precision()

    @allow_excess_precision.setter
    def allow_excess_precision(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"torch.backends.tpu.allow_excess_precision: expected a bool, got <{value!r}>")
        _C.set_allow_excess_precision(value)


module = _Backend("torch.backends.tpu", "Properties of the tpu backend.")
