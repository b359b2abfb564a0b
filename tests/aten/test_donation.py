"""Donation: an in-place op gives the memory it reads to the value it writes, unless somebody else holds that value.

Judged by where the engine keeps the buffer, never by data_ptr(): that is an address of ours, which does not move.

Donate: every op that reads what it overwrites and leaves the shape and dtype of the buffer as they are (in-place
arithmetic, scatters, foreach and fused optimizer steps, writes through a view). Do not donate: ops that do not read what
they overwrite (zero_, fill_, random numbers, copy_ of the whole tensor, out=), because the old buffer is no operand of
theirs; it is freed when the new one is stored. copy_ between equal layouts on one device copies nothing: both tensors
then hold one immutable buffer.
"""

import contextlib
import copy
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
import torch

from torch_tpu import _C

SIZE = 1 << 14


@pytest.fixture(autouse=True)
def needs_pointers() -> Iterator[None]:
    if not _C.device_info(0)["host_readable"]:
        pytest.skip("this engine does not tell where a buffer is")
    with torch.tpu.eager_mode("strict"):  # fused eager donates once per chain of steps (csrc/fuse/region_test.cc)
        yield


def pointer(x: torch.Tensor) -> int:
    """Where the engine keeps the contents of the tensor's storage now."""
    return _C.buffer_pointer(x.untyped_storage().data_ptr())


@contextlib.contextmanager
def donations(expected: int, *tensors: torch.Tensor) -> Iterator[None]:
    """The block donates `expected` buffers; with any, the tensors' buffers stay where they are."""
    torch.tpu.synchronize()
    places, before = [pointer(x) for x in tensors], torch.tpu.stats()["donations"]
    yield
    assert torch.tpu.stats()["donations"] - before == expected
    if expected:
        assert [pointer(x) for x in tensors] == places


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*(shape or (SIZE,)), device="tpu") * 1  # of its own: no other tensor shares the buffer


