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


LAYERS = {
    "two_directions_twice": {"num_layers": 2, "bidirectional": True},
    "batch_first_without_bias": {"batch_first": True, "bias": False, "num_layers": 2},
    "dropout_of_nothing": {"num_layers": 2, "dropout": 0.0},
    "projection": {"proj_size": 4, "num_layers": 2, "bidirectional": True},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", LAYERS)
def test_lstm_layers(options, dtype):
    torch.manual_seed(0)
    options = LAYERS[options]
    module = torch.nn.LSTM(5, 6, **options)
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    states = [torch.randn(count, 3, options.get("proj_size", 6)), torch.randn(count, 3, 6)]
    compare(module, [torch.randn(*((3, 7) if options.get("batch_first") else (7, 3)), 5), *states], dtype)


def lstm(num_layers=1, bidirectional=False, **options):
    """An LSTM in f64 as a function of its input, its two states and its parameters; and these, on the device."""
    torch.manual_seed(0)
    module = torch.nn.LSTM(2, 3, num_layers, bidirectional=bidirectional, **options).double()
    states = [torch.randn(num_layers * (2 if bidirectional else 1), 2, 3) for _ in range(2)]
    leaves = [x.detach().double().to("tpu") for x in (torch.randn(3, 2, 2), *states, *module.parameters())]

    def apply(x, h, c, *parameters):
        bias = options.get("bias", True)
        return torch.lstm(x, (h, c), parameters, bias, num_layers, 0.0, True, bidirectional, False)

    return apply, leaves


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2, "bias": False}], ids=str)
def test_lstm_gradients(options):
    apply, leaves = lstm(**options)
    assert torch.autograd.gradcheck(apply, [x.requires_grad_() for x in leaves])


def test_lstm_second_gradients():
    apply, leaves = lstm(bidirectional=True)
    assert torch.autograd.gradgradcheck(apply, [x.requires_grad_() for x in leaves])
    # An input computed from another: the first gradient must not pass through it twice.
    grads = []
    for device in ("cpu", "tpu"):
        x, h, c, *parameters = (t.detach().to(device).requires_grad_() for t in leaves)
        out = torch.stack([r.square().sum() for r in apply(x, h + x.sum(), c * x.mean(), *parameters)]).sum()
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        grads.append([first.detach().cpu(), torch.autograd.grad(first.square().sum(), x)[0].cpu()])
    for actual, expected in zip(grads[1], grads[0]):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("wanted", range(7))
