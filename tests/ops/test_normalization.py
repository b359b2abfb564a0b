"""Normalizations and softmax families against CPU PyTorch."""

import copy

import comparing
import pytest
import torch
import torch.nn.functional as F
from both_devices import cases, compare_with_float32

pytestmark = pytest.mark.usefixtures("without_fallback")

NAMES = [
    "nn.functional.batch_norm",
    "nn.functional.instance_norm",
    "nn.functional.layer_norm",
    "nn.functional.group_norm",
    "nn.functional.rms_norm",
    "nn.functional.local_response_norm",
    "nn.functional.normalize",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "native_layer_norm",
    "_batch_norm_with_update",
    "softmax",
    "log_softmax",
    "nn.functional.softmin",
    "masked.softmax",
    "masked.log_softmax",
    "nn.functional.gumbel_softmax",
]
NAMES = [n for n in NAMES if n in comparing.BY_NAME and "gumbel" not in n]


@pytest.fixture(autouse=True)
def tolerance(monkeypatch):
    monkeypatch.setitem(comparing.TOLERANCES, torch.float32, (5e-5, 2e-5))
    monkeypatch.setitem(comparing.TOLERANCES, torch.bfloat16, (2e-2, 2e-2))


@pytest.mark.parametrize("op,dtype", cases(NAMES, (torch.float32, torch.float64)))
def test_forward(op, dtype):
    assert comparing.compare(op, dtype, limit=6) > 0


# The native forms also return statistics, which accelerators keep in float32 and the CPU rounds to the input's dtype.
@pytest.mark.parametrize(
    "op,dtype", cases([n for n in NAMES if "native" not in n and "update" not in n], (torch.bfloat16,))
)
def test_narrow_forward(op, dtype):
    assert compare_with_float32(op, dtype) > 0


@pytest.mark.parametrize("op,dtype", cases(NAMES, (torch.float32,), backward=True))
def test_gradient(op, dtype, monkeypatch):
    monkeypatch.setitem(comparing.TOLERANCES, torch.float32, (2e-4, 2e-4))
    comparing.compare_gradients(op, dtype, limit=5)


def train(module, inputs, device, dtype):
    module = copy.deepcopy(module).to(device)
    results = []
    for x in inputs:
        x = x.to(dtype).to(device, copy=True).requires_grad_()
        y = module(x)
        y.float().pow(2).mean().backward()
        results += [y.detach().cpu(), x.grad.cpu()]
    module.eval()
    results.append(module(inputs[0].to(dtype).to(device)).detach().cpu())
    results += [p.grad.cpu() for p in module.parameters()]
    return results + [b.cpu() for b in module.buffers()]


