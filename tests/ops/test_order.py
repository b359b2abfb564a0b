"""Sorting and searching against CPU PyTorch: sample inputs of every dtype, ties, NaN, signed zeros, empty tensors."""

import comparing
import pytest
import torch
from both_devices import EVERY, cases, check, compare_strided_and_out

pytestmark = pytest.mark.usefixtures("without_fallback")

# Positions of equal values are PyTorch's own choice in these unless the sort is stable.
TIES = ["sort", "topk", "kthvalue", "mode"]
UNIQUE_ANSWER = ["msort", "median", "nanmedian", "searchsorted", "bucketize", "isin", "quantile", "nanquantile"]


@pytest.mark.parametrize("op, dtype", cases(UNIQUE_ANSWER, EVERY))
def test_samples(op, dtype):
    assert comparing.compare(op, dtype) > 0


@pytest.mark.parametrize("op, dtype", cases(TIES, EVERY))
def test_samples_with_ties(op, dtype):
    torch.manual_seed(0)
    for sample in comparing.limited(op.sample_inputs("cpu", dtype, requires_grad=False)):
        what = f"{op.full_name} {dtype} ({comparing.describe(sample)})"
        moved = comparing.to_device((sample.input, sample.args, sample.kwargs))
        expected = op.op(sample.input, *sample.args, **sample.kwargs)
        values, indices = op.op(moved[0], *moved[1], **moved[2])
        comparing.assert_same(values, expected[0], dtype, what)
        assert indices.shape == expected[1].shape and indices.dtype == torch.int64, what
        named = named_values(sample, indices.cpu(), op.name)
        torch.testing.assert_close(named, expected[0], rtol=0, atol=0, equal_nan=True, msg=what)


def named_values(sample, indices, name):
    """The input's values at `indices`, which lie along the dimension that the call worked on."""
    x = sample.input
    if x.dim() == 0 or indices.numel() == 0:
        return x.expand(indices.shape)
    position = {"sort": 0, "mode": 0, "topk": 1, "kthvalue": 1}[name]
    dim = sample.kwargs.get("dim", sample.args[position] if len(sample.args) > position else -1)
    if indices.dim() < x.dim():
        return x.gather(dim, indices.unsqueeze(dim)).squeeze(dim)
    return x.gather(dim, indices)


@pytest.mark.parametrize(
    "op, dtype",
    cases(["sort", "topk", "kthvalue", "msort", "median", "nanmedian", "quantile"], (torch.float32,), backward=True),
)
def test_gradients(op, dtype):
    # A gradient goes where a tie is broken: only a dtype whose samples have no ties can be compared.
    assert comparing.compare_gradients(op, dtype) > 0


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool]
)
@pytest.mark.parametrize("descending", [False, True])
def test_stable_sort_keeps_the_order_of_ties(dtype, descending):
    x = torch.randint(0, 4, (3, 500)).to(dtype)
    check(lambda t: torch.sort(t, stable=True, descending=descending), x)
    check(lambda t: torch.sort(t, dim=0, stable=True, descending=descending), x)
    check(lambda t: torch.argsort(t, stable=True, descending=descending), x)


@pytest.mark.parametrize("descending", [False, True])
def test_nan_infinity_and_signed_zero(descending):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([0.0, nan, -0.0, inf, 1.0, -nan, -inf, 0.0, nan, -1.0, -0.0])
    check(lambda t: torch.sort(t, stable=True, descending=descending), x)
    values = torch.sort(x.to("tpu"), stable=True, descending=descending).values.cpu()
    assert torch.equal(
        values.signbit()[~values.isnan()], x.sort(stable=True, descending=descending).values.signbit()[~values.isnan()]
    )


def test_topk_takes_nan_for_the_largest():
    x = torch.tensor([[1.0, float("nan"), 3.0, 2.0], [4.0, 5.0, 6.0, 7.0]])
    check(lambda t: torch.topk(t, 2), x)
    check(lambda t: torch.topk(t, 3, largest=False), x)
    check(lambda t: torch.topk(t, 1, dim=0), x)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape, k", [((50000,), 5), ((4, 1000), 200), ((32, 8), 2), ((3, 7), 7), ((5,), 0)])
