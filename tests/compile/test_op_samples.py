"""Every op of PyTorch's op_db through ``torch.compile``: the first sample, forward and backward, equals eager."""

from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

# Dynamo or AOTAutograd does not trace these on the CPU either, or there is nothing to compare.
LEFT_OUT = {
    "empty": "uninitialised",
    "empty_like": "uninitialised",
    "empty_permuted": "uninitialised",
    "empty_strided": "uninitialised",
    "new_empty": "uninitialised",
    "new_empty_strided": "uninitialised",
    "jiterator_unary": "CUDA only",
    "jiterator_binary": "CUDA only",
    "jiterator_binary_return_by_ref": "CUDA only",
    "jiterator_4inputs_with_extra_args": "CUDA only",
    "jiterator_2inputs_2outputs": "CUDA only",
}


def sample_of(op: Any, dtype: torch.dtype, gradient: bool) -> Any:
    torch.manual_seed(0)
    return next(iter(op.sample_inputs("cpu", dtype, requires_grad=gradient)), None)


def moved(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]:
    """The sample's arguments on the device, and those of them that want a gradient."""
    leaves: list[torch.Tensor] = []

    def move(x: Any) -> Any:
        if isinstance(x, torch.device):
            return torch.device("tpu")
        if not isinstance(x, torch.Tensor):
            return x
        y = x.detach().to("tpu")
        if x.requires_grad:
            leaves.append(y.requires_grad_())
        return y

    args = tree_map(move, (sample.input, *sample.args))
    kwargs = tree_map(move, sample.kwargs)
    if kwargs.get("device") == "cpu":
        kwargs["device"] = "tpu"
    return args, kwargs, leaves


def outcome(call: Any, sample: Any, gradient: bool) -> list[torch.Tensor]:
    """Results, written arguments and gradients, in host memory."""
    args, kwargs, leaves = moved(sample)
    torch.manual_seed(1)
    result = call(*args, **kwargs)
    tensors = [t for t in tree_flatten((result, args))[0] if isinstance(t, torch.Tensor)]
    found = [t.detach().cpu() for t in tensors if t.layout == torch.strided]
    if gradient:
        processed = sample.output_process_fn_grad(result)
        first = processed[0] if isinstance(processed, (tuple, list)) else processed
        if isinstance(first, torch.Tensor) and first.requires_grad:
            weight = torch.linspace(0.5, 1.5, first.numel()).reshape(first.shape).to(first.dtype).to("tpu")
            grads = torch.autograd.grad(first, leaves, grad_outputs=weight, allow_unused=True)
            # AOTAutograd gives zeros where eager gives nothing.
            found += [torch.zeros_like(t).cpu() if g is None else g.cpu() for g, t in zip(grads, leaves)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("op", [pytest.param(op, id=op.full_name) for op in op_db])
@pytest.mark.filterwarnings("ignore")
def test_compiled_equals_eager(op: Any, dtype: torch.dtype) -> None:
    if op.name in LEFT_OUT:
        pytest.skip(LEFT_OUT[op.name])
    if dtype not in op.supported_dtypes("cpu"):
        if dtype != torch.float32 or not op.supported_dtypes("cpu"):
            pytest.skip("not supported by the op")
        dtype = sorted(op.supported_dtypes("cpu"), key=str)[0]
    gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    sample = sample_of(op, dtype, gradient)
    if sample is None:
        pytest.skip("no sample")

    def call(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    try:
        expected = outcome(call, sample, gradient)
    except (NotImplementedError, RuntimeError) as error:
        pytest.skip(f"not in eager mode: {str(error).splitlines()[0]}")
    torch._dynamo.reset()
    found = outcome(torch.compile(call), sample, gradient)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-4
        if b.dtype.itemsize == 1 and b.dtype.is_floating_point:
            a, b = a.float(), b.float()
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