def run(script: str, **environment: str) -> str:
    """What a Python script prints in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pointer_of_a_storage() -> None:
    x = ones(8, 8)
    assert pointer(x) == pointer(x[3:]) == pointer(x.t()) == _C.buffer_pointer(x[3:].data_ptr()) != 0
    assert pointer(x) not in (x.data_ptr(), pointer(ones(8, 8)))
    assert pointer(torch.empty(8, device="tpu")) == 0
    with pytest.raises(ValueError, match="expected the address of a tpu storage"):
        _C.buffer_pointer(torch.ones(8).data_ptr())
    with pytest.raises(TypeError):
        _C.buffer_pointer("x")


IN_PLACE = {
    "add_": lambda x, b, i: x.add_(b),
    "add_ of a number": lambda x, b, i: x.add_(1.5),
    "+=": lambda x, b, i: x.__iadd__(b),
    "addcmul_": lambda x, b, i: x.addcmul_(b, b),
    "lerp_": lambda x, b, i: x.lerp_(b, 0.5),
    "relu_": lambda x, b, i: x.relu_(),
    "clamp_": lambda x, b, i: x.clamp_(0, 1),
    "masked_fill_": lambda x, b, i: x.masked_fill_(b > 0, 1),
    "cumsum_": lambda x, b, i: x.cumsum_(0),
    "index_add_": lambda x, b, i: x.index_add_(0, i, b[:2]),
    "scatter_": lambda x, b, i: x.scatter_(0, i, 1.0),
    "x[index] = number": lambda x, b, i: x.__setitem__(i, 1.0),
    "x[3] = number": lambda x, b, i: x.__setitem__(3, 1.0),
    "add(x, b, out=x)": lambda x, b, i: torch.add(x, b, out=x),
    "write to a slice": lambda x, b, i: x[10:20].mul_(3),
    "write to every second element": lambda x, b, i: x[::2].add_(1),
    "write to elements of a reshape": lambda x, b, i: x.view(128, -1)[3:5].sub_(1),
    "zero_ of a slice": lambda x, b, i: x[10:20].zero_(),
    "copy_ from the host into a slice": lambda x, b, i: x[10:20].copy_(torch.arange(10.0)),
    "copy_ from the device into a slice": lambda x, b, i: x[10:20].copy_(b[:10]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_in_place_op_keeps_the_memory(name: str) -> None:
    f, x, b, i = IN_PLACE[name], ones(), ones(), torch.tensor([1, 2])
    on_cpu, on_device = (x.cpu(), b.cpu(), i), (x, b, i.tpu())
    f(*on_device)  # what it compiles and uploads is not what is counted
    with donations(2, x):
        f(*on_device)
        f(*on_device)
    for _ in range(3):
        f(*on_cpu)
    torch.testing.assert_close(x.cpu(), on_cpu[0])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, torch.float64, torch.complex64])
@pytest.mark.parametrize("shape", [(), (3,), (5, 7)])
def test_any_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape).to(dtype).tpu()
    step = torch.Tensor.logical_not_ if dtype is torch.bool else lambda x: x.add_(1)
    step(x)
    with donations(1, x):
        step(x)
    assert torch.equal(x.cpu(), torch.full(shape, 0 if dtype is torch.bool else 2).to(dtype))


def test_foreach_donates_every_element() -> None:
    tensors, others = [ones(), ones(3, 5), ones(1)], [ones(), ones(3, 5), ones(1)]
    with donations(3, *tensors):
        torch._foreach_add_(tensors, others)
    with donations(3, *tensors):
        torch._foreach_mul_(tensors, 2)
    assert all(torch.equal(x.cpu(), torch.full(x.shape, 4.0)) for x in tensors)


OVERWRITING = {
    "zero_": lambda x, b: x.zero_(),
    "fill_": lambda x, b: x.fill_(3),
    "normal_": lambda x, b: x.normal_(),
    "copy_ from the host": lambda x, b: x.copy_(torch.ones(SIZE)),
    "copy_ with a cast": lambda x, b: x.copy_(torch.ones(SIZE, dtype=torch.int32, device="tpu")),
    "out=": lambda x, b: torch.add(b, b, out=x),
}


@pytest.mark.parametrize("name", OVERWRITING)
def test_what_is_not_read_is_not_donated(name: str) -> None:
    x, b = ones(), ones()
    torch.tpu.empty_cache()
    with donations(0):
        live = torch.tpu.memory_allocated()
        OVERWRITING[name](x, b)
        torch.tpu.empty_cache()
        assert torch.tpu.memory_allocated() == live  # the old buffer is gone


def test_a_copy_within_the_device_shares_until_written() -> None:
    x, b = ones(), ones() * 5
    x.copy_(b)
    place = pointer(b)
    assert pointer(x) == place
    with donations(0, b):
        x.add_(1)
    assert pointer(b) == place != pointer(x)
    with donations(2, x, b):  # both are alone now
        x.add_(1)
        b.add_(1)
    assert x[0].item() == 7 and b[0].item() == 6


def test_a_change_of_the_buffers_shape_costs_one_copy() -> None:
    """A buffer has the shape of what last overwrote it whole; writing all of it in another shape changes that."""
    x = ones(8 * 16)
    for write in (lambda: x.view(8, 16).add_(1), lambda: x.add_(1), lambda: x.view(16, 8).t().add_(1)):
        with donations(0):
            write()
        with donations(2, x):
            write()
            write()
    assert torch.equal(x.cpu(), torch.full((8 * 16,), 10.0))


def test_writes_through_a_view_and_its_base() -> None:
    base = ones(4, SIZE)
    row, same = base[1], base.detach()
    with donations(3, base, row, same):
        row.add_(1)
        base.mul_(3)
        same.sub_(1)
    assert row[0].item() == 5 and base[0, 0].item() == 2 and torch.equal(same.cpu(), base.cpu())


# --- values that somebody else holds ------------------------------------------------------------------------------------


def clone(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def copied(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x).copy_(x)


def deep_copy(x: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(x)


@pytest.mark.parametrize("hold", [clone, copied, deep_copy])
def test_a_held_value_stays(hold) -> None:
    x = ones()
    held = hold(x)
    assert pointer(held) == pointer(x)
    place = pointer(held)
    for write in (lambda: x.add_(1), lambda: x[5:9].zero_(), lambda: x.view(-1, 2).t().mul_(3)):
        write()
        assert pointer(held) == place != pointer(x) and torch.equal(held.cpu(), torch.ones(SIZE))
    del held
    x.add_(1)
    with donations(1, x):
        x.add_(1)


def test_a_copied_model_stays_while_the_original_trains() -> None:
    model = torch.nn.Linear(32, 32).tpu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept, before = copy.deepcopy(model), {k: v.cpu() for k, v in model.state_dict().items()}
    places = [pointer(p) for p in kept.parameters()]
    for _ in range(3):
        optimizer.zero_grad()
        model(ones(2, 32)).square().mean().backward()
        optimizer.step()
    assert places == [pointer(p) for p in kept.parameters()]
    assert all(torch.equal(v.cpu(), before[k]) for k, v in kept.state_dict().items())
    assert not torch.equal(model.weight.detach().cpu(), before["weight"])


def test_a_read_in_flight_sees_the_old_value() -> None:
    x = ones(700, 700)
    other = ones(700, 700)
    for _ in range(3):
        before = x[0, 0].item()
        product = x @ other  # still running when x is overwritten
        x.add_(1)
        assert torch.equal(product.cpu(), torch.full((700, 700), 700 * before))
    assert x[0, 0].item() == 4


def test_a_download_is_a_snapshot() -> None:
    x = ones()
    hosts = [x.cpu(), x.to("cpu", non_blocking=True), torch.empty(SIZE).copy_(x)]
    x.add_(1)
    assert all(torch.equal(host, torch.ones(SIZE)) for host in hosts)


def test_an_upload_is_donated_and_its_source_stays() -> None:
    host = torch.ones(SIZE)
    x = host.to("tpu")
    with donations(1, x):
        x.add_(1)
    assert torch.equal(host, torch.ones(SIZE)) and x[0].item() == 2


def test_a_dlpack_consumer_is_an_alias() -> None:
    x = ones()
    consumer = torch.from_dlpack(x)
    with donations(2, x, consumer):
        x.add_(1)
        consumer.add_(1)
    del x
    with donations(1, consumer):
        consumer.add_(1)
    assert torch.equal(consumer.cpu(), torch.full((SIZE,), 4.0))


def test_a_saved_tensor_is_an_alias_that_autograd_watches() -> None:
    """PyTorch's own rule: writing to what backward needs is an error there, so the memory may go; a clone is safe."""
    w = ones().requires_grad_()
    saved = w * 1
    loss = (saved * saved).sum()
    kept = (saved.clone() * saved.clone()).sum()
    with torch.no_grad():
        saved.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    w = ones().requires_grad_()
    saved = w * 1
    kept = (saved.clone() ** 2).sum()
    with torch.no_grad():
        saved.add_(1)
    kept.backward()
    assert w.grad is not None and torch.equal(w.grad.cpu(), torch.full((SIZE,), 2.0))


