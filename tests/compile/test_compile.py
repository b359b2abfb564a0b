"""torch.compile on tpu: who compiles, what a compiled graph returns and writes, where graphs break."""

import copy
import os
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def graphs() -> list[dict]:
    """The programs of graphs that were compiled or read from the disk store so far."""
    return [record for record in torch.tpu.compile_log() if record["op"].startswith("graph")]


def run(body: str, **environment: str) -> str:
    """What a script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", body], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- the front door ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"backend": "tpu"},
        {"backend": "inductor"},
        {"fullgraph": True},
        {"mode": "default"},
        {"mode": "reduce-overhead"},
        {"backend": "tpu", "mode": "max-autotune"},
        {"dynamic": False},
        {"dynamic": True},
    ],
)
def test_tensors_on_tpu_are_compiled_as_one_program(arguments):
    def function(x, y):
        return torch.relu(x @ y + 1).sum(-1)

    x, y = torch.randn(4, 8, device="tpu"), torch.randn(8, 3, device="tpu")
    compiled = torch.compile(function, **arguments)
    torch.testing.assert_close(compiled(x, y).cpu(), function(x, y).cpu())
    torch.tpu.synchronize()
    before = torch.tpu.execute_count()
    compiled(x, y)
    assert torch.tpu.execute_count() == before + 1


def test_code_without_tpu_tensors_keeps_inductor(monkeypatch):
    import torch._inductor.compile_fx

    seen = []
    monkeypatch.setattr(
        torch._inductor.compile_fx, "compile_fx", lambda module, inputs, **_: seen.append(inputs) or module.forward
    )
    assert torch.compile(lambda x: x + 1)(torch.ones(3)).tolist() == [2.0] * 3
    assert len(seen) == 1


def test_a_graph_without_arguments_is_compiled_where_it_makes_its_tensors():
    before = len(graphs())
    assert torch.compile(lambda: torch.arange(4, device="tpu") * 2)().tolist() == [0, 2, 4, 6]
    assert len(graphs()) == before + 1


def test_wrong_modes_and_options_are_one_sentence():
    x = torch.ones(3, device="tpu")
    with pytest.raises(Exception, match="mode 'fast' is unknown on tpu, expected one of default, "):
        torch.compile(lambda x: x + 1, backend="tpu", mode="fast")(x)
    with pytest.raises(Exception, match="option 'speed' is unknown on tpu"):
        torch.compile(lambda x: x + 1, backend="tpu", options={"speed": 1})(x)


def test_options_of_xla_reach_the_engine():
    x = torch.randn(3, device="tpu")

    def compiled(**xla):
        torch._dynamo.reset()
        return torch.compile(lambda x: x.sin() + 3.25, backend="tpu", options={"xla": xla})(x)

    keys = set()
    for level in (0, 3):
        torch.testing.assert_close(compiled(xla_backend_optimization_level=level).cpu(), x.cpu().sin() + 3.25)
        keys.add(graphs()[-1]["key"])
    assert len(keys) == 2
    with pytest.raises(ValueError, match="compile option 'xla_no_such_option'.*No such compile option"):
        compiled(xla_no_such_option=True)
    with pytest.raises(Exception, match="must be a bool, int, float or str, got None"):
        compiled(xla_backend_optimization_level=None)
    assert compiled().shape == (3,)


def test_nothing_of_it_is_imported_before_the_first_compile():
    printed = run(
        "import sys, torch; (torch.ones(3, device='tpu') + 1).cpu(); "
        "print([m for m in sys.modules if m.startswith(('torch._dynamo', 'torch._inductor', 'torch_tpu.compile'))])"
    )
    assert printed == "[]"


# --- what a graph returns and writes -------------------------------------------------------------------------------------
def test_inputs_are_written_in_place_and_in_their_own_memory():
    def step(x):
        x.add_(1)
        return x * 2

    x = torch.zeros(1000, device="tpu")
    compiled = torch.compile(step)
    address = None
    for i in range(1, 4):
        assert compiled(x)[0].item() == 2 * i
        assert x[0].item() == i
        donations = torch.tpu.stats()["donations"]
        compiled(x), x.sub_(1)
        assert torch.tpu.stats()["donations"] > donations
        address = address or x.data_ptr()
        assert x.data_ptr() == address


def test_what_an_output_keeps_of_an_argument_is_not_overwritten():
    def step(x):
        before = x.clone()
        x.mul_(3)
        return before, x + 0

    x = torch.ones(5, device="tpu")
    before, after = torch.compile(step)(x)
    assert before.tolist() == [1.0] * 5 and after.tolist() == x.tolist() == [3.0] * 5


def test_arguments_that_share_a_storage():
    def step(x, row):
        row.add_(1)
        x[:, 1].mul_(10)
        return x * 1, row * 1

    results = []
    for function in (step, torch.compile(step)):
        base = torch.arange(12.0).to("tpu")
        x = base.reshape(3, 4)
        results.append([t.tolist() for t in (*function(x, x[1]), base)])
    assert results[0] == results[1]


def test_outputs_that_are_views_of_arguments():
    def step(x):
        x.mul_(2)
        return x.t(), x[0]

    for function in (step, torch.compile(step)):
        x = torch.arange(12.0).to("tpu").reshape(3, 4)
        transposed, first = function(x)
        x.add_(1)  # seen by the views
        assert transposed.stride() == (1, 4) and torch.equal(transposed.cpu(), x.cpu().t())
        assert first.tolist() == [1.0, 3.0, 5.0, 7.0]


def test_arguments_that_are_parts_of_larger_tensors_with_another_layout():
    compiled = torch.compile(lambda a, b: a * 2 + b)
    base = torch.arange(24.0).to("tpu").reshape(4, 6)
    for a, b in ((base[1:3, ::2], base[0:2, 1:4]), (base.t()[:2, :3], base[:2, :3]), (base[:2, :3], base[:2, :3])):
        torch.testing.assert_close(compiled(a, b).cpu(), a.cpu() * 2 + b.cpu())


def test_outputs_that_are_arguments_repeated_empty_or_nothing():
    def function(x, y):
        z = x + y
        return x, z, z, z.view(-1), torch.zeros(0, 3, device="tpu"), None, 7, z[:0]

    x, y = torch.ones(2, 2, device="tpu"), torch.ones(2, 2, device="tpu")
    for f in (function, torch.compile(function)):
        a, b, c, d, e, nothing, seven, h = f(x, y)
        assert a.data_ptr() == x.data_ptr() and torch.equal(b.cpu(), c.cpu()) and d.shape == (4,)
        assert e.shape == (0, 3) and nothing is None and seven == 7 and h.shape == (0, 2)
        b.add_(1)
        assert d.tolist() == [3.0] * 4  # a view of it


def test_numbers_and_host_scalars_are_what_they_are_at_each_call():
    compiled = torch.compile(lambda x, s, n: x * s + n)
    x = torch.ones(3, device="tpu")
    for s, n in ((2.0, 1), (5.0, 2), (-1.0, 3)):
        assert compiled(x, torch.tensor(s), n).tolist() == [s + n] * 3


def test_constants_made_in_the_function():
    compiled = torch.compile(lambda x: x + torch.tensor([1.0, 2.0], device="tpu") + torch.tensor(0.5))
    for _ in range(2):
        assert compiled(torch.zeros(2, device="tpu")).tolist() == [1.5, 2.5]


def test_constants_in_host_memory_are_part_of_the_program():
    def function(x):
        scale = torch.tensor([0.5, 2.0, 1.0]).to(x.device) * torch.tensor(3.0)
        return x[torch.tensor([1, 2, 0])] * scale + torch.arange(3).flip(0).to(x.device)

    x = torch.randn(3, 3, device="tpu")
    compiled = torch.compile(function, fullgraph=True)
    before = len(graphs())
    for _ in range(2):
        torch.testing.assert_close(compiled(x).cpu(), function(x.cpu()))
    assert len(graphs()) == before + 1


def test_constants_in_host_memory_that_are_returned_or_cross_a_split():
    def function(x):
        scale = torch.tensor([1.0, 2.0])
        return torch.linalg.svdvals(x * scale.to(x.device)) * scale.to(x.device), scale * 2

    x = torch.randn(2, 2, device="tpu")
    result, on_host = torch.compile(function)(x)
    torch.testing.assert_close(result.cpu(), function(x.cpu())[0])
    assert on_host.device.type == "cpu" and on_host.tolist() == [2.0, 4.0]
    result = torch.compile(lambda x: function(x)[0])(x)
    torch.testing.assert_close(result.cpu(), function(x.cpu())[0])


def test_random_numbers_in_host_memory_are_drawn_at_each_call():
    compiled = torch.compile(lambda x: x + torch.rand(3).to(x.device))
    x = torch.zeros(3, device="tpu")
    assert compiled(x).tolist() != compiled(x).tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_dtypes(dtype):
    x = torch.tensor([[1, 0], [1, 1]], device="tpu").to(dtype)

    def function(x):
        return x.sum(0), x.t().contiguous(), x[1], torch.where(x != 0, 2, 3)

    for a, b in zip(torch.compile(function)(x), function(x)):
        assert a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())


def test_conjugate_views():
    x = torch.randn(3, dtype=torch.complex64, device="tpu")
    compiled = torch.compile(lambda x: (x.conj() * 2, x.conj()))
    for a, b in zip(compiled(x.conj()), (x * 2, x)):
        assert torch.equal(a.cpu(), b.cpu())


def test_random_numbers_are_eagers_and_the_generator_goes_on():
    def function(x):
        return F.dropout(x, 0.5) + torch.randn_like(x), torch.rand(3, device="tpu")

    x = torch.ones(50, device="tpu")
    drawn = []
    for f in (function, torch.compile(function)):
        torch.manual_seed(5)
        drawn.append([t.cpu() for t in (*f(x), *f(x), torch.rand(4, device="tpu"))])
    for a, b in zip(*drawn):
        torch.testing.assert_close(a, b)
    assert not torch.equal(drawn[1][0], drawn[1][2])


def test_an_index_out_of_range_is_raised_late_as_in_eager_mode():
    compiled = torch.compile(lambda x, i: x[i] + 1)
    x = torch.arange(4.0, device="tpu")
    assert compiled(x, torch.tensor([3], device="tpu")).tolist() == [4.0]
    result = None
    with pytest.raises(IndexError, match="index out of range"):
        result = compiled(x, torch.tensor([9], device="tpu"))
        result.cpu()
    assert compiled(x, torch.tensor([0], device="tpu")).tolist() == [1.0]


def test_every_shape_has_a_program_and_no_other():
    compiled = torch.compile(lambda x: F.softmax(x * 2, -1))
    before = len(graphs())
    for _ in range(2):
        for n in range(3, 9):
            x = torch.randn(2, n, device="tpu")
            torch.testing.assert_close(compiled(x).cpu(), F.softmax(x.cpu() * 2, -1))
    assert len(graphs()) - before == 6


# --- training ------------------------------------------------------------------------------------------------------------
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(2, 6, 16))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 4)), (5, 6)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 4)
        ),
        (2, 3, 8, 8),
    ),
    "attention": (Attention, (2, 6, 16)),
    "lstm": (lambda: nn.LSTM(6, 8, batch_first=True), (2, 5, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_equals_eager(name):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    eager = make().to("tpu")
    model = copy.deepcopy(eager)
    compiled = torch.compile(model)
    x = torch.randn(shape).to("tpu")
    for step in range(3):
        losses = []
        for f in (eager, compiled):
            torch.manual_seed(step)
            out = f(x)
            loss = (out[0] if isinstance(out, tuple) else out).square().mean()
            loss.backward()
            losses.append(loss.detach().cpu())
        torch.testing.assert_close(*losses)
        for a, b in zip(eager.parameters(), model.parameters()):
            torch.testing.assert_close(a.grad.cpu(), b.grad.cpu(), rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            for p in (*eager.parameters(), *model.parameters()):
                p.sub_(p.grad, alpha=0.1)
                p.grad = None
    for a, b in zip(eager.buffers(), model.buffers()):
        torch.testing.assert_close(a.cpu(), b.cpu())


def test_a_training_step_is_two_programs():
    model = torch.compile(MODELS["mlp"][0]().to("tpu"))
    x = torch.randn(5, 6, device="tpu")
    for _ in range(2):
        model.zero_grad()
        torch.tpu.synchronize()
        before = torch.tpu.execute_count()
        out = model(x)
        assert torch.tpu.execute_count() == before + 1
        gradient = torch.ones_like(out)
        torch.tpu.synchronize()
        before = torch.tpu.execute_count()
        out.backward(gradient)
        assert torch.tpu.execute_count() == before + 1


# --- breaks --------------------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.svdvals(x * 2) + 1,
        lambda x: x * x.sum().item(),
        lambda x: x[x > 0].sum() * 2,
        lambda x: (x.cpu() * 2).to("tpu") + 1,
        lambda x: torch.nonzero(x > 0).sum(),
    ],
    ids=["no rule", "item", "mask", "host", "nonzero"],
)
def test_what_cannot_be_captured_splits_the_graph(function):
    x = torch.randn(4, 4, device="tpu")
    compiled = torch.compile(function)
    for _ in range(2):
        torch.testing.assert_close(compiled(x).cpu(), function(x).cpu())


def test_what_runs_outside_of_programs_is_counted():
    counters.clear()
    x = torch.randn(4, 4, device="tpu")
    torch.compile(lambda x: torch.linalg.svdvals(x * 2) + torch.linalg.svdvals(x) + 1)(x)
    torch.compile(lambda x, y: x + y.to(x.device))(x, torch.ones(4))
    assert dict(counters["tpu_islands"]) == {"aten._linalg_svd.default": 2}
    assert counters["tpu_host_graphs"].total() == 1


def test_fullgraph_names_the_op_and_the_line():
    x = torch.randn(4, 4, device="tpu")

    def function(x):
        return torch.linalg.svdvals(x * 2) + 1

    with pytest.raises(
        NotImplementedError, match=r"fullgraph=True: aten::_linalg_svd.*no kernel.*test_compile\.py:\d+"
    ):
        torch.compile(function, fullgraph=True)(x)
    assert (x + 1).shape == (4, 4)


def test_tensors_of_a_capture_have_no_values_outside():
    kept = []

    @torch.library.custom_op("torch_tpu_tests::leaking", mutates_args=())
    def leaking(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        kept.append(y)
        return y * 2

    leaking.register_fake(lambda x: torch.empty_like(x))
    assert torch.compile(lambda x: leaking(x) + 1)(torch.ones(2, device="tpu")).tolist() == [5.0, 5.0]
    with pytest.raises(RuntimeError, match="has no value: it was made while torch.compile captured a graph"):
        kept[0].cpu()


# --- where it is called ----------------------------------------------------------------------------------------------------
def test_modes_of_the_caller():
    layer = nn.Linear(4, 4).to("tpu")
    compiled = torch.compile(layer)
    x = torch.randn(2, 4, device="tpu")
    expected = layer(x).detach().cpu()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x).cpu(), expected)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x).cpu(), expected)
    with torch.autocast("tpu", dtype=torch.bfloat16):
        assert compiled(x).dtype == torch.bfloat16
    for mode in ("strict", "fused", "debug"):
        with torch.tpu.eager_mode(mode):
            torch.testing.assert_close(compiled(x + 0).detach().cpu(), expected)


def test_functional_transforms_and_checkpoints():
    def loss(w, x):
        return (x @ w).tanh().square().sum()

    w, x = torch.randn(3, 3, device="tpu"), torch.randn(5, 3, device="tpu")
    torch.testing.assert_close(torch.compile(torch.func.grad(loss))(w, x).cpu(), torch.func.grad(loss)(w, x).cpu())
    each = torch.func.vmap(loss, (None, 0))
    torch.testing.assert_close(torch.compile(each)(w, x[:, None]).cpu(), each(w, x[:, None]).cpu())

    def block(x):
        return torch.utils.checkpoint.checkpoint(lambda x: (x @ w).relu() @ w, x, use_reentrant=False).sum()

    grads = []
    for f in (block, torch.compile(block)):
        leaf = x.clone().requires_grad_()
        f(leaf).backward()
        grads.append(leaf.grad.cpu())
    torch.testing.assert_close(*grads)


def test_threads_share_a_compiled_function():
    compiled = torch.compile(lambda x: x * 2 + 1)
    compiled(torch.zeros(3, device="tpu"))
    results = {}

    def work(i):
        for _ in range(20):
            results[i] = compiled(torch.full((3,), float(i), device="tpu")).tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: [2.0 * i + 1] * 3 for i in range(4)}


def test_copies_and_states_of_compiled_modules():
    model = torch.compile(nn.Linear(3, 2).to("tpu"))
    x = torch.randn(2, 3, device="tpu")
    expected = model(x).detach().cpu()
    other = copy.deepcopy(model)
    torch.testing.assert_close(other(x).detach().cpu(), expected)
    other.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})
    assert other(x).abs().sum().item() == 0
    torch.testing.assert_close(model(x).detach().cpu(), expected)


def test_a_second_process_compiles_nothing(tmp_path):
    script = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to("tpu")
torch.compile(model)(torch.ones(3, 4, device="tpu")).sum().backward()
print([(r["op"].split()[0], r["from_disk"]) for r in torch.tpu.compile_log() if r["op"].startswith("graph")])
"""
    first = run(script, TORCH_TPU_CACHE_DIR=str(tmp_path))
    second = run(script, TORCH_TPU_CACHE_DIR=str(tmp_path))
    assert first == str([("graph", False)] * 2) and second == str([("graph", True)] * 2)
