"""Generators and their states."""

import copy

import pytest
import torch


def test_a_seed_set_before_first_use_counts_and_opens_nothing():
    import os
    import subprocess
    import sys

    script = (
        "import torch\ntorch.manual_seed(7)\nstate = torch.tpu.get_rng_state()\nprint(torch.tpu.is_initialized())\n"
        "print(torch.rand(4, device='tpu').tolist(), int.from_bytes(bytes(state[:8]), 'little'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ))
    lines = done.stdout.splitlines()
    torch.manual_seed(7)
    assert lines[0] == "False" and lines[1] == f"{torch.rand(4, device='tpu').tolist()} 7", done.stderr


def test_state_is_seed_and_offset():
    generator = torch.Generator("tpu").manual_seed(5)
    assert generator.initial_seed() == 5 and generator.get_offset() == 0
    torch.rand(10, device="tpu", generator=generator)
    offset = generator.get_offset()
    assert offset > 0 and offset % 4 == 0
    state = bytes(generator.get_state())
    assert int.from_bytes(state[:8], "little") == 5 and int.from_bytes(state[8:], "little") == offset
    generator.set_offset(offset + 4)
    assert generator.get_offset() == offset + 4
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_offset(3)


def test_clones_go_their_own_way_and_graph_safe_states_together():
    generator = torch.Generator("tpu").manual_seed(5)
    clone = generator.clone_state()
    shared = generator.graphsafe_get_state()
    torch.rand(10, device="tpu", generator=generator)
    assert clone.get_offset() == 0 and shared.get_offset() == generator.get_offset() > 0
    other = torch.Generator("tpu").manual_seed(9)
    other.graphsafe_set_state(shared)
    assert other.initial_seed() == 5
    with pytest.raises(RuntimeError, match="expected a generator of a tpu device"):
        other.graphsafe_set_state(torch.Generator())


def test_all_devices_functions():
    torch.tpu.manual_seed_all(11)
    assert torch.tpu.initial_seed() == 11 and torch.tpu.default_generators[0].initial_seed() == 11
    states = torch.tpu.get_rng_state_all()
    assert len(states) == torch.tpu.device_count() == len(torch.tpu.default_generators)
    first = torch.rand(3, device="tpu")
    torch.tpu.set_rng_state_all(states)
    assert torch.equal(first, torch.rand(3, device="tpu"))
    torch.tpu.seed_all()
    torch.tpu.seed()
    assert torch.tpu.initial_seed() != 11
    torch.tpu.manual_seed(11)
    assert torch.equal(first, torch.rand(3, device="tpu"))


def test_fork_rng_and_checkpoint_restore_the_state():
    state = torch.tpu.get_rng_state()
    with torch.random.fork_rng(device_type="tpu"):
        torch.rand(3, device="tpu")
    assert torch.equal(state, torch.tpu.get_rng_state())
    x = torch.ones(1000, device="tpu", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda t: torch.nn.functional.dropout(t), x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(y.detach().cpu(), x.grad.cpu())


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (torch.zeros(16), TypeError, "ByteTensor"),
        (torch.zeros(3, dtype=torch.uint8), RuntimeError, "wrong size"),
        (torch.full((16,), 1, dtype=torch.uint8), RuntimeError, "multiple of 4"),
    ],
)
def test_wrong_states(state, error, text):
    before = torch.tpu.get_rng_state()
    with pytest.raises(error, match=text):
        torch.tpu.set_rng_state(state)
    assert torch.equal(before, torch.tpu.get_rng_state())


def test_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="Expected a 'tpu' device type for generator but found 'cpu'"):
        torch.randn(3, device="tpu", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="tpu"):
        torch.randn(3, generator=torch.Generator("tpu"))
    with pytest.raises(RuntimeError, match="device index out of range"):
        torch.Generator("tpu:99")
    with pytest.raises(IndexError, match="default_generators"):
        torch.tpu.default_generators[99]


def test_modules_with_dropout_copy():
    module = torch.nn.Dropout().to("tpu")
    torch.manual_seed(2)
    first = module(torch.ones(50, device="tpu"))
    torch.manual_seed(2)
    assert torch.equal(first, copy.deepcopy(module)(torch.ones(50, device="tpu")))