def test_uploaded_numbers_are_never_donated() -> None:
    for make in (lambda: torch.full((), 2.0, device="tpu"), lambda: torch.tensor(2.0, device="tpu")):
        x = make()
        for _ in range(3):
            x.add_(2.0).mul_(2.0)
        assert make().item() == 2 and (ones(1) * 2.0).item() == 2


# --- training ----------------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {}),
    "SGD momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "Adam amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {}),
}


@pytest.mark.parametrize("form", [{"foreach": False}, {"foreach": True}, {"fused": True}, {}], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_keep_parameters_and_states_in_place(name: str, form: dict[str, bool]) -> None:
    make, options = OPTIMIZERS[name]
    parameters = [torch.nn.Parameter(ones(64, 64)), torch.nn.Parameter(ones(64))]
    optimizer = make(parameters, lr=0.1, **options, **form)

    def step() -> None:
        optimizer.zero_grad()
        sum(p.square().sum() for p in parameters).backward()
        optimizer.step()

    def tensors() -> list[torch.Tensor]:
        states = [v for p in parameters for v in optimizer.state[p].values()]
        return [*parameters, *(v for v in states if isinstance(v, torch.Tensor) and v.is_tpu)]

    step()  # makes the states
    step()  # the first step's gradients and states may share buffers
    kept = tensors()
    places = [pointer(x) for x in kept]
    for _ in range(3):
        before = torch.tpu.stats()["donations"]
        step()
        assert torch.tpu.stats()["donations"] - before >= len(kept)
        assert places == [pointer(x) for x in kept]
    assert all(a is b for a, b in zip(kept, tensors(), strict=True))


def test_gradients_accumulate_in_place() -> None:
    w = torch.nn.Parameter(ones())
    for _ in range(2):
        (w * w).sum().backward()
    assert w.grad is not None
    place = pointer(w.grad)
    (w * w).sum().backward()
    assert pointer(w.grad) == place and w.grad[0].item() == 6


def test_running_statistics_stay_in_place() -> None:
    layer = torch.nn.BatchNorm1d(64).tpu()
    layer(ones(8, 64))
    places = [pointer(x) for x in layer.buffers()]
    layer(ones(8, 64))
    assert places == [pointer(x) for x in layer.buffers()]


# --- what donation saves -----------------------------------------------------------------------------------------------


def test_a_donated_step_needs_no_more_memory() -> None:
    """40 MiB of 64 MiB are live: an in-place step fits because its result has the memory of its operand."""
    printed = run(
        """
        import torch
        x = torch.ones(10 << 20, device="tpu")
        torch.tpu.reset_peak_memory_stats()
        x.add_(1)
        x[:5].add_(1)
        print(x[0].item(), x[5].item(), torch.tpu.max_memory_allocated() < 41 << 20)
        """,
        TORCH_TPU_MEMORY_LIMIT="64MiB",
    )
    assert printed.split() == ["3.0", "2.0", "True"]
