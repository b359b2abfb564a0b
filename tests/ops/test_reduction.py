"""Reductions, scans and creation ops against CPU PyTorch over PyTorch's sample inputs."""

import comparing
import pytest
import torch

pytestmark = pytest.mark.usefixtures("without_fallback")

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
COMPLEX = (torch.complex64,)

REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "aminmax",
    "max",
    "min",
    "argmax",
    "argmin",
    "any",
    "all",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "nansum",
    "nanmean",
    "count_nonzero",
    "linalg.vector_norm",
    "logsumexp",
    "trace",
    "renorm",
    "dist",
    "histc",
]
SCANS = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]
CREATION = [
    "tril",
    "triu",
    "tril_indices",
    "triu_indices",
    "arange",
    "linspace",
    "logspace",
    "eye",
    "full",
    "full_like",
    "zeros",
    "ones",
    "zeros_like",
    "ones_like",
    "scalar_tensor",
    "new_full",
    "new_zeros",
    "new_ones",
]


def cases(names: list[str], dtypes: tuple[torch.dtype, ...]) -> list:
    found = []
    for name in names:
        for op in comparing.BY_NAME[name]:
            found += [
                pytest.param(op, d, id=f"{op.full_name}-{str(d)[6:]}") for d in dtypes if op.supports_dtype(d, "cpu")
            ]
    return found


@pytest.mark.filterwarnings("ignore:.*degrees of freedom.*")
@pytest.mark.parametrize("op,dtype", cases(REDUCTIONS + CREATION, FLOATS + INTEGERS + COMPLEX))
def test_reduction(op, dtype):
    if op.name == "histc" and dtype in (torch.bfloat16, torch.float16):
        pytest.skip("CPU PyTorch finds bins in the narrow dtype, so that elements near an edge land in a neighbour")
    assert comparing.compare(op, dtype) > 0


@pytest.mark.parametrize("op,dtype", cases(SCANS, FLOATS + INTEGERS))
def test_scan(op, dtype):
    assert comparing.compare(op, dtype) > 0


@pytest.mark.parametrize("op,dtype", cases(["cumsum", "cumprod"], COMPLEX))
def test_complex_scan(op, dtype):
    assert comparing.compare(op, dtype) > 0


def test_complex_logcumsumexp():
    # The imaginary part is defined up to multiples of 2 pi; which one depends on the order of additions.
    x = torch.randn(7, 5, dtype=torch.complex64)
    actual, expected = torch.logcumsumexp(x.to("tpu"), 0).cpu(), torch.logcumsumexp(x, 0)
    torch.testing.assert_close(actual.exp(), expected.exp(), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom.*")
@pytest.mark.parametrize("op,dtype", cases(REDUCTIONS + SCANS + ["tril", "triu"], (torch.float32,)))
def test_gradients(op, dtype, monkeypatch):
    if op.name == "logcumsumexp":
        # Samples of 1e4 lose four digits in exp; CPU PyTorch is off by as much from its own double result.
        monkeypatch.setitem(comparing.TOLERANCES, dtype, (2e-3, 1e-2))
    if dtype not in op.supported_backward_dtypes("cpu"):
        pytest.skip("not differentiable for this dtype")
    comparing.compare_gradients(op, dtype, limit=6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "amax", "amin", "sum", "cummax", "cummin"])
def test_ties_and_nan(name, dtype):
    if dtype == torch.bool and name in ("argmax", "argmin"):
        pytest.skip("not implemented for bool by PyTorch")
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, float("nan"), 5.0, float("nan")], [-1.0, -1.0, -1.0, -1.0]])
    if not dtype.is_floating_point:
        x = x.nan_to_num(1).abs()
    x = x.to(dtype)
    function = getattr(torch, name)
    for dim in (0, 1, -1):
        comparing.assert_same(
            tuple_of(function(x.to("tpu"), dim)), tuple_of(function(x, dim)), dtype, f"{name} dim {dim}"
        )


def tuple_of(x):
    return tuple(x) if isinstance(x, tuple) else x


def test_without_elements():
    x = torch.zeros(0, 3)
    for name in ("sum", "prod", "mean", "any", "all", "nansum", "logsumexp", "cumsum", "var"):
        function = getattr(torch, name)
        comparing.assert_same(function(x.to("tpu"), 0), function(x, 0), x.dtype, name)
    with pytest.raises((IndexError, RuntimeError)):
        x.to("tpu").amax(0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_floats_accumulate_in_f32(dtype):
    x = torch.rand(32, 32, 32).to(dtype)  # sums stay below f16's largest number
    exact = x.double()
    for dims in ((0, 2), (1,), (0, 1, 2)):
        for function in (torch.sum, torch.mean):
            error = (function(x.to("tpu"), dims).cpu().double() - function(exact, dims)).abs() / function(exact, dims)
            assert error.max() < 2 ** (-8 if dtype == torch.bfloat16 else -10)


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 4097])
def test_scan_lengths(size):
    x = torch.randint(-5, 5, (size, 2))
    comparing.assert_same(x.to("tpu").cumsum(0), x.cumsum(0), x.dtype, f"cumsum of {size}")
    values, indices = x.to("tpu").cummax(0)
    comparing.assert_same((values, indices), tuple(x.cummax(0)), x.dtype, f"cummax of {size}")


def test_mean_of_ones_is_one():
    # A product with the reciprocal of 41 would not be.
    for n in (41, 47, 49, 55, 61):
        assert torch.ones(n, device="tpu").mean().item() == 1.0


def test_large_sums_stay_accurate():
    x = torch.rand(1 << 20)
    for dim_shape in ((1 << 20,), (1 << 10, 1 << 10)):
        y = x.reshape(dim_shape)
        torch.testing.assert_close(y.to("tpu").sum().cpu(), y.double().sum().float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("op,dtype", cases(["histogram", "histogramdd"], (torch.float32, torch.float64)))
def test_histograms_with_edges(op, dtype):
    assert comparing.compare(op, dtype, limit=12) > 0


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram_of_values_on_and_outside_of_edges(weighted, density):
    x = torch.tensor([0.0, 0.1, 0.2, 0.25, 0.5, 0.75, 1.0, 1.1, -0.1, float("nan")])
    weight = torch.rand(10) if weighted else None
    arguments = [
        {"bins": 4, "range": (0.0, 1.0)},
        {"bins": torch.tensor([0.0, 0.1, 0.2, 1.0])},
        {"bins": 10, "range": (1.0, 1.0)},
    ]
    for kwargs in arguments:
        expected = torch.histogram(x, weight=weight, density=density, **kwargs)
        moved = comparing.to_device((x, {"weight": weight, **kwargs}))
        actual = torch.histogram(moved[0], density=density, **moved[1])
        comparing.assert_same(tuple(actual), tuple(expected), torch.float32, str(kwargs))


def test_histogram_of_its_own_range():
    for x in (torch.randn(1000), torch.ones(3), torch.empty(0)):
        actual, expected = torch.histogram(x.to("tpu"), 13), torch.histogram(x, 13)
        comparing.assert_same(tuple(actual), tuple(expected), torch.float32, "histogram")
    with pytest.raises(RuntimeError, match="not finite"):
        torch.histogram(torch.tensor([1.0, float("inf")], device="tpu"), 3).hist.cpu()
    with pytest.raises(RuntimeError, match="min should not exceed max"):
        torch.histogram(torch.ones(3, device="tpu"), 3, range=(2.0, 1.0))
