"""Interpolation and grid sampling against CPU PyTorch: sample inputs, all modes and sizes, u8 images, gradients."""

import comparing
import pytest
import torch
import torch.nn.functional as F
from both_devices import NARROW, cases, check, compare_strided_and_out, compare_with_float32

pytestmark = pytest.mark.usefixtures("without_fallback")

OPS = [
    "nn.functional.interpolate",
    "nn.functional.upsample_nearest",
    "nn.functional.upsample_bilinear",
    "_upsample_bilinear2d_aa",
    "nn.functional.grid_sample",
    "grid_sampler_2d",
    "grid_sampler_3d",
]
PRECISE = (torch.float32, torch.float64, torch.uint8)


@pytest.fixture(autouse=True)
def coordinates_in_float32(monkeypatch):
    # A coordinate near 10 has 20 bits left for its fraction, and four to eight taps are added.
    monkeypatch.setitem(comparing.TOLERANCES, torch.float32, (1e-4, 5e-5))


@pytest.mark.parametrize("op, dtype", cases(OPS, PRECISE))
def test_samples(op, dtype):
    assert comparing.compare(op, dtype) > 0


@pytest.mark.parametrize("op, dtype", cases(OPS, NARROW))
def test_narrow_samples(op, dtype):
    # The CPU computes coordinates and weights in the narrow dtype, we in float32.
    assert compare_with_float32(op, dtype) > 0


@pytest.mark.parametrize("op, dtype", cases(OPS, (torch.float64,), backward=True))
def test_gradients(op, dtype):
    # In float32 the slope jumps where a coordinate rounds to the other side of a pixel.
    comparing.compare_gradients(op, dtype)


SIZES = [
    {"size": (5, 9)},
    {"size": (12, 16)},
    {"size": (1, 30)},
    {"size": (6, 8)},
    {"scale_factor": 1.7},
    {"scale_factor": (0.6, 2.5)},
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area"])
def test_nearest(mode, size):
    def run(x):
        x = x.detach().requires_grad_()
        y = F.interpolate(x, mode=mode, **size)
        y.square().sum().backward()
        return y.detach(), x.grad

    check(run, torch.randn(2, 3, 6, 8))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    "mode, antialias", [("bilinear", False), ("bicubic", False), ("bilinear", True), ("bicubic", True)]
)
def test_linear_and_cubic(mode, antialias, align_corners, size):
    def run(x):
        x = x.detach().requires_grad_()
        y = F.interpolate(x, mode=mode, antialias=antialias, align_corners=align_corners, **size)
        y.square().sum().backward()
        return y.detach(), x.grad

    check(run, torch.randn(2, 3, 6, 8))
    check(run, torch.randn(2, 3, 6, 8, dtype=torch.float64))


@pytest.mark.parametrize("align_corners", [False, True])
def test_one_and_three_dimensions(align_corners):
    check(lambda x: F.interpolate(x, 11, mode="linear", align_corners=align_corners), torch.randn(2, 3, 7))
    check(
        lambda x: F.interpolate(x, (3, 9, 5), mode="trilinear", align_corners=align_corners), torch.randn(2, 3, 4, 5, 6)
    )
    check(lambda x: F.interpolate(x, (3, 9, 5), mode="nearest-exact"), torch.randn(2, 3, 4, 5, 6))


@pytest.mark.parametrize("channels", [3, 7])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("align_corners", [False, True])
def test_u8_images_are_equal(channels, mode, antialias, align_corners):
    image = torch.randint(0, 256, (2, channels, 27, 40), dtype=torch.uint8)
    for size in ({"size": (13, 77)}, {"scale_factor": 1.7}, {"size": (27, 10)}):
        check(lambda x: F.interpolate(x, mode=mode, antialias=antialias, align_corners=align_corners, **size), image)


def test_an_infinity_stays_where_it_is():
    x = torch.ones(1, 1, 8, 8)
    x[0, 0, 2, 3] = float("inf")
    check(lambda x: F.interpolate(x, 16, mode="bilinear"), x)
    check(lambda x: F.interpolate(x, 16, mode="nearest"), x)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode, padding, align_corners):
    def run(x, grid):
        x, grid = x.detach().requires_grad_(), grid.detach().requires_grad_()
        y = F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=align_corners)
        y.square().sum().backward()
        return y.detach(), x.grad, grid.grad

    check(run, torch.randn(2, 3, 6, 8, dtype=torch.float64), torch.randn(2, 4, 5, 2, dtype=torch.float64) * 1.5)
    if mode != "bicubic":
        check(
            run, torch.randn(2, 3, 4, 6, 8, dtype=torch.float64), torch.randn(2, 3, 4, 5, 3, dtype=torch.float64) * 1.5
        )


def test_affine_grid():
    def run(theta, x):
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)

    check(run, torch.tensor([[[0.8, 0.1, 0.0], [-0.2, 1.1, 0.3]]]), torch.randn(1, 2, 7, 7))


@pytest.mark.parametrize(
    "op, dtype", cases(["nn.functional.interpolate", "nn.functional.grid_sample"], (torch.float32, torch.int64))
)
def test_strided_arguments_and_out(op, dtype):
    compare_strided_and_out(op, dtype)
