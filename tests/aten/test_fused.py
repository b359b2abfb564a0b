"""The fused eager mode: ops recorded, regions that return run as one program, results as in strict mode."""

import os
import subprocess
import sys
import threading

import pytest
import torch

SCRIPT = """
import torch
torch.manual_seed(0)
torch.tpu.eager_mode("fused")
"""


def run(body: str, **environment: str) -> str:
    """What a script prints in a process of its own whose regions are compiled at their third run."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + body],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TORCH_TPU_FUSE_AFTER": "3", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def fused():
    with torch.tpu.eager_mode("fused"):
        yield


def test_the_mode_is_a_setter_a_context_and_a_variable():
    def waiting() -> bool:
        """Recorded, not run, until the mode is left. (The idle timer may be quicker where programs are compiled.)"""
        with torch.tpu.eager_mode("strict"):
            before = torch.tpu.execute_count()
            with torch.tpu.eager_mode("fused"):
                x = torch.ones(5, device="tpu") + 1
                y = x * 3
                recorded = torch.tpu.execute_count() == before
            assert torch.tpu.execute_count() > before
        assert y.tolist() == [6.0] * 5
        return recorded

    assert any(waiting() for _ in range(20))
    with pytest.raises(ValueError, match="unknown mode, got <lazy>"):
        torch.tpu.eager_mode("lazy")
    code = "from torch_tpu import _C; import torch; torch.ones(1, device='tpu') + 1; print(_C.eager_mode())"
    for variables, mode in (
        ({"TORCH_TPU_EAGER_MODE": "fused"}, "fused"),
        ({"TPU_DEFER_AND_FUSE": "1"}, "fused"),
        ({"TPU_LAUNCH_BLOCKING": "1"}, "debug"),
    ):
        environment = {k: v for k, v in os.environ.items() if k != "TORCH_TPU_EAGER_MODE"}
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment | variables
        )
        assert found.stdout.strip() == mode, found.stderr


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x.cpu().numpy(),
        lambda x: str(x),
        lambda x: bool((x > 0).all()),
        lambda x: x.tolist(),
        lambda x: torch.nonzero(x),
        lambda x: torch.tpu.synchronize(),
        lambda x: torch.accelerator.synchronize(),
        lambda x: torch.tpu.current_stream().synchronize(),
        lambda x: torch.tpu.current_stream().query(),
        lambda x: torch.tpu.Event().record(),
        lambda x: [torch.tpu.set_stream(s) for s in (torch.tpu.Stream(), torch.tpu.default_stream())],
        lambda x: x.untyped_storage().cpu(),
    ],
)
def test_what_needs_a_value_runs_the_region(fused, read):
    torch.tpu.synchronize()
    before = torch.tpu.execute_count()
    x = torch.full((7,), 2.0).to("tpu") * 3
    assert torch.tpu.execute_count() == before
    read(x)
    assert torch.tpu.execute_count() > before
    assert x.tolist() == [6.0] * 7


def test_errors_are_raised_at_the_call(fused):
    a, b = torch.ones(3, device="tpu") + 1, torch.ones(4, device="tpu") + 1
    with pytest.raises(RuntimeError, match="must match the size"):
        a + b
    assert (a * 2).tolist() == [4.0] * 3


def test_aliases_and_writes_keep_their_order(fused):
    base = torch.arange(12.0).to("tpu").reshape(3, 4)
    row, column = base[1], base[:, 2]
    row.add_(100)
    column.mul_(2)
    before = base * 1
    base.zero_()
    row.add_(1)
    expected = torch.arange(12.0).reshape(3, 4)
    expected[1] += 100
    expected[:, 2] *= 2
    assert torch.equal(before.cpu(), expected)
    assert base.tolist() == [[0.0] * 4, [1.0] * 4, [0.0] * 4]


def test_random_numbers_are_those_of_strict_mode():
    drawn = []
    for mode in ("strict", "fused"):
        with torch.tpu.eager_mode(mode):
            torch.manual_seed(7)
            a = torch.rand(5, device="tpu")
            unused = torch.randn(3, device="tpu")
            del unused
            drawn.append([a, torch.nn.functional.dropout(a, 0.5), torch.randn(4, device="tpu")])
    for strict, fused in zip(*drawn):
        assert torch.equal(strict.cpu(), fused.cpu())


def test_another_thread_sees_what_this_one_recorded(fused):
    x = torch.ones(6, device="tpu")
    for _ in range(5):
        x = x + 1
    seen = []
    thread = threading.Thread(target=lambda: seen.append((x * 2).tolist()))
    thread.start()
    thread.join()
    assert seen == [[12.0] * 6]


def test_a_dead_temporary_is_never_memory():
    printed = run(
        """
