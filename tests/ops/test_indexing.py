"""Reading and writing at index tensors against CPU PyTorch: samples, duplicates, negative, wild and empty indices."""

import comparing
import pytest
import torch
import torch.nn.functional as F
from both_devices import EVERY, GRADIENTS, NARROW, cases, check, compare_strided_and_out, compare_with_float32

pytestmark = pytest.mark.usefixtures("without_fallback")

OPS = [
    "gather",
    "index_select",
    "take",
    "take_along_dim",
    "__getitem__",
    "index_put",
    "index_add",
    "index_copy",
    "index_fill",
    "index_reduce",
    "put",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "masked_scatter",
    "masked_select",
    "select_scatter",
    "slice_scatter",
    "diagonal_scatter",
    "as_strided_scatter",
    "nonzero",
    "nonzero_static",
    "argwhere",
    "_unsafe_masked_index",
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
    "nn.functional.one_hot",
]
# Narrow CPU kernels of these round after every addition.
ACCUMULATING = ["_unsafe_masked_index_put_accumulate", "_segment_reduce"]
INDEX_DTYPES = (torch.int64, torch.int32)


@pytest.mark.parametrize("op, dtype", cases(OPS, EVERY))
def test_samples(op, dtype):
    assert comparing.compare(op, dtype) > 0


@pytest.mark.parametrize("op, dtype", cases(ACCUMULATING, EVERY))
def test_accumulating_samples(op, dtype):
    assert (compare_with_float32 if dtype in NARROW else comparing.compare)(op, dtype) > 0


@pytest.mark.parametrize("op, dtype", cases([*OPS, "_segment_reduce"], (torch.float32,), backward=True))
def test_gradients(op, dtype):
    comparing.compare_gradients(op, dtype)


@pytest.mark.parametrize(
    "op, dtype",
    cases(
        ["scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put"],
        (torch.float32, torch.int64),
    ),
)
def test_in_place(op, dtype):
    comparing.compare_in_place(op, dtype)


@pytest.mark.parametrize("index_dtype", INDEX_DTYPES)
def test_neighbouring_and_separated_index_tensors(index_dtype):
    x = torch.randn(4, 5, 6, 7)
    i = torch.tensor([[0, -1], [2, 3]], dtype=index_dtype)
    j = torch.tensor([1, -5], dtype=index_dtype)
    for pick in (
        lambda t, i, j: t[i],
        lambda t, i, j: t[:, i],
        lambda t, i, j: t[..., j],
        lambda t, i, j: t[i, j],
        lambda t, i, j: t[:, i, j],
        lambda t, i, j: t[i, :, j],
        lambda t, i, j: t[:, i, :, j],
        lambda t, i, j: t[i, :, :, j],
        lambda t, i, j: t[i, 2, j],
        lambda t, i, j: t[None, i, ..., j],
        lambda t, i, j: t[i, j, i, j],
        lambda t, i, j: t[i[:, :0]],
        lambda t, i, j: t[i[0, 0], j],
    ):
        check(pick, x, i, j)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_index_put_with_duplicates(dtype, accumulate):
    x, v = torch.zeros(6, 4).to(dtype), torch.arange(20).reshape(5, 4).to(dtype)
    i = torch.tensor([1, 3, 1, -5, 0])
    check(lambda t, i, v: t.index_put_((i,), v, accumulate=accumulate), x, i, v)
    check(lambda t, i, v: t.index_put((i,), v[:1], accumulate=accumulate), x, i, v)
    check(lambda t, i, v: t.t().index_put_((i[:4], i[:4]), v[0], accumulate=accumulate), x[:4], i % 4, v)


def test_assignment():
    x, i = torch.arange(24.0).reshape(4, 6), torch.tensor([0, 2, 2])

    def assign(t, i):
        t[i] = -1.0
        t[:, i] = t[:, i] + 1
        t[i, i] = torch.tensor([5.0, 6.0, 7.0], device=t.device)
        t[t > 10] = 0
        t[1:3, i] = 9
        return t.sum()

    check(assign, x, i)


