"""Pooling against CPU PyTorch: sample inputs, and combinations of kernel, stride, padding, dilation, ceil_mode."""

import itertools

import comparing
import pytest
import torch
import torch.nn.functional as F
from both_devices import EVERY, NARROW, cases, check, compare_strided_and_out, compare_with_float32

pytestmark = pytest.mark.usefixtures("without_fallback")

OPS = [
    f"nn.functional.{name}"
    for name in [
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool1d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "max_unpool1d",
        "max_unpool2d",
        "max_unpool3d",
    ]
]
# Their random samples come from the device's generator.
FRACTIONAL = ["nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"]


@pytest.mark.parametrize("op, dtype", cases(OPS, EVERY))
def test_samples(op, dtype):
    # The CPU's narrow adaptive_avg_pool3d rounds its sum after every element.
    narrow = dtype in NARROW and op.name == "nn.functional.adaptive_avg_pool3d"
    assert (compare_with_float32 if narrow else comparing.compare)(op, dtype) > 0


@pytest.mark.parametrize("op, dtype", cases(OPS, (torch.float32, torch.float64), backward=True))
def test_gradients(op, dtype):
    comparing.compare_gradients(op, dtype)


def pooled(function, x):
    """Result (with indices where there are any) and the gradient of a weighted sum."""
    x = x.detach().requires_grad_()
    out = function(x)
    first = out[0] if isinstance(out, tuple) else out
    (first.float() * torch.arange(1, first.numel() + 1, device=x.device).reshape(first.shape)).sum().backward()
    return (*(t.detach() for t in (out if isinstance(out, tuple) else (out,))), x.grad)


WINDOWS = [
    (kernel, stride, padding, dilation, ceil)
    for kernel, stride, padding, dilation, ceil in itertools.product(
        (1, 2, 3, (3, 2)), (None, 1, 2, 3), (0, 1), (1, 2), (False, True)
    )
    if padding * 2 <= (kernel if isinstance(kernel, int) else min(kernel))
]


@pytest.mark.parametrize("kernel, stride, padding, dilation, ceil", WINDOWS)
def test_max_pool2d(kernel, stride, padding, dilation, ceil):
    def pool(x):
        return F.max_pool2d(x, kernel, stride, padding, dilation, ceil, return_indices=True)

    check(lambda x: pooled(pool, x), torch.randn(2, 3, 9, 8))


@pytest.mark.parametrize("kernel, stride, padding, ceil", sorted({(k, s, p, c) for k, s, p, d, c in WINDOWS}, key=str))
@pytest.mark.parametrize("include", [False, True])
def test_avg_pool2d(kernel, stride, padding, ceil, include):
    check(
        lambda x: pooled(lambda t: F.avg_pool2d(t, kernel, stride, padding, ceil, include), x), torch.randn(2, 3, 9, 8)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats(dtype):
    x = torch.randn(1, 2, 8, 8).to(dtype)
    check(lambda x: pooled(lambda t: F.max_pool2d(t, 3, 2, 1, return_indices=True), x), x)
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
    check(lambda x: F.adaptive_avg_pool2d(x, 3), x)
    check(lambda x: F.adaptive_avg_pool2d(x, 1), x)


def test_integers():
    x = torch.randint(-50, 50, (2, 3, 8, 8))
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), x)


def test_one_and_three_dimensions():
    check(lambda x: pooled(lambda t: F.max_pool1d(t, 3, 2, 1, return_indices=True), x), torch.randn(2, 3, 11))
    check(
        lambda x: pooled(lambda t: F.max_pool3d(t, (2, 3, 2), 2, (1, 1, 0), return_indices=True), x),
        torch.randn(2, 2, 5, 6, 7),
    )
    check(lambda x: pooled(lambda t: F.avg_pool1d(t, 3, 2, 1), x), torch.randn(2, 3, 11))
    check(lambda x: pooled(lambda t: F.avg_pool3d(t, 2, 2, 1, True, False), x), torch.randn(2, 2, 5, 6, 7))
    check(lambda x: pooled(lambda t: F.avg_pool2d(t, 2, divisor_override=3), x), torch.randn(2, 2, 6, 7))


def test_without_batch():
    check(lambda x: pooled(lambda t: F.max_pool2d(t, 2, return_indices=True), x), torch.randn(3, 6, 7))
    check(lambda x: pooled(lambda t: F.adaptive_avg_pool2d(t, (2, 3)), x), torch.randn(3, 6, 7))
    check(lambda x: pooled(lambda t: F.adaptive_max_pool2d(t, (2, 3), return_indices=True), x), torch.randn(3, 6, 7))
    check(lambda x: pooled(lambda t: F.avg_pool2d(t, 2), x), torch.randn(3, 6, 7))