def steps(x):
    for _ in range(3):
        x = x + 1
    return x
x = torch.ones(1 << 18, device="tpu") + 0
for _ in range(5):
    y = steps(x)
    torch.tpu.synchronize()
    torch.tpu.synchronize_compiles()
y = None
torch.tpu.reset_peak_memory_stats()
live = torch.tpu.memory_allocated()
y = steps(x)
torch.tpu.synchronize()
print(torch.tpu.memory_allocated() - live, torch.tpu.max_memory_allocated() - live)
"""
    )
    assert printed == f"{1 << 20} {1 << 20}"


def test_out_of_memory_is_raised_at_the_call():
    printed = run(
        """
x = torch.ones(1024, 1024, device="tpu")
try:
    y = [x + i for i in range(100)]
except torch.OutOfMemoryError as error:
    print("largest" in str(error))
y = None
x.add_(1)
print((x + 1).sum().item())
""",
        TORCH_TPU_MEMORY_LIMIT="64MiB",
    )
    assert printed.split() == ["True", "3145728.0"]


def test_memory_pressure_runs_what_is_recorded():
    printed = run(
        """
x = torch.ones(1024, 1024, device="tpu")
for i in range(100):
    y = x + i
print(y.sum().item() / 2**20)
""",
        TORCH_TPU_MEMORY_LIMIT="64MiB",
    )
    assert printed == "100.0"


@pytest.mark.filterwarnings("ignore:.*CPU")
def test_what_runs_on_the_cpu_needs_only_its_operands(fused):
    matrix = torch.diag(torch.tensor([3.0, 2.0])).to("tpu")

    def stays_recorded() -> bool:
        torch.tpu.synchronize()
        before, fallbacks = torch.tpu.execute_count(), torch.tpu.fallback_count()
        recorded = torch.ones(5, device="tpu") * 3
        values = torch.linalg.svdvals(matrix)
        assert torch.tpu.fallback_count() > fallbacks
        untouched = torch.tpu.execute_count() == before
        assert values.tolist() == [3.0, 2.0]
        assert recorded.tolist() == [3.0] * 5
        return untouched

    assert any(stays_recorded() for _ in range(20))  # the idle timer runs it where the CPU takes long


TRAIN = """
from torch import nn

def train(mode, steps=12):
    with torch.tpu.eager_mode(mode):
        torch.manual_seed(0)
        layers = [nn.Linear(16, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.Linear(32, 4)]
        model = nn.Sequential(*layers).to("tpu")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        losses = []
        for step in range(steps):
            x, y = torch.randn(8, 16).to("tpu"), torch.randint(0, 4, (8,)).to("tpu")
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
            torch.tpu.synchronize_compiles()
        return torch.stack(losses).cpu(), [p.detach().cpu() for p in model.parameters()]
"""


def test_a_training_loop_becomes_few_programs_and_trains_the_same():
    printed = run(
        TRAIN
        + """
strict = train("strict")
train("fused", 24)
fused = train("fused")
torch.testing.assert_close(fused[0], strict[0], rtol=1e-4, atol=1e-5)
for a, b in zip(fused[1], strict[1]):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
launched, compiled = torch.tpu.execute_count(), torch.tpu.compile_count()
train("fused", 24)
print(torch.tpu.execute_count() - launched, torch.tpu.compile_count() - compiled)
print(torch.tpu.stats()["joint_executions"] > 20)
print(torch.tpu.explain_regions())
"""
    )
    launched, compiled, joint = printed.split()[:3]
    assert "one program" in printed and "ops: aten::" in printed
    assert int(compiled) == 0 and joint == "True"
    assert int(launched) < 24 * 12, launched  # strict: more than 60 a step


def test_a_fork_drops_what_is_recorded():
    printed = run(
        """
import os, sys
x = torch.ones(4, device="tpu") + 1
child = os.fork()
if child == 0:
    try:
        x.cpu()
    except RuntimeError as error:
        os._exit(17 if "forked subprocess" in str(error) else 18)
    os._exit(19)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.tolist())
"""
    )
    assert printed == "17 [2.0, 2.0, 2.0, 2.0]"


def test_the_process_ends_cleanly_with_recorded_ops():
    assert run("x = torch.ones(4, device='tpu') + 1\nprint('end')") == "end"
