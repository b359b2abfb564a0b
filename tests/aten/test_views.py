"""Aliasing and view semantics: random programs against the CPU, and the fuzzer's own power to find seeded bugs."""

import os

import pytest
import torch
from view_programs import Program

PROGRAMS = int(os.environ.get("TORCH_TPU_FUZZ_PROGRAMS", "1000"))
SEED = int(os.environ.get("TORCH_TPU_FUZZ_SEED", "0")) or int.from_bytes(os.urandom(3), "little")
SHARDS = 4


@pytest.mark.parametrize("shard", range(SHARDS))
def test_random_programs_over_aliases(shard):
    """At least 1,000 programs of 5-40 steps per run over at least four aliases of one base."""
    print(f"view fuzz: TORCH_TPU_FUZZ_SEED={SEED}, shard {shard}")
    for i in range(shard, PROGRAMS, SHARDS):
        program = Program(SEED * 100_000 + i, torch.device("tpu"))
        try:
            program.run()
        except (RuntimeError, IndexError) as error:
            raise AssertionError(f"{program.trace()}: {error!r}") from error


def test_write_through_every_alias_is_seen():
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    device = base.tpu()
    for view in (
        lambda t: t,
        lambda t: t[:, 1:],
        lambda t: t.transpose(0, 2),
        lambda t: t.view(-1)[::2],
        lambda t: t.diagonal(0, 1, 2),
    ):
        view(base).add_(1)
        view(device).add_(1)
        assert torch.equal(device.cpu(), base)


def test_dtype_views_share_bytes():
    x = torch.arange(4, dtype=torch.float32)
    y = x.tpu()
    y.view(torch.int32).add_(1)
    x.view(torch.int32).add_(1)
    assert torch.equal(y.cpu(), x)
    z = torch.zeros(4, dtype=torch.complex64, device="tpu")
    torch.view_as_real(z)[:, 1].fill_(2)
    assert torch.equal(z.cpu(), torch.full((4,), 2j, dtype=torch.complex64))


def test_overlapping_write_raises_as_on_cpu():
    x = torch.zeros(3, device="tpu").expand(2, 3)
    with pytest.raises(
        RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"
    ):
        x.add_(1)
    y = torch.arange(6.0, device="tpu")
    with pytest.raises(
        RuntimeError,
        match="some elements of the input tensor and the written-to tensor refer to a single memory location",
    ):
        torch.add(y[:-1], 1, out=y[1:])


def test_same_shapes_disjoint_then_identical_then_overlapping():
    """A key that forgot the alias pattern would serve the second and third call with the first one's program."""
    for f in (torch.add, torch.mul, torch.maximum):
        for layout in ("disjoint", "identical", "shifted"):
            pair = []
            for device in ("cpu", "tpu"):
                base = torch.arange(12.0, device=device)
                a = base[:4]
                b = {"disjoint": base[6:10], "identical": base[:4], "shifted": base[2:6]}[layout]
                try:
                    f(a, b, out=b)
                    pair.append(base.cpu())
                except RuntimeError as error:
                    pair.append(type(error))
            assert (pair[0] is pair[1]) if isinstance(pair[0], type) else torch.equal(pair[0], pair[1]), (f, layout)


def test_resize_and_storage_resize_keep_the_prefix():
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0, device=device)
        x.resize_(2, 2)
        assert x.cpu().tolist() == [[0, 1], [2, 3]]
        x.untyped_storage().resize_(0)
        assert x.untyped_storage().nbytes() == 0
        x.untyped_storage().resize_(24)
        x.fill_(1)
        assert x.cpu().tolist() == [[1, 1], [1, 1]]


def test_out_is_resized_with_a_warning():
    out = torch.zeros(2, device="tpu")
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(torch.ones(3, device="tpu"), 1, out=out)
    assert out.cpu().tolist() == [2, 2, 2]


def test_set_and_tied_storages():
    a = torch.arange(4.0, device="tpu")
    b = torch.empty(0, device="tpu")
    b.set_(a)
    b.add_(1)
    assert a.cpu().tolist() == [1, 2, 3, 4] and b.is_set_to(a)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_a_write_through_a_narrow_float_view_keeps_the_bytes_beside_it(dtype):
    for make in (lambda v: v[:4].fill_(0), lambda v: v[1::2].fill_(0), lambda v: v[2:3].copy_(v[5:6])):
        on_cpu = torch.tensor([1, -8, 2**40 + 3])
        on_tpu = on_cpu.to("tpu")
        make(on_cpu.view(dtype))
        make(on_tpu.view(dtype))
        assert torch.equal(on_tpu.cpu(), on_cpu)
    second = slice(8 // dtype.itemsize, 16 // dtype.itemsize)
    assert torch.equal(on_tpu.view(dtype)[second].clone().view(torch.int64).cpu(), on_cpu[1:2])


@pytest.mark.parametrize("shape", [(1, 1), (2, 1, 1), (1, 4), (4, 1), (3, 4)])
@pytest.mark.parametrize("diagonal", range(-5, 6))
def test_triangles_on_any_diagonal(shape, diagonal):
    x = torch.rand(shape) + 1
    assert torch.equal(x.to("tpu").triu(diagonal).cpu(), x.triu(diagonal))
    assert torch.equal(x.to("tpu").tril(diagonal).cpu(), x.tril(diagonal))