MODULES = {
    "batch1d": (torch.nn.BatchNorm1d(5), (6, 5)),
    "batch1d_length": (torch.nn.BatchNorm1d(5), (6, 5, 3)),
    "batch2d": (torch.nn.BatchNorm2d(5), (4, 5, 3, 2)),
    "batch3d": (torch.nn.BatchNorm3d(5), (2, 5, 3, 2, 2)),
    "batch_cumulative": (torch.nn.BatchNorm2d(5, momentum=None), (4, 5, 3, 2)),
    "batch_untracked": (torch.nn.BatchNorm2d(5, track_running_stats=False), (4, 5, 3, 2)),
    "batch_plain": (torch.nn.BatchNorm2d(5, affine=False, momentum=0.3), (4, 5, 3, 2)),
    "instance": (torch.nn.InstanceNorm2d(5, affine=True, track_running_stats=True), (4, 5, 3, 2)),
    "layer": (torch.nn.LayerNorm((5, 3)), (4, 2, 5, 3)),
    "layer_no_bias": (torch.nn.LayerNorm(3, bias=False), (4, 3)),
    "group": (torch.nn.GroupNorm(2, 6), (4, 6, 3, 2)),
    "rms": (torch.nn.RMSNorm(7), (4, 3, 7)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_training(name, dtype):
    torch.manual_seed(0)
    module, shape = MODULES[name]
    for p in module.parameters():
        torch.nn.init.uniform_(p, 0.5, 1.5)
    inputs = [torch.randn(shape) * 2 + 1 for _ in range(3)]
    if dtype == torch.float32:
        expected = train(module, inputs, "cpu", dtype)
        scale = 2e-5
    else:
        module = copy.deepcopy(module).to(dtype)
        rounded = [x.to(dtype).float() for x in inputs]
        expected = train(copy.deepcopy(module).float(), rounded, "cpu", torch.float32)
        scale = 3e-2
    for a, e in zip(train(module, inputs, "tpu", dtype), expected):
        torch.testing.assert_close(a.to(e.dtype), e, rtol=scale, atol=scale * max(1.0, float(e.abs().max())))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_input_with_float32_parameters(dtype):
    x = torch.randn(4, 5, 3, 2).to(dtype)
    module = torch.nn.BatchNorm2d(5)
    expected = copy.deepcopy(module)(x)
    module = module.to("tpu")
    actual = module(x.to("tpu"))
    assert actual.dtype == expected.dtype and module.running_mean.dtype == torch.float32
    torch.testing.assert_close(actual.cpu(), expected, rtol=2e-2, atol=2e-2)


def test_large_mean_keeps_its_variance():
    x = torch.randn(64, 4, 8, 8) + 1000
    actual = F.batch_norm(x.to("tpu"), None, None, training=True).cpu()
    expected = F.batch_norm(x.double(), None, None, training=True).float()
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)


def test_one_value_per_channel_is_refused():
    for device in ("cpu", "tpu"):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            torch.nn.BatchNorm1d(3).to(device)(torch.randn(1, 3, device=device))


def test_momentum_and_eps_change_values():
    x = torch.randn(8, 3)
    for momentum, eps in ((0.1, 1e-5), (0.7, 1e-1)):
        stats = []
        for device in ("cpu", "tpu"):
            mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
            y = F.batch_norm(x.to(device), mean, var, training=True, momentum=momentum, eps=eps)
            stats.append([t.cpu() for t in (y, mean, var)])
        torch.testing.assert_close(stats[1], stats[0])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_extremes(dim):
    inf = float("inf")
    x = torch.tensor([[1e4, -1e4, 0.0], [inf, 1.0, 2.0], [-inf, -inf, -inf], [float("nan"), 0.0, 1.0]])
    for function in (torch.softmax, torch.log_softmax, torch._safe_softmax):
        comparing.assert_same(function(x.to("tpu"), dim), function(x, dim), torch.float32, str(function))


@pytest.mark.parametrize("length", [2049, 5000, 4096])
def test_softmax_of_long_rows(length):
    # The embedded engine's rule sums such rows in runs.
    x = torch.randn(3, length)
    x[1, 7], x[2, length - 1] = float("-inf"), float("nan")
    for function in (torch.softmax, torch.log_softmax):
        on_cpu, on_tpu = x.clone().requires_grad_(), x.to("tpu").requires_grad_()
        expected, found = function(on_cpu, -1), function(on_tpu, -1)
        comparing.assert_same(found, expected, torch.float32, str(function))
        weight = torch.randn(3, length)
        expected.backward(weight)
        found.backward(weight.to("tpu"))
        comparing.assert_same(on_tpu.grad[:2], on_cpu.grad[:2], torch.float32, f"{function} backward")


def test_softmax_to_a_wider_dtype():
    x = torch.randn(4, 9).bfloat16()
    y = torch.softmax(x.to("tpu"), -1, dtype=torch.float32)
    comparing.assert_same(y, torch.softmax(x, -1, dtype=torch.float32), torch.float32, "softmax")


def test_channels_last_is_kept():
    x = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last)
    y = torch.nn.BatchNorm2d(4).to("tpu")(x.to("tpu"))
    assert y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [0, 2, 1, -1])
def test_weight_norm(dim, dtype):
    v = torch.randn(4, 5, 3).to(dtype)
    g = torch.rand([n if d == dim % 3 else 1 for d, n in enumerate(v.shape)]).to(dtype)

    def run(device):
        leaves = [x.clone().to(device).requires_grad_() for x in (v, g)]
        w = torch._weight_norm(*leaves, dim)
        weight = torch.linspace(0.5, 1.5, w.numel()).reshape(w.shape).to(dtype).to(device)
        return w.detach(), *torch.autograd.grad(w, leaves, weight)

    comparing.assert_same(run("tpu"), run("cpu"), dtype, f"weight norm of dim {dim}")


def test_module_with_weight_norm_trains():
    torch.manual_seed(0)
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(3, 4, 3))
    x = torch.randn(2, 3, 9)

    def run(device):
        m = copy.deepcopy(module).to(device)
        m(x.to(device)).square().mean().backward()
        return [p.grad for p in m.parameters()]

    comparing.assert_same(run("tpu"), run("cpu"), torch.float32, "gradient")
