"""What the tests of ordering, indexing, shape, pooling and resampling share: op_db cases, one call on both devices."""

from collections.abc import Callable, Iterable
from typing import Any

import comparing
import pytest
import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_map

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
EVERY = (
    *FLOATS,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
# A gradient is checked in one precise and one narrow dtype: the rules do not differ between the others.
GRADIENTS = (torch.float32, torch.bfloat16)
NARROW = (torch.bfloat16, torch.float16)


def cases(names: Iterable[str], dtypes: tuple[torch.dtype, ...], backward: bool = False) -> list:
    """One case per op variant and dtype that the CPU supports."""
    found = []
    for name in names:
        for op in comparing.BY_NAME[name]:
            supported = op.supported_backward_dtypes("cpu") if backward else op.supported_dtypes("cpu")
            found += [pytest.param(op, d, id=f"{op.full_name}-{str(d)[6:]}") for d in dtypes if d in supported]
    return found


def widen(tree: Any) -> Any:
    """Narrow floats to float32."""
    return tree_map(lambda x: x.float() if isinstance(x, torch.Tensor) and x.dtype in NARROW else x, tree)


def compare_with_float32(op: OpInfo, dtype: torch.dtype) -> int:
    """For ops whose narrow CPU kernels round after every step: our result is compared with the CPU's in float32."""
    count = 0
    torch.manual_seed(0)
    for sample in comparing.limited(op.sample_inputs("cpu", dtype, requires_grad=False)):
        moved = comparing.to_device((sample.input, sample.args, sample.kwargs))
        actual = op.op(moved[0], *moved[1], **moved[2])
        expected = op.op(*widen((sample.input, *sample.args)), **widen(sample.kwargs))
        expected = tree_map(
            lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x, expected
        )
        comparing.assert_same(actual, expected, dtype, f"{op.full_name} {dtype} ({comparing.describe(sample)})")
        count += 1
    return count


def check(function: Callable[..., Any], *args: Any) -> None:
    """Calls `function` with CPU and with device copies of `args`; results and written arguments must be the same."""
    on_cpu = tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, args)
    on_device = comparing.to_device(args)
    expected, actual = function(*on_cpu), function(*on_device)
    floats = [
        x.dtype for x in args if isinstance(x, torch.Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)
    ]
    dtype = floats[0] if floats else torch.float32
    comparing.assert_same(actual, expected, dtype, "result")
    for i, (a, e) in enumerate(zip(on_device, on_cpu)):
        if isinstance(a, torch.Tensor):
            comparing.assert_same(a, e, dtype, f"argument {i}")


def strided(x: Any) -> Any:
    """The same values as every other element of a larger tensor."""
    if not isinstance(x, torch.Tensor) or x.dim() == 0 or x.numel() == 0:
        return x
    return torch.empty(*x.shape, 2, dtype=x.dtype, device=x.device)[..., 0].copy_(x)


def compare_strided_and_out(op: OpInfo, dtype: torch.dtype, limit: int = 4) -> None:
    """Non-contiguous arguments, then a contiguous and a non-contiguous out= (ops with one result)."""
    torch.manual_seed(0)
    for sample in comparing.limited(op.sample_inputs("cpu", dtype, requires_grad=False), limit):
        what = f"{op.full_name} {dtype} ({comparing.describe(sample)})"
        expected = op.op(sample.input, *sample.args, **sample.kwargs)
        moved = comparing.to_device((sample.input, sample.args, sample.kwargs))
        arguments = tree_map(strided, (moved[0], *moved[1]))
        comparing.assert_same(op.op(*arguments, **moved[2]), expected, dtype, f"strided {what}")
        if not op.supports_out or not isinstance(expected, torch.Tensor):
            continue
        for out in (torch.empty_like(expected, device="tpu"), strided(torch.zeros_like(expected, device="tpu"))):
            assert op.op(*arguments, out=out, **moved[2]) is out
            comparing.assert_same(out, expected, dtype, f"out= {what}")