def test_topk_sizes(shape, k, largest):
    x = torch.randperm(torch.Size(shape).numel()).reshape(shape)
    for dtype in (torch.float32, torch.int64, torch.bfloat16 if x.numel() <= 256 else torch.float64):
        check(lambda t: torch.topk(t, k, largest=largest), x.to(dtype))


def test_median_with_nan_and_without():
    nan = float("nan")
    x = torch.tensor([[3.0, nan, 1.0, 2.0], [4.0, 1.0, 2.0, 3.0], [2.0, nan, nan, nan]])
    for function in (torch.median, torch.nanmedian):
        check(lambda t: function(t), x)
        check(lambda t: function(t, 1), x)
        check(lambda t: function(t, 0, keepdim=True), x)
        check(lambda t: function(t), torch.randint(0, 9, (4, 5)))
        check(lambda t: function(t), torch.tensor(2.5))


def test_mode_takes_the_smallest_of_the_most_frequent():
    check(lambda t: torch.mode(t, 0).values, torch.tensor([3, 1, 3, 1, 2]))
    check(lambda t: torch.mode(t, 1), torch.randint(0, 3, (6, 9)))
    check(lambda t: torch.mode(t, 0, True), torch.randint(0, 3, (6, 9)).float())


@pytest.mark.parametrize("n", [1, 5, 31, 33, 1000])
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(n, right):
    sequence = torch.sort(torch.randn(3, n).round(decimals=1), dim=1).values
    values = torch.randn(3, 17).round(decimals=1)
    values[0, 0], values[1, 1] = float("nan"), float("inf")
    check(lambda s, v: torch.searchsorted(s, v, right=right), sequence, values)
    check(lambda s, v: torch.searchsorted(s[0], v, right=right, out_int32=True), sequence, values)
    check(lambda s, v: torch.bucketize(v, s[1], right=right), sequence, values)
    check(lambda s: torch.searchsorted(s[0], 0.3, right=right), sequence)
    check(lambda s: torch.bucketize(0.3, s[0], right=right), sequence)
    unsorted = torch.randn(3, n)
    check(
        lambda s, v: torch.searchsorted(s, v, sorter=torch.argsort(s, dim=1), side="right" if right else "left"),
        unsorted,
        values,
    )


@pytest.mark.parametrize("tests", [0, 1, 40, 5000])
@pytest.mark.parametrize("invert", [False, True])
def test_isin(tests, invert):
    elements = torch.randint(0, 8000, (300, 5))
    among = torch.randint(0, 8000, (tests,))
    check(lambda e, t: torch.isin(e, t, invert=invert), elements, among)
    check(lambda e, t: torch.isin(e.float(), t, invert=invert), elements, among)
    check(lambda e: torch.isin(e, 7, invert=invert), elements)
    check(lambda e: torch.isin(7, e, invert=invert), elements)


def test_empty():
    x = torch.empty(0, 3)
    check(lambda t: torch.sort(t, 0), x)
    check(lambda t: torch.topk(t, 0, dim=0), x)
    check(lambda t: torch.searchsorted(t, t), torch.empty(2, 0))
    check(lambda t: torch.median(t), torch.empty(0))
    check(lambda t: torch.sort(t), torch.tensor(3.0))
    check(lambda t: torch.kthvalue(t, 1), torch.tensor(3.0))


def test_denormals_are_not_equal():
    x = torch.tensor([3e-42, 0.0, 1e-42, -2e-42, -0.0, 2e-42])
    for dtype in (torch.float32, torch.bfloat16):
        check(lambda t: torch.sort(t, stable=True).indices, x.to(dtype))


@pytest.mark.parametrize(
    "op, dtype", cases(["msort", "searchsorted", "bucketize", "isin", "quantile"], (torch.float32, torch.int64))
)
def test_strided_arguments_and_out(op, dtype):
    compare_strided_and_out(op, dtype)


def test_boundaries_of_two_dimensions_are_refused():
    with pytest.raises(RuntimeError, match=r"boundaries tensor must be 1 dimension, but got dim\(2\)"):
        torch.bucketize(torch.randn(3).to("tpu"), torch.randn(2, 2).to("tpu"))