@pytest.mark.parametrize("index_dtype", INDEX_DTYPES)
def test_last_of_equal_indices_wins(index_dtype):
    index = torch.randint(0, 7, (500,), dtype=index_dtype)
    source = torch.arange(500.0)
    check(lambda x, i, s: x.index_copy(0, i.long(), s), torch.zeros(7), index, source)
    check(lambda x, i, s: x.scatter(0, i.long(), s), torch.zeros(7), index, source)
    check(lambda x, i, s: x.put_(i.long(), s), torch.zeros(7), index, source)
    check(lambda x, i, s: x.scatter(1, i.long().reshape(50, 10), s.reshape(50, 10)), torch.zeros(60, 7), index, source)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8])
def test_scatter_reduce(dtype, include_self, reduce):
    x = torch.randint(-4, 4, (5, 6)).to(dtype)
    index, source = torch.randint(0, 6, (4, 9)), torch.randint(-4, 4, (5, 9)).to(dtype)
    if reduce == "prod" and not dtype.is_floating_point:
        source = source.sign()
    check(lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=include_self), x, index, source)
    if reduce != "sum":
        check(lambda x, i, s: x.index_reduce(1, i[0], s, reduce, include_self=include_self), x, index, source)


def test_scatter_reduce_takes_nan():
    x, index = torch.zeros(3), torch.tensor([0, 1, 1, 2])
    source = torch.tensor([1.0, float("nan"), 2.0, -float("inf")])
    for reduce in ("amax", "amin", "sum", "mean"):
        check(lambda x, i, s: x.scatter_reduce(0, i, s, reduce), x, index, source)


def test_zero_dimensional_operands():
    x, zero = torch.tensor(3.0), torch.tensor(0)
    check(lambda x, i: x.gather(0, i), x, zero)
    check(lambda x, i: x.index_select(0, i), x, zero)
    check(lambda x, i: x.scatter(0, i, 5.0), x, zero)
    check(lambda x, i: x.index_fill(0, i, 5.0), x, zero)
    check(lambda x, i: x.index_add(0, i, torch.tensor(2.0, device=x.device), alpha=3), x, zero)
    check(lambda x, i: x.take(i), x, zero)
    check(lambda x, i: x.index_copy(0, i, torch.tensor(2.0, device=x.device)), x, zero)


def test_empty_operands():
    none = torch.zeros(0, dtype=torch.int64)
    check(lambda x, i: x[i], torch.randn(3, 4), none)
    check(lambda x, i: x[i], torch.randn(0, 4), none)
    check(lambda x, i: x.gather(0, i.reshape(0, 4)), torch.randn(3, 4), none)
    check(lambda x, i: x.index_add(0, i, x[:0]), torch.randn(3, 4), none)
    check(lambda x, i: x.index_put_((i,), x[:0]), torch.randn(3, 4), none)
    check(lambda x, i: F.embedding(i, x), torch.randn(3, 4), none)
    check(lambda x: torch.nonzero_static(x, size=3), torch.zeros(0, 2))


