"""Convolutions and their gradients against CPU PyTorch."""

import random

import comparing
import pytest
import torch
import torch.nn.functional as F
from both_devices import cases, compare_with_float32

pytestmark = pytest.mark.usefixtures("without_fallback")

NAMES = [f"nn.functional.conv{t}{d}d" for t in ("", "_transpose") for d in (1, 2, 3)]


@pytest.fixture(autouse=True)
def tolerance(monkeypatch):
    monkeypatch.setitem(comparing.TOLERANCES, torch.float32, (1e-4, 1e-4))
    monkeypatch.setitem(comparing.TOLERANCES, torch.bfloat16, (2e-2, 3e-2))


@pytest.mark.parametrize("op,dtype", cases(NAMES, (torch.float32, torch.float64)))
def test_forward(op, dtype):
    assert comparing.compare(op, dtype, limit=6) > 0


@pytest.mark.parametrize("op,dtype", cases(NAMES, (torch.bfloat16,)))
def test_narrow_forward(op, dtype):
    assert compare_with_float32(op, dtype) > 0


@pytest.mark.parametrize("op,dtype", cases(NAMES, (torch.float32,), backward=True))
def test_gradient(op, dtype):
    comparing.compare_gradients(op, dtype, limit=6)


GEOMETRIES = [
    # channels in, channels out, groups, kernel, stride, padding, dilation
    (4, 6, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
    (4, 6, 2, (3, 2), (2, 1), (1, 0), (1, 2)),
    (4, 4, 4, (3, 3), (2, 2), (1, 1), (1, 1)),
    (4, 8, 4, (5, 5), (3, 2), (2, 2), (1, 1)),
    (3, 8, 1, (7, 7), (2, 2), (3, 3), (1, 1)),
    (4, 6, 1, (1, 1), (2, 2), (0, 0), (1, 1)),
    (4, 6, 2, (3, 3), (3, 3), (0, 0), (2, 2)),
    (4, 6, 1, (2, 2), (1, 1), (4, 3), (1, 1)),
]


def outputs_and_gradients(function, tensors, device, dtype):
    leaves = [t.detach().to(dtype).to(device, copy=True).requires_grad_() for t in tensors]
    y = function(*leaves)
    y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype).to(device))
    return [y.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)]


