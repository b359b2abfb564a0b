"""What Dynamo must know of this package before it traces user code. Imported when ``torch.compile`` is called first."""

import functools
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch._subclasses.fake_impls import register_op_impl


def _grouped_mm(
    mode: Any,
    op: Any,
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Shape of ``torch._grouped_mm`` for tracing: PyTorch's own takes every device but the CPU for one that has bfloat16 only.

    ``a`` [m, k] or [g, m, k], ``b`` [k, n] or [g, k, n]; ``offs`` [g], the ends of the groups of the dimension that is not
    given by group.
    """
    if a.device.type != "tpu":
        return NotImplemented
    size = [*([a.shape[0]] if a.dim() == b.dim() == 3 else []), a.shape[-2], b.shape[-1]]
    if a.dim() == b.dim() == 2 and offs is not None:
        size.insert(0, offs.shape[0])
    return a.new_empty(size, dtype=out_dtype or a.dtype)


@functools.cache
def prepare() -> None:
    """Makes Dynamo call the functions of this package instead of tracing into them, as it does with PyTorch's own."""
    trace_rules.add("torch_tpu")
    register_op_impl(torch.ops.aten._grouped_mm.default)(_grouped_mm)
