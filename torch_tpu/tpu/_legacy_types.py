"""``torch.tpu.FloatTensor`` and its like: constructors and isinstance checks, as ``torch.cuda`` has them."""

from typing import Any

import torch

_DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class _LegacyType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device.type == "tpu" and instance.dtype == cls.dtype

    def __call__(cls, *args: Any) -> Any:
        if len(args) == 1 and not isinstance(args[0], int | torch.Size):
            return torch.tensor(args[0], dtype=cls.dtype, device="tpu")
        sizes = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args or (0,)
        return torch.empty(*sizes, dtype=cls.dtype, device="tpu")


# The full name is the type's name, because `tensor.type(torch.tpu.LongTensor)` looks that up.
LEGACY_TYPES = {
    name: _LegacyType(f"torch.tpu.{name}", (), {"dtype": dtype, "__module__": "torch.tpu", "__qualname__": name})
    for name, dtype in _DTYPES.items()
}
