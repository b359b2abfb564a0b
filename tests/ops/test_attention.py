"""scaled_dot_product_attention and nn.MultiheadAttention against CPU PyTorch."""

import copy

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("without_fallback")


def tensors(dtype, heads=4, kv_heads=4, n=5, m=7, d=8, dv=8):
    torch.manual_seed(0)
    shapes = ((2, heads, n, d), (2, kv_heads, m, d), (2, kv_heads, m, dv))
    return [torch.randn(s).to(dtype) for s in shapes]


def run(qkv, device, dtype, **options):
    leaves = [t.to(dtype).to(device, copy=True).requires_grad_() for t in qkv]
    options = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    if "attn_mask" in options and options["attn_mask"].is_floating_point():
        options["attn_mask"] = options["attn_mask"].to(dtype)
    out = F.scaled_dot_product_attention(*leaves, **options)
    out.backward(torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(dtype).to(device))
    return [out.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)]


def compare(qkv, dtype, **options):
    actual = run(qkv, "tpu", dtype, **options)
    expected = run(qkv, "cpu", torch.float64 if dtype == torch.float64 else torch.float32, **options)
    scale = {torch.float32: 2e-5, torch.float64: 1e-10, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    for a, e in zip(actual, expected):
        assert a.dtype == dtype
        bound = scale * max(1.0, float(e.abs().nan_to_num().max()))
        torch.testing.assert_close(a.to(e.dtype), e, rtol=scale, atol=bound, equal_nan=True)


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)


@DTYPES
def test_plain(dtype):
    compare(tensors(dtype), dtype)
    compare(tensors(dtype), dtype, scale=0.3)


@DTYPES
def test_causal(dtype):
    compare(tensors(dtype, n=7), dtype, is_causal=True)
    compare(tensors(dtype, n=5, m=7), dtype, is_causal=True)
    compare(tensors(dtype, n=7, m=5), dtype, is_causal=True)


@DTYPES
@pytest.mark.parametrize("shape", [(5, 7), (1, 1, 5, 7), (2, 1, 1, 7), (2, 4, 5, 7)], ids=str)
def test_masks(shape, dtype):
    torch.manual_seed(1)
    keep = torch.rand(shape) > 0.3
    keep[..., 0] = True
    compare(tensors(dtype), dtype, attn_mask=keep)
    compare(tensors(dtype), dtype, attn_mask=torch.randn(shape).to(dtype))


def test_row_without_keys():
    keep = torch.ones(5, 7, dtype=torch.bool)
    keep[2] = False
    compare(tensors(torch.float32), torch.float32, attn_mask=keep)


@DTYPES
def test_grouped_queries(dtype):
    compare(tensors(dtype, heads=6, kv_heads=2), dtype, enable_gqa=True)
    compare(tensors(dtype, heads=6, kv_heads=1, n=7), dtype, enable_gqa=True, is_causal=True)


def test_other_value_width_and_ranks():
    compare(tensors(torch.float32, dv=3), torch.float32)
    compare([t[0] for t in tensors(torch.float32)], torch.float32)
    compare([t[0, 0] for t in tensors(torch.float32)], torch.float32)
    compare([t[None] for t in tensors(torch.float32)], torch.float32)


def test_learnt_mask():
    results = []
    for device in ("cpu", "tpu"):
        mask = torch.linspace(-1, 1, 35).reshape(5, 7).to(device).requires_grad_()
        q, k, v = (t.to(device) for t in tensors(torch.float32))
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask).pow(2).sum().backward()
        results.append(mask.grad.cpu())
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_forward_without_gradient_equals_training():
    q, k, v = (t.to("tpu") for t in tensors(torch.float32))
    with torch.no_grad():
        expected = F.scaled_dot_product_attention(q, k, v)
    actual = F.scaled_dot_product_attention(*(t.requires_grad_() for t in (q, k, v)))
    torch.testing.assert_close(actual.detach().cpu(), expected.cpu())


def test_dropout_statistics():
    p, n = 0.25, 64
    q, k = torch.zeros(2, 4, n, 8, device="tpu"), torch.zeros(2, 4, n, 8, device="tpu")
    v = torch.eye(n, device="tpu").expand(2, 4, n, n)
    torch.manual_seed(0)
    # Uniform probabilities 1/n through the identity: the result is the dropped and scaled probability matrix.
    matrix = F.scaled_dot_product_attention(q, k, v, dropout_p=p).cpu() * n * (1 - p)
    kept = matrix > 0.5
    torch.testing.assert_close(matrix[kept], torch.ones_like(matrix[kept]), rtol=1e-5, atol=1e-5)
    assert (matrix[~kept] == 0).all()
    assert abs(kept.float().mean().item() - (1 - p)) < 0.01
    assert (kept[0] != kept[1]).any()
    torch.manual_seed(0)
    again = F.scaled_dot_product_attention(q, k, v, dropout_p=p).cpu() * n * (1 - p)
    assert torch.equal(matrix, again)
    other = F.scaled_dot_product_attention(q, k, v, dropout_p=p).cpu() * n * (1 - p)
    assert not torch.equal(matrix, other)


def test_dropout_gradient_uses_the_mask_of_the_forward():
    n, p = 16, 0.5
    torch.manual_seed(3)
    q, k = torch.randn(1, 1, n, 8, device="tpu"), torch.randn(1, 1, n, 8, device="tpu")
    v = torch.eye(n, device="tpu").reshape(1, 1, n, n).clone().requires_grad_()
    dropped = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
    dropped.backward(torch.eye(n, device="tpu").reshape(1, 1, n, n))
    # out = P V with V the identity: the gradient of V for the cotangent I is P^T.
    torch.testing.assert_close(v.grad.cpu(), dropped.detach().mT.cpu(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_multihead_module(masked):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 6, 16)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    results = []
    for device in ("cpu", "tpu"):
        m, y = copy.deepcopy(module).to(device), x.to(device, copy=True).requires_grad_()
        for weights in (True, False):
            out, w = m(y, y, y, key_padding_mask=padding.to(device) if masked else None, need_weights=weights)
            out.pow(2).mean().backward()
            results.append([out.detach().cpu(), y.grad.cpu().clone(), None if w is None else w.detach().cpu()])
        results.append([p.grad.cpu() for p in m.parameters()])
    for actual, expected in zip(results[3:], results[:3]):
        for a, e in zip(actual, expected):
            if e is not None:
                torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


def test_encoder_layer_in_both_modes():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 6, 16)
    for training in (True, False):
        layer.train(training)
        expected = layer(x).detach()
        actual = copy.deepcopy(layer).to("tpu")(x.to("tpu")).detach()
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
