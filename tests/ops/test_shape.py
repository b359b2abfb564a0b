"""Ops that move elements against CPU PyTorch: samples of every dtype, and the corners of cat, pad, roll, windows."""

import comparing
import pytest
import torch
import torch.nn.functional as F
from both_devices import EVERY, NARROW, cases, check, compare_strided_and_out, compare_with_float32

pytestmark = pytest.mark.usefixtures("without_fallback")

OPS = [
    "cat",
    "stack",
    "hstack",
    "vstack",
    "dstack",
    "column_stack",
    "flip",
    "fliplr",
    "flipud",
    "roll",
    "rot90",
    "repeat",
    "repeat_interleave",
    "tile",
    "nn.functional.pad",
    "constant_pad_nd",
    "nn.functional.pixel_shuffle",
    "nn.functional.pixel_unshuffle",
    "nn.functional.channel_shuffle",
    "block_diag",
    "diag_embed",
    "diagonal",
    "diagonal_copy",
    "diag",
    "diagflat",
    "select",
    "narrow",
    "narrow_copy",
    "unfold",
    "unfold_copy",
    "cdist",
    "nn.functional.pdist",
    "nn.functional.unfold",
    "split_with_sizes_copy",
    "expand_copy",
    "permute_copy",
    "view_copy",
    "squeeze_copy",
    "t_copy",
    "transpose_copy",
    "unbind_copy",
    "unsqueeze_copy",
    "alias_copy",
    "cartesian_prod",
    "combinations",
    "meshgrid",
]
# The CPU rounds each product to the narrow dtype.
PRODUCTS = ["cross", "linalg.cross"]


@pytest.mark.parametrize("op, dtype", cases(OPS, EVERY))
def test_samples(op, dtype):
    assert comparing.compare(op, dtype) > 0


@pytest.mark.parametrize("op, dtype", cases(PRODUCTS, EVERY))
def test_products(op, dtype):
    assert (compare_with_float32 if dtype in NARROW else comparing.compare)(op, dtype) > 0


@pytest.mark.parametrize("op, dtype", cases(OPS + PRODUCTS, (torch.float32,), backward=True))
def test_gradients(op, dtype):
    comparing.compare_gradients(op, dtype)


def test_cat_promotes_and_skips_legacy_empties():
    a, b, none = torch.arange(6).reshape(2, 3), torch.randn(1, 3), torch.empty(0)
    check(lambda a, b: torch.cat([a, b]), a, b)
    check(lambda a, b, e: torch.cat([e, a, e, b]), a, b, none)
    check(lambda a, b: torch.cat([a > 2, b.to(torch.bfloat16)], -2), a, b)
    check(lambda e: torch.cat([e, e]), none)
    check(lambda a: torch.cat([a[:, :0], a[:, :0]], 1), a)
    check(lambda a: torch.cat([a, a[:0]]), a)
    check(lambda a, b: torch.cat([a, b], out=torch.empty(3, 3, dtype=torch.float64, device=a.device)), a, b)


def test_many_tensors():
    parts = [torch.full((2, i % 3), float(i)) for i in range(100)]
    check(lambda *p: torch.cat(p, 1), *parts)
    check(lambda *p: torch.stack([x.sum() for x in p]), *parts)
    check(lambda *p: torch.block_diag(*p[:7]), *parts)


@pytest.mark.parametrize(
    "shifts, dims", [(1, None), (-7, None), (3, 0), ((1, -2), (0, 1)), ((4, 4), (1, 1)), (100, 2), (0, 0)]
)
def test_roll(shifts, dims):
    check(lambda x: torch.roll(x, shifts, dims), torch.arange(60).reshape(3, 4, 5))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_border_padding(mode):
    def run(x, *pad):
        y = x.detach().requires_grad_()
        z = F.pad(y, pad, mode=mode)
        (z * torch.arange(z.shape[-1], device=z.device)).sum().backward()
        return z.detach(), y.grad

    check(lambda x: run(x, 2, 1), torch.randn(2, 3, 5))
    check(lambda x: run(x, 2, 1, 0, 3), torch.randn(2, 3, 4, 5))
    check(lambda x: run(x, 1, 1, 2, 0, 1, 2), torch.randn(1, 2, 3, 4, 5))
    check(lambda x: run(x, -1, 2), torch.randn(2, 3, 5))
    check(lambda x: F.pad(x, (1, 1), mode=mode), torch.randn(3, 5, dtype=torch.bfloat16))


