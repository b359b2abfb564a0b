"""torch.optim in all its forms, the gradient scaler, clipping and autocast against CPU PyTorch."""

import copy
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("without_fallback")

OPTIMIZERS = {
    "Adadelta": {"lr": 0.5, "weight_decay": 0.01},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.01},
    "Adam": {"lr": 0.01, "weight_decay": 0.01},
    "AdamW": {"lr": 0.01},
    "Adamax": {"lr": 0.01, "weight_decay": 0.01},
    "ASGD": {"lr": 0.01, "weight_decay": 0.01},
    "NAdam": {"lr": 0.01, "weight_decay": 0.01},
    "RAdam": {"lr": 0.01, "weight_decay": 0.01},
    "RMSprop": {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.01},
    "Rprop": {"lr": 0.01},
    "SGD": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
}
VARIANTS = {
    "SGD_nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "dampening": 0}),
    "SGD_plain": ("SGD", {"lr": 0.05}),
    "SGD_maximize": ("SGD", {"lr": 0.05, "momentum": 0.5, "maximize": True}),
    "Adam_amsgrad": ("Adam", {"lr": 0.01, "amsgrad": True}),
    "Adam_maximize": ("Adam", {"lr": 0.01, "maximize": True}),
    "AdamW_amsgrad": ("AdamW", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    "RMSprop_plain": ("RMSprop", {"lr": 0.01}),
}
FUSED = ("Adagrad", "Adam", "AdamW", "SGD")
FORMS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
CASES = [(name, name, options) for name, options in OPTIMIZERS.items()] + [(k, *v) for k, v in VARIANTS.items()]


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def batches(count):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(5, 6, generator=generator) for _ in range(count)]


def loss_of(model, x):
    return model(x).pow(2).mean() + model(x).sum() * 0.1


def train(make, device, steps=4):
    model = network().to(device)
    optimizer = make(model.parameters())
    for x in batches(steps):
        optimizer.zero_grad()
        loss_of(model, x.to(device)).backward()
        optimizer.step()
    state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [t.detach().cpu() for t in [*model.parameters(), *state]]


JOINT = """
import torch
import test_optimizer as tests

for name, kind, options in tests.CASES:
    if name not in ("AdamW", "Adam_amsgrad", "SGD", "SGD_nesterov", "NAdam", "Adagrad"):
        continue
    for form in ("foreach", "fused"):
        if form == "fused" and kind not in tests.FUSED:
            continue
        before = torch.tpu.stats()["joint_executions"]

        def make(parameters, settings=tests.FORMS[form]):
            optimizer = getattr(torch.optim, kind)(parameters, **options, **settings)
            optimizer.register_step_post_hook(lambda *_: torch.tpu.synchronize_compiles())
            return optimizer

        actual = tests.train(make, "tpu", steps=8)
        assert torch.tpu.stats()["joint_executions"] > before, (name, form)
        expected = tests.train(lambda p: getattr(torch.optim, kind)(p, **options, foreach=False), "cpu", steps=8)
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5, check_dtype=False)
print("joint", torch.tpu.stats()["joint_executions"])
"""


def test_steps_that_return_run_as_one_program():
    of_lists = {"TORCH_TPU_EAGER_MODE": "strict", "TORCH_TPU_FUSE_AFTER": "3", "TORCH_TPU_FALLBACK": "error"}
    environment = {**os.environ, **of_lists}
    run = subprocess.run(
        [sys.executable, "-c", JOINT], cwd=os.path.dirname(__file__), env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[-1]) > 50


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name,kind,options", CASES, ids=[c[0] for c in CASES])
def test_optimizers(name, kind, options, form):
    if form == "fused" and kind not in FUSED:
        pytest.skip("PyTorch has no fused form")

    def make(parameters):
        return getattr(torch.optim, kind)(parameters, **options, **FORMS[form])

    def reference(parameters):
        return getattr(torch.optim, kind)(parameters, **options, foreach=False)

    actual, expected = train(make, "tpu"), train(reference, "cpu")
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5, check_dtype=False)


@pytest.mark.parametrize("form", ["loop", "foreach"])
def test_adafactor(form):
    actual = train(lambda p: torch.optim.Adafactor(p, lr=0.01, **FORMS[form]), "tpu")
    for a, e in zip(actual, train(lambda p: torch.optim.Adafactor(p, lr=0.01, foreach=False), "cpu")):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