@pytest.mark.parametrize("n", [10, 1000, 100000])
def test_nonzero_static(n):
    x = (torch.rand(n // 5, 5) > 0.7).float()
    check(lambda t: torch.nonzero_static(t, size=n // 4, fill_value=-7), x)
    check(lambda t: torch.nonzero_static(t[:, 0], size=2), x)


def test_masked_scatter():
    x, mask = torch.zeros(40, 30), torch.rand(40, 30) > 0.5
    check(lambda t, m, s: t.masked_scatter(m, s), x, mask, torch.randn(1200))
    check(lambda t, m, s: t.masked_scatter_(m[0], s), x, mask, torch.randn(1200))


@pytest.mark.parametrize("dtype", GRADIENTS)
@pytest.mark.parametrize("by_frequency", [False, True])
@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_embedding_gradient(dtype, by_frequency, padding_idx):
    def gradient(weight, index):
        weight = weight.detach().requires_grad_()
        out = F.embedding(index, weight, padding_idx=padding_idx, scale_grad_by_freq=by_frequency)
        (out.float() * torch.arange(1, 6, device=out.device)).sum().backward()
        return weight.grad

    check(gradient, torch.randn(11, 5).to(dtype), torch.randint(0, 11, (4, 9)))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last_offset", [False, True])
@pytest.mark.parametrize("padding_idx", [None, 3])
@pytest.mark.parametrize("index_dtype", INDEX_DTYPES)
def test_embedding_bag(mode, last_offset, padding_idx, index_dtype):
    index = torch.tensor([1, 3, 3, 5, 0, 2, 3, 9], dtype=index_dtype)
    offsets = torch.tensor([0, 2, 2, 5] + ([8] if last_offset else []), dtype=index_dtype)

    def run(weight, index, offsets):
        weight = weight.detach().requires_grad_()
        out = F.embedding_bag(
            index, weight, offsets, mode=mode, include_last_offset=last_offset, padding_idx=padding_idx
        )
        (out * torch.arange(1, 5, device=out.device)).sum().backward()
        return out.detach(), weight.grad

    check(run, torch.randn(10, 4), index, offsets)


def test_embedding_bag_weights_and_frequencies():
    index, offsets = torch.tensor([1, 3, 3, 5, 0, 2]), torch.tensor([0, 2, 5])

    def run(weight, index, offsets, sample):
        weight, sample = weight.detach().requires_grad_(), sample.detach().requires_grad_()
        out = F.embedding_bag(index, weight, offsets, mode="sum", per_sample_weights=sample)
        out.square().sum().backward()
        return out.detach(), weight.grad, sample.grad

    weight = torch.randn(10, 4)
    check(run, weight, index, offsets, torch.randn(6))

    # PyTorch's CPU kernel divides some rows by another row's frequency, so the reference is embedding's gradient.
    on_device, reference = weight.to("tpu").requires_grad_(), weight.clone().requires_grad_()
    F.embedding_bag(index.to("tpu"), on_device, offsets.to("tpu"), mode="sum", scale_grad_by_freq=True).sum().backward()
    F.embedding(index, reference, scale_grad_by_freq=True).sum().backward()
    torch.testing.assert_close(on_device.grad.cpu(), reference.grad)


def test_embedding_renorm():
    check(lambda w, i: F.embedding(i, w, max_norm=1.0), torch.randn(6, 4) * 3, torch.tensor([0, 2, 2, 5]))
    check(
        lambda w, i: F.embedding(i, w, max_norm=1.0, norm_type=1.0), torch.randn(6, 4) * 3, torch.tensor([0, 2, 2, 5])
    )


OUT_OF_RANGE = {
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put((i,), x[:1]),
    "gather": lambda x, i: x.gather(0, i.reshape(1, 1)),
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x.take(i * 10),
    "scatter": lambda x, i: x.scatter(0, i.reshape(1, 1), 1.0),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "embedding": lambda x, i: F.embedding(i, x),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
@pytest.mark.parametrize("wild", [3, -4, 2**33])
def test_out_of_range_is_reported(name, wild):
    x, index = torch.randn(3, 4).to("tpu"), torch.tensor([wild]).to("tpu")
    with pytest.raises((IndexError, RuntimeError)):
        OUT_OF_RANGE[name](x, index).cpu()
        torch.tpu.synchronize()
    assert torch.equal((x + 0).cpu(), x.cpu())


@pytest.mark.parametrize(
    "op, dtype",
    cases(
        [
            "gather",
            "index_select",
            "take",
            "scatter",
            "scatter_add",
            "scatter_reduce",
            "index_add",
            "index_copy",
            "index_fill",
            "index_put",
            "masked_scatter",
        ],
        (torch.float32, torch.int64),
    ),
)
def test_strided_arguments_and_out(op, dtype):
    compare_strided_and_out(op, dtype)


def test_masks_of_bytes_are_refused():
    x = torch.zeros(3).to("tpu")
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        x.masked_scatter(torch.ones(3, dtype=torch.uint8).to("tpu"), x)


@pytest.mark.parametrize("slots", [7, 100000])
def test_a_million_duplicates(slots):
    index, source = torch.randint(0, slots, (1000000,)), torch.arange(1000000.0)
    expected = torch.zeros(slots)
    expected.numpy()[index.numpy()] = source.numpy()
    x, i, s = torch.zeros(slots).to("tpu"), index.to("tpu"), source.to("tpu")
    for written in (x.index_copy(0, i, s), x.scatter(0, i, s), x.index_put((i,), s), x.clone().put_(i, s)):
        assert torch.equal(written.cpu(), expected)
    counts = torch.zeros(slots, dtype=torch.int64).to("tpu").index_add(0, i, torch.ones_like(i))
    assert torch.equal(counts.cpu(), index.bincount(minlength=slots))