def compare_devices(function, tensors, dtype=torch.float32):
    actual = outputs_and_gradients(function, tensors, "tpu", dtype)
    reference = torch.float64 if dtype == torch.float64 else torch.float32
    rounded = [t.to(dtype) for t in tensors]
    expected = outputs_and_gradients(function, rounded, "cpu", reference)
    scale = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-9}[dtype]
    for a, e in zip(actual, expected):
        assert a.dtype == dtype
        bound = scale * max(1.0, float(e.abs().max())) if e.numel() else 0
        torch.testing.assert_close(a.to(reference), e, rtol=scale, atol=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_geometry(geometry, dtype):
    cin, cout, groups, kernel, stride, padding, dilation = geometry
    tensors = [torch.randn(2, cin, 13, 12), torch.randn(cout, cin // groups, *kernel), torch.randn(cout)]
    compare_devices(lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, groups), tensors, dtype)


@pytest.mark.parametrize("output_padding", [(0, 0), (1, 0)])
@pytest.mark.parametrize("geometry", GEOMETRIES[:-1], ids=str)
def test_transposed_geometry(geometry, output_padding):
    cin, cout, groups, kernel, stride, padding, dilation = geometry
    if output_padding[0] >= max(stride[0], dilation[0]):
        pytest.skip("PyTorch refuses such an output padding")
    tensors = [torch.randn(2, cin, 6, 7), torch.randn(cin, cout // groups, *kernel), torch.randn(cout)]
    compare_devices(
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride, padding, output_padding, groups, dilation), tensors
    )


@pytest.mark.parametrize("dims", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_other_ranks(dims, transposed):
    x, kernel = torch.randn(2, 4, *(7, 6, 5)[:dims]), (3, 2, 3)[:dims]
    if transposed:
        function = getattr(F, f"conv_transpose{dims}d")
        tensors = [x, torch.randn(4, 3, *kernel), torch.randn(6)]
        compare_devices(lambda x, w, b: function(x, w, b, 2, 1, 1, 2, 1), tensors)
    else:
        function = getattr(F, f"conv{dims}d")
        tensors = [x, torch.randn(6, 2, *kernel), torch.randn(6)]
        compare_devices(lambda x, w, b: function(x, w, b, 2, 1, 1, 2), tensors)


def random_call(rng):
    """A convolution of any rank, grouping and geometry; None where PyTorch refuses it."""
    dims, transposed = rng.choice([1, 2, 2, 3]), rng.random() < 0.4
    groups, cin, cout = rng.choice([(1, 3, 2), (1, 1, 4), (2, 2, 3), (3, 1, 1), (5, 1, 2), (33, 1, 1)])

    def pick(*values):
        return [rng.choice(values) for _ in range(dims)]

    kernel, stride, padding, dilation = pick(1, 2, 3, 4), pick(1, 1, 2, 3), pick(0, 1, 2, 3), pick(1, 1, 2, 3)
    output_padding = [rng.randrange(max(s, d)) if transposed else 0 for s, d in zip(stride, dilation)]
    x = torch.randn(rng.choice([1, 2]), cin * groups, *pick(5, 7, 8, 11))
    weight = torch.randn(*((cin * groups, cout) if transposed else (cout * groups, cin)), *kernel)

    def call(x, w, b):
        return torch.convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)

    tensors = [x, weight, torch.randn(cout * groups)]
    try:
        call(*tensors)
    except RuntimeError:
        return None
    return call, tensors


@pytest.mark.parametrize("seed", range(4))
def test_random_geometry(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    calls = [call for call in (random_call(rng) for _ in range(24)) if call is not None]
    assert len(calls) >= 12
    for call, tensors in calls:
        compare_devices(call, tensors, rng.choice([torch.float32, torch.bfloat16, torch.float64]))


def test_many_groups_and_large_planes():
    tensors = [torch.randn(2, 80, 5, 5), torch.randn(80, 2, 3, 3), torch.randn(80)]
    compare_devices(lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=40), tensors)
    tensors = [torch.randn(2, 5, 48, 50), torch.randn(7, 5, 1, 1), torch.randn(7)]
    for stride in (1, 2):
        compare_devices(lambda x, w, b, stride=stride: F.conv2d(x, w, b, stride), tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_other_dtypes(dtype):
    tensors = [torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3), torch.randn(6)]
    compare_devices(lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 2), tensors, dtype)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_named_padding(padding):
    tensors = [torch.randn(2, 3, 8, 9), torch.randn(4, 3, 4, 3), torch.randn(4)]
    compare_devices(lambda x, w, b: F.conv2d(x, w, b, 1, padding, 2), tensors)


def test_no_bias_no_batch_no_input_gradient():
    x, w = torch.randn(3, 8, 8), torch.randn(4, 3, 3, 3)
    compare_devices(lambda x, w: F.conv2d(x, w), [x, w])
    weight = w.to("tpu", copy=True).requires_grad_()
    F.conv2d(x.to("tpu"), weight).sum().backward()
    expected = w.clone().requires_grad_()
    F.conv2d(x, expected).sum().backward()
    torch.testing.assert_close(weight.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-4)


def test_channels_last_is_kept():
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    expected = conv(x)
    actual = conv.to("tpu")(x.to("tpu"))
    assert actual.is_contiguous(memory_format=torch.channels_last) == expected.is_contiguous(
        memory_format=torch.channels_last
    )
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_double_backward():
    results = []
    x0, w0 = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    for device in ("cpu", "tpu"):
        x, w = (t.to(device, copy=True).requires_grad_() for t in (x0, w0))
        (g,) = torch.autograd.grad(F.conv2d(x, w).pow(3).sum(), x, create_graph=True)
        results.append([t.cpu() for t in torch.autograd.grad(g.pow(2).sum(), (x, w))])
    for actual, expected in zip(results[1], results[0]):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 3, 8, 8)], ids=str)
def test_empty_batch(shape):
    tensors = [torch.randn(shape), torch.randn(4, 3, 3, 3), torch.randn(4)]
    compare_devices(lambda x, w, b: F.conv2d(x, w, b), tensors)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.conv2d(x, torch.randn(4, 5, 3, 3, device=x.device)),
        lambda x: F.conv2d(x, torch.randn(4, 3, 9, 9, device=x.device)),
        lambda x: F.conv2d(x, torch.randn(4, 3, 3, 3, device=x.device), torch.randn(3, device=x.device)),
        lambda x: F.conv2d(x, torch.randn(4, 3, 3, 3, device=x.device), stride=0),
        lambda x: F.conv2d(x, torch.randn(4, 3, 3, 3, device=x.device), padding=-1),
    ],
)
def test_errors(call):
    x = torch.randn(2, 3, 8, 8)
    with pytest.raises(RuntimeError) as expected:
        call(x)
    with pytest.raises(type(expected.value)) as actual:
        call(x.to("tpu"))
    assert str(actual.value) == str(expected.value)