def test_constant_padding():
    x = torch.randn(2, 3, 4)
    check(lambda x: F.pad(x, (1, -1, 0, 2), value=3.5), x)
    check(lambda x: F.pad(x, (-2, -2)), x)
    check(lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), value=float("-inf")), x)
    check(lambda x: F.pad(x, (2, 0), value=7), torch.arange(6).reshape(2, 3))
    check(lambda x: F.pad(x, (1, 1), value=True), torch.zeros(2, dtype=torch.bool))
    check(lambda x: F.pad(x, (1, 2)), torch.empty(3, 0))


@pytest.mark.parametrize(
    "kernel, stride, dilation, padding", [(3, 1, 1, 0), ((2, 3), 2, (2, 1), 1), (1, 3, 1, 0), ((4, 2), 1, 1, 2)]
)
def test_unfold_and_fold(kernel, stride, dilation, padding):
    def both(x):
        columns = F.unfold(x, kernel, dilation, padding, stride)
        return columns, F.fold(columns, x.shape[-2:], kernel, dilation, padding, stride)

    check(both, torch.randn(2, 3, 7, 8))
    check(both, torch.randn(3, 7, 8))
    check(both, torch.randn(2, 3, 7, 8, dtype=torch.bfloat16))


@pytest.mark.parametrize("size, step", [(3, 1), (2, 2), (2, 3), (5, 2)])
def test_unfold_gradient(size, step):
    def gradient(x):
        x = x.detach().requires_grad_()
        y = x.unfold(1, size, step)
        (y * torch.arange(y.numel(), device=y.device).reshape(y.shape)).sum().backward()
        return x.grad

    check(gradient, torch.randn(2, 9, 3))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p):
    def run(x, y):
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        d = torch.cdist(x, y, p=p)
        if p > 0:
            (d * torch.arange(d.shape[-1], device=d.device)).sum().backward()
        return d.detach(), x.grad, y.grad

    check(run, torch.randn(5, 3), torch.randn(4, 3))
    check(run, torch.randn(2, 1, 5, 3), torch.randn(3, 4, 3))
    check(run, torch.randn(30, 6, dtype=torch.float64), torch.randn(28, 6, dtype=torch.float64))

    def pairs(x):
        x = x.detach().requires_grad_()
        d = F.pdist(x, p=p)
        d.square().sum().backward()
        return d.detach(), x.grad

    if p > 0:
        check(pairs, torch.randn(6, 3))


def test_equal_points_have_no_gradient():
    def gradient(x):
        x = x.detach().requires_grad_()
        torch.cdist(x, x).sum().backward()
        return x.grad

    check(gradient, torch.zeros(3, 2))


def test_backwards_of_views():
    def gradients(x):
        x = x.detach().requires_grad_()
        total = (
            x[:, 1:6:2].square().sum() + x[2].exp().sum() + x.diagonal(1).sum() * 3 + x[-1, -1] * 5 + x[:, -3:].sum()
        )
        total.backward()
        return x.grad

    check(gradients, torch.randn(4, 7))
    check(lambda x: torch.diagonal_scatter(x, x[0, :3], -1), torch.randn(4, 7))
    check(lambda x: torch.diag_embed(x, 2, 0, 2), torch.randn(4, 3))
    check(lambda x: torch.slice_scatter(x, x[:, :2], 1, -6, None, 3), torch.randn(4, 7)[:, :6].contiguous())


def test_chunk_cat():
    parts = [torch.randn(5, 3), torch.randn(4, 2, 2), torch.randn(7)]
    check(lambda *p: torch._chunk_cat(p, 0, 4), *parts)
    check(lambda *p: torch._chunk_cat(p, 1, 2), torch.randn(2, 5), torch.randn(2, 3, 4))


@pytest.mark.parametrize(
    "op, dtype",
    cases(
        [
            "cat",
            "stack",
            "flip",
            "roll",
            "tile",
            "repeat",
            "diag_embed",
            "narrow_copy",
            "block_diag",
            "cross",
            "linalg.cross",
            "constant_pad_nd",
        ],
        (torch.float32, torch.int64),
    ),
)
def test_strided_arguments_and_out(op, dtype):
    compare_strided_and_out(op, dtype)
