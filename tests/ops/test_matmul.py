"""Matrix products against CPU PyTorch."""

import comparing
import pytest
import torch
import torch.nn.functional as F
from both_devices import cases, compare_with_float32

pytestmark = pytest.mark.usefixtures("without_fallback")

PRODUCTS = [
    "mm",
    "bmm",
    "mv",
    "matmul",
    "__rmatmul__",
    "addmm",
    "addmv",
    "addr",
    "addbmm",
    "baddbmm",
    "dot",
    "vdot",
    "inner",
    "outer",
    "ger",
    "einsum",
    "tensordot",
    "kron",
    "linalg.vecdot",
    "nn.functional.linear",
    "nn.functional.bilinear",
    "addmm.decomposed",
    "chain_matmul",
    "linalg.multi_dot",
    "cov",
    "corrcoef",
]
PRODUCTS = [name for name in PRODUCTS if name in comparing.BY_NAME]


@pytest.fixture(autouse=True)
def product_tolerance(monkeypatch):
    monkeypatch.setitem(comparing.TOLERANCES, torch.float32, (1e-4, 1e-4))
    monkeypatch.setitem(comparing.TOLERANCES, torch.complex64, (1e-4, 1e-4))
    monkeypatch.setitem(comparing.TOLERANCES, torch.bfloat16, (2e-2, 2e-2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "op,dtype", cases(PRODUCTS, (torch.float32, torch.float64, torch.complex64, torch.int64, torch.uint8))
)
def test_forward(op, dtype):
    assert comparing.compare(op, dtype, limit=6) > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op,dtype", cases(PRODUCTS, (torch.bfloat16, torch.float16)))
def test_narrow_forward(op, dtype, monkeypatch):
    # PyTorch composes these of several ops, each of which rounds.
    if op.name in ("addr", "chain_matmul", "corrcoef", "cov", "linalg.multi_dot", "linalg.vecdot"):
        monkeypatch.setitem(comparing.TOLERANCES, torch.bfloat16, (3e-2, 6e-2))
        monkeypatch.setitem(comparing.TOLERANCES, torch.float16, (6e-3, 1e-2))
    # The dtype of cov follows its weights.
    assert (comparing.compare if op.name == "cov" else compare_with_float32)(op, dtype) > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op,dtype", cases(PRODUCTS, (torch.float32, torch.complex64), backward=True))
def test_gradient(op, dtype):
    comparing.compare_gradients(op, dtype, limit=5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_products_accumulate_in_float32(dtype):
    a, b = torch.randn(8, 3000).to(dtype), torch.randn(3000, 8).to(dtype)
    exact = (a.double() @ b.double()).to(dtype)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close((a.to("tpu") @ b.to("tpu")).cpu(), exact, rtol=tolerance, atol=tolerance * 50)


@pytest.mark.parametrize("k", [0, 1])
def test_empty_products(k):
    for shape in ((0, k, 3), (2, k, 0), (2, k, 3)):
        a, b, c = torch.randn(shape[0], k), torch.randn(k, shape[2]), torch.randn(shape[0], shape[2])
        torch.testing.assert_close((a.to("tpu") @ b.to("tpu")).cpu(), a @ b)
        torch.testing.assert_close(
            torch.addmm(c.to("tpu"), a.to("tpu"), b.to("tpu"), beta=2).cpu(), torch.addmm(c, a, b, beta=2)
        )


def test_beta_of_zero_ignores_self():
    c = torch.full((2, 2), float("nan"), device="tpu")
    a = torch.ones(2, 2, device="tpu")
    assert torch.addmm(c, a, a, beta=0).cpu().tolist() == [[2, 2], [2, 2]]
    assert torch.baddbmm(c[None], a[None], a[None], beta=0).cpu().tolist() == [[[2, 2], [2, 2]]]


def test_scalars_do_not_compile():
    c, a = torch.randn(4, 4, device="tpu"), torch.randn(4, 4, device="tpu")
    torch.addmm(c, a, a, beta=0.3, alpha=0.7)
    before = torch.tpu.compile_count()
    for i in range(20):
        torch.addmm(c, a, a, beta=0.31 + i, alpha=0.71 + i)
    assert torch.tpu.compile_count() == before


def test_transposed_and_strided_operands():
    a, b = torch.randn(6, 9), torch.randn(12, 10)
    expected = a.t() @ b[::2, 1::3]
    torch.testing.assert_close((a.to("tpu").t() @ b.to("tpu")[::2, 1::3]).cpu(), expected)
    out = torch.zeros(4, 9, device="tpu").t()
    torch.mm(a.to("tpu").t(), b.to("tpu")[::2, :4], out=out)
    torch.testing.assert_close(out.cpu(), a.t() @ b[::2, :4])


def test_linear_with_and_without_bias():
    x, w, b = torch.randn(2, 3, 5), torch.randn(4, 5), torch.randn(4)
    for bias in (None, b):
        grads = []
        for device in ("cpu", "tpu"):
            leaves = [
                t.detach().clone().to(device).requires_grad_() for t in (x, w) + (() if bias is None else (bias,))
            ]
            F.linear(*leaves).sin().sum().backward()
            grads.append([t.grad.cpu() for t in leaves])
        torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x @ x,
        lambda x: torch.mm(x, x.t().double()),
        lambda x: torch.bmm(x, x),
        lambda x: torch.mv(x, x),
        lambda x: torch.mv(x, x[0].double()),
        lambda x: torch.bmm(x[None], x.t()[None].double()),
        lambda x: torch.addbmm(x, x[None], x.t()[None]),
        lambda x: torch.baddbmm(x[None], x[None], x.t()[None].double()),
        lambda x: F.linear(x, x.bfloat16()),
        lambda x: torch.addmm(x, x, x.t()),
        lambda x: torch.dot(x[0], x[0, :1]),
    ],
)
def test_errors(call):
    x = torch.randn(2, 3)
    with pytest.raises(RuntimeError) as expected:
        call(x)
    with pytest.raises(type(expected.value)) as actual:
        call(x.to("tpu"))
    assert str(actual.value) == str(expected.value)
