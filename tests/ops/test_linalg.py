"""Factorizations, solvers and Fourier transforms against CPU PyTorch over PyTorch's sample inputs."""

import comparing
import pytest
import torch
from both_devices import cases

pytestmark = [
    pytest.mark.usefixtures("without_fallback"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*"),
    pytest.mark.filterwarnings("ignore:An output with one or more elements was resized"),
]

ALL = (torch.float32, torch.float64, torch.complex64, torch.complex128)
# Ops whose results are unique.
EXACT = [
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "geqrf",
    "linalg.cholesky",
    "linalg.cholesky_ex",
    "linalg.det",
    "linalg.householder_product",
    "linalg.inv",
    "linalg.inv_ex",
    "linalg.lu",
    "linalg.lu_factor",
    "linalg.lu_factor_ex",
    "linalg.lu_solve",
    "linalg.matrix_power",
    "linalg.multi_dot",
    "linalg.qr",
    "linalg.slogdet",
    "linalg.solve",
    "linalg.solve_ex",
    "linalg.solve_triangular",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "logdet",
    "lu",
    "lu_solve",
    "lu_unpack",
    "ormqr",
    "qr",
    "triangular_solve",
]
FOURIER = [f"fft.{i}{f}{n}" for i in ("", "i") for f in ("fft", "rfft", "hfft") for n in ("", "2", "n")]


@pytest.fixture(autouse=True)
def solver_tolerance(monkeypatch):
    # A solution carries the condition number of its matrix.
    monkeypatch.setitem(comparing.TOLERANCES, torch.float32, (2e-4, 2e-4))
    monkeypatch.setitem(comparing.TOLERANCES, torch.complex64, (2e-4, 2e-4))


@pytest.mark.parametrize("op,dtype", cases(EXACT, ALL))
def test_forward(op, dtype):
    assert comparing.compare(op, dtype, limit=6) > 0


@pytest.mark.parametrize("op,dtype", cases(EXACT, (torch.float64, torch.complex128), backward=True))
def test_gradient(op, dtype):
    comparing.compare_gradients(op, dtype, limit=4)


@pytest.mark.parametrize("op,dtype", cases(FOURIER, ALL + (torch.int64,)))
def test_fourier(op, dtype):
    assert comparing.compare(op, dtype, limit=5) > 0


@pytest.mark.parametrize("op,dtype", cases(FOURIER, (torch.float32,), backward=True))
def test_fourier_gradient(op, dtype):
    comparing.compare_gradients(op, dtype, limit=3)


@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
@pytest.mark.parametrize("n", [1, 7, 8, 13])
def test_fourier_norms(norm, n):
    x = torch.randn(3, n, 4)
    for function in (torch.fft.fft, torch.fft.rfft, torch.fft.ifft, torch.fft.ihfft):
        comparing.assert_same(
            function(x.to("tpu"), dim=1, norm=norm), function(x, dim=1, norm=norm), torch.float32, norm
        )
    y = torch.fft.rfft(x, dim=1)
    comparing.assert_same(
        torch.fft.irfft(y.to("tpu"), n=n, dim=1, norm=norm),
        torch.fft.irfft(y, n=n, dim=1, norm=norm),
        torch.float32,
        norm,
    )


def test_stft_round_trip():
    x, window = torch.randn(2, 1000), torch.hann_window(64)
    spectrum = torch.stft(x.to("tpu"), 64, 16, window=window.to("tpu"), return_complex=True)
    comparing.assert_same(spectrum, torch.stft(x, 64, 16, window=window, return_complex=True), torch.complex64, "stft")
    back = torch.istft(spectrum, 64, 16, window=window.to("tpu"), length=1000)
    torch.testing.assert_close(back.cpu(), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 3, 8, 8), (40, 40), (0, 0), (2, 0, 0)], ids=str)
def test_eigenvectors(shape, uplo, dtype):
    a = torch.randn(shape, dtype=dtype)  # only one triangle is read
    w, v = torch.linalg.eigh(a.to("tpu"), UPLO=uplo)
    expected = torch.linalg.eigvalsh(a, UPLO=uplo)
    torch.testing.assert_close(w.cpu(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.linalg.eigvalsh(a.to("tpu"), UPLO=uplo).cpu(), expected, rtol=1e-4, atol=1e-4)
    half = a.tril(-1) if uplo == "L" else a.triu(1)
    whole = half + half.mH + torch.diag_embed(a.diagonal(dim1=-2, dim2=-1).real).to(dtype)
    v = v.cpu()
    torch.testing.assert_close(v @ (w.cpu().unsqueeze(-1) * v.mH), whole, rtol=1e-4, atol=1e-4)


def test_eigenvalue_gradient():
    a = torch.randn(6, 6)
    grads = []
    for device in ("cpu", "tpu"):
        x = a.to(device, copy=True).requires_grad_()
        w, v = torch.linalg.eigh(x + x.mT)
        (w.pow(3).sum() + (v.abs() * w).sum()).backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [63, 64, 65, 130])