def test_lstm_gradient_of_one_input(wanted):
    apply, leaves = lstm()
    grads = []
    for device in ("cpu", "tpu"):
        moved = [x.detach().to(device) for x in leaves]
        moved[wanted].requires_grad_()
        output, _, c_n = apply(*moved)
        (output.square().sum() + c_n.sum()).backward()
        grads.append(moved[wanted].grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("used", range(3))
def test_lstm_gradient_of_one_result(used):
    apply, leaves = lstm(bidirectional=True)
    grads = []
    for device in ("cpu", "tpu"):
        moved = [x.detach().to(device).requires_grad_() for x in leaves]
        apply(*moved)[used].square().sum().backward()
        grads.append([x.grad.cpu() for x in moved])
    torch.testing.assert_close(grads[1], grads[0])


def test_lstm_under_transforms():
    apply, leaves = lstm()
    cpu = [x.cpu() for x in leaves]

    def loss(x, *rest):
        return apply(x, *rest)[0].square().sum()

    def batched(x, *rest):
        x = x.clone().requires_grad_()
        out = apply(x, *rest)[0]
        seeds = torch.eye(out.numel(), dtype=x.dtype, device=x.device).reshape(-1, *out.shape)
        return torch.autograd.grad(out, x, seeds, is_grads_batched=True)[0]

    transforms = {
        "grad": torch.func.grad(loss),
        "batched": batched,
    }
    for name, transform in transforms.items():
        actual, expected = transform(*leaves).cpu(), transform(*cpu)
        torch.testing.assert_close(actual, expected, msg=lambda text, name=name: f"{name}: {text}")
    # As on CUDA, whose cell is the same op: PyTorch has no forward derivative of it.
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward AD"):
        apply(torch.autograd.forward_ad.make_dual(leaves[0], torch.ones_like(leaves[0])), *leaves[1:])


def test_lstm_exports_as_on_the_cpu():
    torch.manual_seed(0)
    module, x = torch.nn.LSTM(5, 6), torch.randn(4, 3, 5)
    graphs = []
    for device in ("cpu", "tpu"):
        program = torch.export.export(module.to(device), (x.to(device),)).run_decompositions()
        graphs.append([str(node.target) for node in program.graph.nodes if node.op == "call_function"])
    assert graphs[0] == graphs[1] and "aten.lstm.input" not in graphs[1]
    torch.testing.assert_close(program.module()(x.to("tpu"))[0], module(x.to("tpu"))[0], rtol=1e-4, atol=1e-5)


def test_lstm_result_may_change_in_place():
    apply, leaves = lstm()
    grads = []
    for device in ("cpu", "tpu"):
        moved = [x.detach().to(device).requires_grad_() for x in leaves]
        output, h_n, c_n = apply(*moved)
        output.mul_(2)
        h_n.add_(1)
        c_n.zero_()
        (output.square().sum() + h_n.square().sum()).backward()
        grads.append([x.grad.cpu() for x in moved])
    torch.testing.assert_close(grads[1], grads[0])


def test_lstm_without_gradients():
    torch.manual_seed(0)
    module, x = torch.nn.LSTM(5, 6, 2, bidirectional=True), torch.randn(4, 3, 5)
    twin = torch.nn.LSTM(5, 6, 2, bidirectional=True).to("tpu")
    twin.load_state_dict(module.state_dict())
    twin = copy.deepcopy(twin)
    expected = [r.detach() for r in flatten(module(x))]
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            results = flatten(twin(x.to("tpu")))
            assert not any(r.requires_grad for r in results)
            for actual, e in zip(results, expected):
                torch.testing.assert_close(actual.cpu(), e, rtol=1e-4, atol=1e-5)
    # Unbatched, and no sample at all.
    torch.testing.assert_close(twin(x[:, 0].to("tpu"))[0].cpu(), expected[0][:, 0], rtol=1e-4, atol=1e-5)
    assert twin(x[:, :0].to("tpu"))[0].shape == module(x[:, :0])[0].shape


def test_lstm_refuses_what_pytorch_refuses():
    module = torch.nn.LSTM(5, 6).to("tpu")
    with pytest.raises(RuntimeError, match="sequence length"):
        module(torch.ones(0, 3, 5, device="tpu"))
    with pytest.raises(RuntimeError):
        torch.lstm(
            torch.ones(4, 3, 4, device="tpu"),
            [torch.zeros(1, 3, 6, device="tpu")] * 2,
            list(module.parameters()),
            True,
            1,
            0.0,
            True,
            False,
            False,
        )


def test_lstm_under_autocast():
    torch.manual_seed(0)
    module, x = torch.nn.LSTM(5, 6), torch.randn(4, 3, 5)
    expected = module(x)[0].detach()
    module.to("tpu")
    exact = module(x.to("tpu"))[0]
    torch.testing.assert_close(exact.detach().cpu(), expected, rtol=1e-4, atol=1e-5)
    with torch.autocast("tpu", torch.bfloat16):
        lower = module(x.to("tpu"))[0]
    lower.float().sum().backward()
    error = (lower.detach().cpu().float() - expected).abs().max()
    assert 1e-5 < error < 2e-2
    assert all(p.grad.dtype == torch.float32 for p in module.parameters())


def test_lstm_is_few_programs():
    module, x = torch.nn.LSTM(16, 32).to("tpu"), torch.randn(20, 4, 16).to("tpu")
    for _ in range(2):
        module.zero_grad()
        before = torch.tpu.execute_count()
        module(x)[0].square().mean().backward()
    assert torch.tpu.execute_count() - before <= 20


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