def test_lbfgs():
    finals = []
    for device in ("cpu", "tpu"):
        model = network().to(device)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
        x = batches(1)[0].to(device)

        def closure(model=model, optimizer=optimizer, x=x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        finals.append(closure().item())
    assert finals[1] == pytest.approx(finals[0], rel=1e-2)


def test_sparse_adam_refuses_dense_gradients():
    parameter = torch.nn.Parameter(torch.ones(3, device="tpu"))
    optimizer = torch.optim.SparseAdam([parameter])
    parameter.sum().backward()
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", FUSED)
def test_fused_steps_in_narrow_dtypes(kind, dtype):
    # The reference is the loop: PyTorch 2.13's fused SGD leaves whole vectors of a narrow CPU parameter unchanged.
    results = []
    for device in ("cpu", "tpu"):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 24).to(dtype).to(device))
        optimizer = getattr(torch.optim, kind)([p], lr=0.05, fused=device == "tpu")
        for i in range(3):
            p.grad = torch.linspace(1, 0.3 - 0.5 * i, 24).to(dtype).to(device)
            optimizer.step()
        results.append(p.detach().cpu())
    torch.testing.assert_close(results[1], results[0], rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_learning_rate_compiles_nothing(kind, form):
    model = network().to("tpu")
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **FORMS[form])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    x = batches(1)[0].to("tpu")
    counts = []
    for _ in range(8):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()
        scheduler.step()
        counts.append(torch.tpu.compile_count())
    assert counts[-1] == counts[2]


@pytest.mark.parametrize("fused", [False, True])
def test_learning_rate_on_the_device(fused):
    def make(parameters):
        lr = torch.tensor(0.01, device="tpu")
        return torch.optim.AdamW(parameters, lr=lr, fused=fused, foreach=not fused, capturable=True)

    for a, e in zip(train(make, "tpu"), train(lambda p: torch.optim.AdamW(p, lr=0.01), "cpu")):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


def test_optimizer_state_round_trip():
    model = network().to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = batches(1)[0].to("tpu")
    loss_of(model, x).backward()
    optimizer.step()
    other = copy.deepcopy(model)
    restored = torch.optim.AdamW(other.parameters(), lr=0.01)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for m, o in ((model, optimizer), (other, restored)):
        o.zero_grad()
        loss_of(m, x).backward()
        o.step()
    for a, b in zip(model.parameters(), other.parameters()):
        assert torch.equal(a.cpu(), b.cpu())


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_gradient_clipping(norm, foreach):
    results = []
    for device in ("cpu", "tpu"):
        model = network().to(device)
        loss_of(model, batches(1)[0].to(device)).backward()
        total = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm, foreach=foreach)
        clipped = [p.grad.cpu().clone() for p in model.parameters()]
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01, foreach=foreach)
        results.append([total.cpu(), *clipped, *(p.grad.cpu() for p in model.parameters())])
    for a, e in zip(results[1], results[0]):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_gradient_scaler(form):
    """Scales, unscales, skips a step with an infinite gradient, backs off and grows again."""
    history = []
    for device in ("cpu", "tpu"):
        model = network().to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, **FORMS[form])
        scaler = torch.amp.GradScaler(device, init_scale=256.0, growth_interval=2)
        log = []
        for i, x in enumerate(batches(6)):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x.to(device))).backward()
            if i == 2:
                next(model.parameters()).grad[0, 0] = float("inf")
            if i == 4:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            log.append(scaler.get_scale())
        history.append((log, [p.detach().cpu() for p in model.parameters()]))
    assert history[1][0] == history[0][0] == [256.0, 512.0, 256.0, 256.0, 512.0, 512.0]
    for a, e in zip(history[1][1], history[0][1]):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


class Transformer(torch.nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.tokens = torch.nn.Embedding(19, 16)
        self.layers = torch.nn.ModuleList(
            # gelu: a relu whose input is near zero would switch a whole row of gradients by rounding alone.
            torch.nn.TransformerEncoderLayer(16, 4, 32, dropout, "gelu", batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.head = torch.nn.Linear(16, 19)

    def forward(self, x):
        h = self.tokens(x)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        for layer in self.layers:
            h = layer(h, src_mask=mask, is_causal=True)
        return self.head(h)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_transformer(dtype):
    torch.manual_seed(0)
    model = Transformer()
    tokens = torch.randint(0, 19, (2, 7))
    tolerance = 3e-2 if dtype == torch.bfloat16 else 5e-3
    results = []
    for device, enabled in (("cpu", False), ("tpu", True)):
        m = copy.deepcopy(model).to(device)
        x = tokens.to(device)
        with torch.autocast(device, dtype=dtype, enabled=enabled):
            logits = m(x[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        if enabled:
            assert logits.dtype == dtype and loss.dtype == torch.float32
        loss.backward()
        assert all(p.grad.dtype == torch.float32 for p in m.parameters())
        results.append([loss.detach().cpu(), *(p.grad.cpu() for p in m.parameters())])
    for a, e in zip(results[1], results[0]):
        assert float((a - e).norm()) < tolerance * float(e.norm()) + 1e-3


def test_autocast_training_reduces_the_loss():
    torch.manual_seed(0)
    model = Transformer(dropout=0.1).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    x = torch.arange(14, device="tpu").remainder(5).reshape(2, 7)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        with torch.autocast("tpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses).cpu()
    assert losses[-1] < 0.5 * losses[0]


def test_nested_autocast_can_be_disabled():
    a = torch.randn(4, 4, device="tpu")
    with torch.autocast("tpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        assert a.softmax(-1).dtype == torch.float32
        assert a.bfloat16().sum().dtype == torch.float32
        with torch.autocast("tpu", enabled=False):
            assert (a @ a).dtype == torch.float32
    assert (a @ a).dtype == torch.float32
