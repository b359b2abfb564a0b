"""LSTM, GRU and plain RNN modules and cells against CPU PyTorch."""

import copy

import pytest
import torch

pytestmark = pytest.mark.usefixtures("without_fallback")


def flatten(tree):
    return [tree] if isinstance(tree, torch.Tensor) else [x for part in tree for x in flatten(part)]


def run(module, inputs, device, dtype):
    module = copy.deepcopy(module).to(dtype).to(device)
    leaves = [x.to(dtype).to(device, copy=True).requires_grad_() for x in inputs]
    state = tuple(leaves[1:]) if len(leaves) == 3 else leaves[1] if len(leaves) == 2 else None
    results = flatten(module(leaves[0], state))
    sum(
        (r * torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape).to(dtype).to(device)).sum() for r in results
    ).backward()
    return [x.detach().cpu() for x in results], [x.grad.cpu() for x in (*leaves, *module.parameters())]


def compare(module, inputs, dtype):
    actual = run(module, inputs, "tpu", dtype)
    rounded = copy.deepcopy(module).to(dtype).float()
    expected = run(rounded, [x.to(dtype) for x in inputs], "cpu", torch.float32)
    scale = 1e-4 if dtype == torch.float32 else 5e-2
    for a, e in zip(actual[0] + actual[1], expected[0] + expected[1]):
        assert a.dtype == dtype
        torch.testing.assert_close(a.float(), e, rtol=scale, atol=scale * max(1.0, float(e.abs().max())))


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@DTYPES
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_cells(kind, bias, dtype):
    torch.manual_seed(0)
    cell = getattr(torch.nn, kind + "Cell")(5, 6, bias=bias)
    states = [torch.randn(3, 6) for _ in range(2 if kind == "LSTM" else 1)]
    compare(cell, [torch.randn(3, 5), *states], dtype)


OPTIONS = {
    "plain": {},
    "stacked": {"num_layers": 2},
    "bidirectional": {"bidirectional": True, "batch_first": True},
    "no_bias": {"bias": False},
}


@DTYPES
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_modules(kind, options, dtype):
    if dtype == torch.bfloat16 and options != "plain":
        dtype = torch.float16
    torch.manual_seed(0)
    options = OPTIONS[options]
    module = getattr(torch.nn, kind)(5, 6, **options)
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    states = [torch.randn(layers, 3, 6) for _ in range(2 if kind == "LSTM" else 1)]
    compare(module, [torch.randn(*((3, 4) if options.get("batch_first") else (4, 3)), 5), *states], dtype)


def test_relu_and_projection():
    torch.manual_seed(0)
    compare(torch.nn.RNN(5, 6, nonlinearity="relu"), [torch.randn(4, 3, 5)], torch.float32)
    compare(torch.nn.LSTM(5, 6, proj_size=4), [torch.randn(4, 3, 5)], torch.float32)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences(kind):
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(5, 6, bidirectional=True)
    x, lengths = torch.randn(4, 3, 5), torch.tensor([4, 2, 3])
    results = []
    for device in ("cpu", "tpu"):
        m = copy.deepcopy(module).to(device)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x.to(device), lengths, enforce_sorted=False)
        out, state = m(packed)
        padded, sizes = torch.nn.utils.rnn.pad_packed_sequence(out)
        padded.pow(2).sum().backward()
        results.append([padded.detach().cpu(), *(s.detach().cpu() for s in flatten(state)), sizes])
        results[-1] += [p.grad.cpu() for p in m.parameters()]
    for actual, expected in zip(results[1], results[0]):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_dropout_between_layers():
    torch.manual_seed(0)
    module = torch.nn.LSTM(5, 6, num_layers=2, dropout=0.5).to("tpu")
    x = torch.randn(4, 3, 5, device="tpu")
    assert not torch.equal(module(x)[0].cpu(), module(x)[0].cpu())
    module.eval()
    assert torch.equal(module(x)[0].cpu(), module(x)[0].cpu())