def test_channels_last():
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    check(lambda x: pooled(lambda t: F.max_pool2d(t, 3, 2, 1, return_indices=True), x), x)
    assert F.max_pool2d(x.to("tpu"), 2).is_contiguous(memory_format=torch.channels_last)


def test_large_windows():
    x = torch.randn(1, 2, 40, 40)
    check(lambda x: pooled(lambda t: F.max_pool2d(t, 13, 1, 6, return_indices=True), x), x)
    check(lambda x: pooled(lambda t: F.max_pool2d(t, 20, 3, 10, return_indices=True), x), x)


def test_ties_nan_and_infinity():
    inf, nan = float("inf"), float("nan")
    check(lambda x: F.max_pool2d(x, 2, 1, return_indices=True), torch.zeros(1, 1, 5, 5))
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 1, 1], x[0, 0, 1, 2], x[0, 0, 4, 4] = nan, nan, inf
    check(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), x)
    check(lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True), x)
    check(lambda x: F.max_pool2d(x, 2, 2, 1, return_indices=True), torch.full((1, 1, 4, 4), -inf))
    check(lambda x: F.avg_pool2d(x, 2), x)
    check(lambda x: F.adaptive_avg_pool2d(x, 4), x)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, (4, 6), (None, 3)])
def test_adaptive(size):
    x = torch.randn(2, 3, 7, 9)
    check(lambda x: pooled(lambda t: F.adaptive_avg_pool2d(t, size), x), x)
    check(lambda x: pooled(lambda t: F.adaptive_max_pool2d(t, size, return_indices=True), x), x)


def test_adaptive_in_one_and_three_dimensions():
    check(lambda x: pooled(lambda t: F.adaptive_avg_pool1d(t, 4), x), torch.randn(2, 3, 7))
    check(lambda x: pooled(lambda t: F.adaptive_max_pool1d(t, 4, return_indices=True), x), torch.randn(2, 3, 7))
    check(lambda x: pooled(lambda t: F.adaptive_avg_pool3d(t, (2, 3, 1)), x), torch.randn(2, 3, 4, 5, 6))
    check(
        lambda x: pooled(lambda t: F.adaptive_max_pool3d(t, (2, 3, 1), return_indices=True), x),
        torch.randn(2, 3, 4, 5, 6),
    )


def test_unpool():
    def there_and_back(x):
        out, indices = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(out, indices, 2, output_size=x.shape)

    check(lambda x: pooled(there_and_back, x), torch.randn(2, 3, 7, 6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_fractional(dtype):
    x, samples = torch.randn(2, 3, 9, 10).to(dtype), torch.rand(2, 3, 2).to(dtype)
    check(lambda x, s: pooled(lambda t: torch._C._nn.fractional_max_pool2d(t, (3, 2), (4, 5), s), x), x, samples)
    x, samples = torch.randn(2, 3, 6, 7, 8).to(dtype), torch.rand(2, 3, 3).to(dtype)
    check(lambda x, s: pooled(lambda t: torch._C._nn.fractional_max_pool3d(t, (3, 2, 2), (2, 5, 3), s), x), x, samples)


@pytest.mark.parametrize("op, dtype", cases(FRACTIONAL, (torch.float32,)))
def test_fractional_shapes(op, dtype):
    for sample in comparing.limited(op.sample_inputs("cpu", dtype)):
        moved = comparing.to_device((sample.input, sample.args, sample.kwargs))
        expected = op.op(sample.input, *sample.args, **sample.kwargs)
        actual = op.op(moved[0], *moved[1], **moved[2])
        for a, e in zip(
            actual if isinstance(actual, tuple) else (actual,), expected if isinstance(expected, tuple) else (expected,)
        ):
            assert a.shape == e.shape and a.dtype == e.dtype


def test_empty_batch():
    x = torch.randn(0, 3, 8, 8)
    check(lambda x: F.max_pool2d(x, 2, return_indices=True), x)
    check(lambda x: F.avg_pool2d(x, 2), x)
    check(lambda x: F.adaptive_avg_pool2d(x, 3), x)


@pytest.mark.parametrize(
    "op, dtype",
    cases(
        [
            "nn.functional.max_pool2d",
            "nn.functional.avg_pool2d",
            "nn.functional.adaptive_avg_pool2d",
            "nn.functional.adaptive_max_pool2d",
        ],
        (torch.float32, torch.int64),
    ),
)
def test_strided_arguments_and_out(op, dtype):
    compare_strided_and_out(op, dtype)