def test_factors_over_several_panels(n):
    a = torch.randn(2, n, n + 3, dtype=torch.float64)
    for x in (a, a.mT):
        lu, pivots = torch.linalg.lu_factor(x.to("tpu"))
        expected, expected_pivots = torch.linalg.lu_factor(x)
        torch.testing.assert_close(lu.cpu(), expected)
        torch.testing.assert_close(pivots.cpu(), expected_pivots)
    square = a[..., :n]
    inverse = torch.linalg.inv(square.to("tpu")).cpu()
    torch.testing.assert_close(square @ inverse, torch.eye(n, dtype=a.dtype).expand_as(square), rtol=0, atol=1e-9)


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_solution_reuses_factors_of_either_layout(layout):
    # PyTorch's derivatives look at the strides of A to learn whether A or its transpose was factored.
    a, b = torch.randn(5, 5, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    grads = []
    for device in ("cpu", "tpu"):
        base = a.to(device, copy=True).requires_grad_()
        x = base if layout == "contiguous" else base.mT
        loss = torch.linalg.solve(x, b.to(device)).pow(2).sum() + torch.linalg.det(x) + torch.linalg.slogdet(x)[1]
        loss.backward()
        grads.append(base.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.linalg.cholesky(-x),
        lambda x: torch.cholesky(-x),
        lambda x: torch.linalg.inv(x * 0),
        lambda x: torch.linalg.solve(x * 0, x),
        lambda x: torch.linalg.cholesky(-x.expand(2, 3, 3)),
        lambda x: torch.linalg.solve(x, x[:2]),
        lambda x: torch.linalg.det(x[:2]),
        lambda x: torch.linalg.inv_ex(x * 0, check_errors=True),
        lambda x: torch.linalg.cholesky_ex(-x, check_errors=True),
        lambda x: torch.linalg.lu_factor_ex(x * 0, check_errors=True),
        lambda x: torch.linalg.solve_ex(x * 0, x, check_errors=True),
    ],
)
def test_errors(call):
    x = torch.eye(3)
    with pytest.raises(RuntimeError) as expected:
        call(x)
    # check_errors=True is left to the host's kernel.
    with torch.tpu.fallback("quiet"), pytest.raises(type(expected.value)) as actual:
        call(x.to("tpu"))
    assert str(actual.value) == str(expected.value)


def test_singular_matrices_report_their_pivot():
    x = torch.tensor([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]])
    for function in (torch.linalg.inv_ex, torch.linalg.lu_factor_ex, torch.linalg.cholesky_ex):
        assert function(x.to("tpu")).info.cpu() == function(x).info
    torch.testing.assert_close(torch.linalg.det(x.to("tpu")).cpu(), torch.linalg.det(x))
    # Only one triangle counts.
    y = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 1, -1]))]) + torch.ones(3, 3).triu(1) * 5
    for upper, z in ((False, y), (True, y.mT)):
        info = torch.linalg.cholesky_ex(z.to("tpu"), upper=upper).info
        assert info.tolist() == torch.linalg.cholesky_ex(z, upper=upper).info.tolist() == [0, 3]


@pytest.mark.parametrize("op,dtype", cases(["matrix_exp"], (torch.float64, torch.complex128)))
def test_matrix_exp_samples(op, dtype):
    assert comparing.compare(op, dtype, limit=8) > 0


@pytest.mark.parametrize("op,dtype", cases(["matrix_exp"], (torch.float64, torch.complex128), backward=True))
def test_matrix_exp_gradient(op, dtype):
    comparing.compare_gradients(op, dtype, limit=4)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_matrix_exp_of_every_norm_in_one_batch(dtype):
    norms = torch.tensor([0.0, 1e-30, 1e-3, 0.7, 1.0, 1.0001, 5.0, 40.0]).reshape(-1, 1, 1)
    x = torch.randn(8, 6, 6, dtype=dtype)
    x = x / x.abs().sum(1, keepdim=True).amax(-1, keepdim=True) * norms.to(dtype)
    skew = x - x.mH
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(dtype, dtype)
    for a in (x, skew):
        actual, expected = torch.linalg.matrix_exp(a.to("tpu")), torch.linalg.matrix_exp(a.to(wide))
        scale = expected.abs().amax((-1, -2), keepdim=True)
        limit = 2e-5 if wide != dtype else 1e-12
        assert actual.dtype == dtype
        assert ((actual.cpu() - expected).abs() / scale).max() < limit


def test_matrix_exp_of_what_is_not_finite():
    x = torch.tensor([[[float("nan"), 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]], [[1e30, 0.0], [0.0, 0.0]]])
    y = torch.linalg.matrix_exp(x.to("tpu")).cpu()
    assert y[0].isnan().any() and not y[2].isfinite().all()
    torch.testing.assert_close(y[1], torch.linalg.matrix_exp(x[1]))
    assert torch.linalg.matrix_exp(torch.empty(2, 0, 0, device="tpu")).shape == (2, 0, 0)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize(
    "a,b",
    [
        ((5, 3), (5, 2)),
        ((5, 3), (5,)),
        ((3, 5), (3, 2)),
        ((4, 4), (4, 1)),
        ((2, 6, 3), (2, 6, 4)),
        ((2, 6, 3), (2, 6)),
        ((2, 3, 6), (2, 3)),
    ],
    ids=str,
)
def test_least_squares_of_full_rank(a, b, dtype):
    x, y = torch.randn(a, dtype=dtype), torch.randn(b, dtype=dtype)
    expected = torch.linalg.lstsq(x, y, driver="gels")
    for driver in ("gels", None):
        actual = torch.linalg.lstsq(x.to("tpu"), y.to("tpu"), driver=driver)
        comparing.assert_same(tuple(actual), tuple(expected), dtype, f"lstsq {driver}")


def test_least_squares_of_other_drivers_run_on_the_cpu():
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    x[:, 2] = x[:, 0] + x[:, 1]
    with torch.tpu.fallback("quiet"):
        before = torch.tpu.fallback_count()
        actual = torch.linalg.lstsq(x.to("tpu"), y.to("tpu"), driver="gelsd")
        assert torch.tpu.fallback_count() > before
        with pytest.raises(RuntimeError, match="driver"):
            torch.linalg.lstsq(x.to("tpu"), y.to("tpu"), driver="unknown")
    comparing.assert_same(tuple(actual), tuple(torch.linalg.lstsq(x, y, driver="gelsd")), torch.float32, "gelsd")
