"""Runs PyTorch's own sample inputs on the CPU and on the device and compares results, dtypes and errors."""

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

DEVICE = "tpu"
# Samples per op and dtype: every sample is a program or more to compile. TORCH_TPU_TEST_SAMPLES=0 runs them all.
SAMPLE_LIMIT = int(os.environ.get("TORCH_TPU_TEST_SAMPLES", "8"))

BY_NAME: dict[str, list[OpInfo]] = {}
for _op in op_db:
    BY_NAME.setdefault(_op.name, []).append(_op)

TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float32: (2e-5, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (2e-5, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}


def to_device(tree: Any, device: str = DEVICE) -> Any:
    """Copies every tensor of a nest of arguments; a device argument is replaced."""

    def move(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.detach().to(device)
        if isinstance(x, torch.device) or x == "cpu":
            return torch.device(device)
        return x

    return tree_map(move, tree)


def limited(samples: Iterator[SampleInput], limit: int = SAMPLE_LIMIT) -> list[SampleInput]:
    """At most `limit` samples, spread over all of them."""
    everything = list(samples)
    if limit <= 0 or len(everything) <= limit:
        return everything
    step = len(everything) / limit
    return [everything[int(i * step)] for i in range(limit)]


def assert_same(actual: Any, expected: Any, dtype: torch.dtype, what: str) -> None:
    """Structure, shapes, dtypes and values; NaN equals NaN."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), what
        assert actual.device.type == DEVICE, f"{what}: result is on {actual.device}"
        assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, expected {expected.dtype}"
        rtol, atol = TOLERANCES.get(dtype, TOLERANCES.get(expected.dtype, (0, 0)))
        if not (expected.dtype.is_floating_point or expected.dtype.is_complex):
            rtol, atol = 0, 0
        torch.testing.assert_close(
            actual.cpu(), expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}"
        )
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), what
        for a, e in zip(actual, expected):
            assert_same(a, e, dtype, what)
    else:
        assert actual == expected or (actual != actual and expected != expected), (
            f"{what}: {actual}, expected {expected}"
        )


def describe(sample: SampleInput) -> str:
    def short(x: Any) -> Any:
        return f"{x.dtype}{list(x.shape)}" if isinstance(x, torch.Tensor) else x

    return f"{tree_map(short, sample.input)}, {tree_map(short, sample.args)}, {tree_map(short, sample.kwargs)}"


def compare(op: OpInfo, dtype: torch.dtype, limit: int = SAMPLE_LIMIT) -> int:
    """Runs the samples of one op and dtype on both devices; the number of samples compared."""
    count = 0
    torch.manual_seed(0)
    for sample in limited(op.sample_inputs("cpu", dtype, requires_grad=False), limit):
        what = f"{op.full_name} {dtype} ({describe(sample)})"
        moved = to_device((sample.input, sample.args, sample.kwargs))
        expected = op.op(sample.input, *sample.args, **sample.kwargs)
        actual = op.op(moved[0], *moved[1], **moved[2])
        assert_same(actual, expected, dtype, what)
        count += 1
    return count


def compare_gradients(op: OpInfo, dtype: torch.dtype, limit: int = SAMPLE_LIMIT) -> int:
    """Gradients of the first result, weighted, with respect to every input that can have one."""
    count = 0
    torch.manual_seed(0)
    for sample in limited(op.sample_inputs("cpu", dtype, requires_grad=True), limit):
        grads = []
        for device in ("cpu", DEVICE):
            leaves: list[torch.Tensor] = []

            def move(x: Any, device: str = device, leaves: list[torch.Tensor] = leaves) -> Any:
                if isinstance(x, torch.Tensor):
                    y = x.detach().to(device)
                    if x.requires_grad:
                        leaves.append(y.requires_grad_())
                    return y
                return torch.device(device) if isinstance(x, torch.device) else x

            args, kwargs = tree_map(move, (sample.input, *sample.args)), tree_map(move, sample.kwargs)
            result = op.op(*args, **kwargs)
            result = sample.output_process_fn_grad(result)
            first = result[0] if isinstance(result, (tuple, list)) else result
            if not isinstance(first, torch.Tensor) or not first.requires_grad:
                break
            weight = torch.linspace(0.5, 1.5, first.numel()).reshape(first.shape).to(first.dtype).to(device)
            grads.append(torch.autograd.grad(first, leaves, grad_outputs=weight, allow_unused=True))
        if len(grads) == 2:
            for actual, expected in zip(grads[1], grads[0]):
                if expected is not None:
                    assert_same(actual, expected, dtype, f"gradient of {op.full_name} {dtype} ({describe(sample)})")
                    count += 1
    return count


def compare_in_place(op: OpInfo, dtype: torch.dtype, limit: int = 4) -> int:
    """The in-place form on a copy of the input; samples that PyTorch refuses on the CPU must be refused here."""
    if op.inplace_variant is None:
        return 0
    count = 0
    torch.manual_seed(0)
    for sample in limited(op.sample_inputs("cpu", dtype, requires_grad=False), limit):
        if not isinstance(sample.input, torch.Tensor) or sample.broadcasts_input:
            continue
        what = f"{op.full_name}_ {dtype} ({describe(sample)})"
        moved = to_device((sample.input, sample.args, sample.kwargs))
        target = sample.input.clone()
        try:
            expected = op.inplace_variant(target, *sample.args, **sample.kwargs)
        except Exception as error:
            try:
                op.inplace_variant(moved[0], *moved[1], **moved[2])
            except type(error):
                continue
            raise AssertionError(f"{what}: CPU raises {error}") from None
        actual = op.inplace_variant(moved[0], *moved[1], **moved[2])
        assert actual is moved[0], what
        assert_same(actual, expected, dtype, what)
        count += 1
    return count
