"""Losses and their gradients against CPU PyTorch."""

import comparing
import pytest
import torch
import torch.nn.functional as F
from both_devices import cases, compare_with_float32

pytestmark = [
    pytest.mark.usefixtures("without_fallback"),
    pytest.mark.filterwarnings("ignore:.*target size.*"),
    pytest.mark.filterwarnings("ignore:.*reduction.*"),
]

LOSSES = sorted(
    name
    for name in comparing.BY_NAME
    if name.startswith("nn.functional.")
    and ("loss" in name or name.endswith(("cross_entropy", "cross_entropy_with_logits", "kl_div")))
) + ["nn.functional.cosine_similarity", "nn.functional.pairwise_distance"]


@pytest.fixture(autouse=True)
def narrow_tolerance(monkeypatch):
    monkeypatch.setitem(comparing.TOLERANCES, torch.bfloat16, (2e-2, 2e-2))


@pytest.mark.parametrize("op,dtype", cases(LOSSES, (torch.float32, torch.float64)))
def test_forward(op, dtype):
    assert comparing.compare(op, dtype, limit=8) > 0


@pytest.mark.parametrize("op,dtype", cases(LOSSES, (torch.bfloat16,)))
def test_narrow_forward(op, dtype):
    # PyTorch composes this one of several ops, each of which rounds, on the CPU too.
    compare = comparing.compare if op.name == "nn.functional.hinge_embedding_loss" else compare_with_float32
    assert compare(op, dtype) > 0


@pytest.mark.parametrize("op,dtype", cases(LOSSES, (torch.float32,), backward=True))
def test_gradient(op, dtype, monkeypatch):
    if op.name == "nn.functional.ctc_loss":
        # A difference of two probabilities, each a sum over all paths in log space.
        monkeypatch.setitem(comparing.TOLERANCES, dtype, (1e-4, 1e-4))
    comparing.compare_gradients(op, dtype, limit=8)


def both(function):
    """Runs `function(device)` on both devices and compares the tensors that it returns."""
    torch.manual_seed(0)
    expected = function("cpu")
    torch.manual_seed(0)
    actual = function("tpu")
    for a, e in zip(actual, expected):
        torch.testing.assert_close(a.cpu(), e.cpu(), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3), (2, 5, 3, 4), (5,)], ids=str)
def test_cross_entropy(shape, smoothing, reduction):
    def run(device):
        logits = torch.randn(shape).to(device).requires_grad_()
        classes = shape[0] if len(shape) == 1 else shape[1]
        target = torch.randint(0, classes, (shape[:1] + shape[2:]) if len(shape) > 1 else ())
        if target.numel() > 1:
            target.view(-1)[1] = -100
        weight = torch.rand(classes).to(device)
        results = []
        for w in (None, weight):
            loss = F.cross_entropy(logits, target.to(device), w, reduction=reduction, label_smoothing=smoothing)
            results += [loss.detach(), *torch.autograd.grad(loss.sum(), logits)]
        return results

    both(run)


def test_cross_entropy_of_nothing_and_of_probabilities():
    def run(device):
        logits = torch.randn(4, 3).to(device).requires_grad_()
        ignored = torch.full((4,), -100).to(device)
        probabilities = torch.rand(4, 3).softmax(-1).to(device)
        loss = F.cross_entropy(logits, probabilities, label_smoothing=0.2)
        (gradient,) = torch.autograd.grad(loss, logits)
        return F.cross_entropy(logits, ignored).detach(), loss.detach(), gradient

    both(run)


def test_target_out_of_range_is_reported():
    logits, target = torch.randn(4, 3, device="tpu"), torch.tensor([0, 1, 3, 2], device="tpu")
    with pytest.raises(IndexError):
        F.cross_entropy(logits, target).item()


@pytest.mark.parametrize("form", ["padded", "concatenated"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc(reduction, zero_infinity, form):
    lengths, inputs = [5, 3, 0, 4], [12, 9, 7, 3 if zero_infinity else 12]

    def run(device):
        x = torch.randn(12, 4, 6).to(device).requires_grad_()
        target = torch.randint(1, 6, (4, 5))
        if form == "concatenated":
            target = torch.cat([row[:n] for row, n in zip(target, lengths)])
        loss = F.ctc_loss(
            x.log_softmax(-1), target.to(device), inputs, lengths, reduction=reduction, zero_infinity=zero_infinity
        )
        return loss.detach(), *torch.autograd.grad(loss.sum(), x)

    both(run)


def test_ctc_of_other_lengths_compiles_nothing():
    def run(inputs, lengths):
        x = torch.randn(12, 2, 6, device="tpu", requires_grad=True)
        target = torch.randint(1, 6, (2, 5)).to("tpu")
        F.ctc_loss(x.log_softmax(-1), target, inputs, lengths).backward()

    run([12, 9], [5, 3])
    before = torch.tpu.compile_count()
    run([11, 10], [2, 4])
    assert torch.tpu.compile_count() == before
    with pytest.raises(RuntimeError, match="input_lengths must be of size batch_size"):
        run([12], [5, 3])
    with pytest.raises(RuntimeError, match="at most 12, but got value 13"):
        run([12, 13], [5, 3])


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_binary_cross_entropy_outside_of_its_domain_is_reported(bad):
    target = torch.tensor([0.0, 1.0])
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(torch.tensor([0.5, bad]), target)
    with pytest.raises(RuntimeError, match="binary_cross_entropy: all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(torch.tensor([0.5, bad], device="tpu"), target.to("tpu")).item()
    assert F.binary_cross_entropy(torch.tensor([0.0, 1.0], device="tpu"), target.to("tpu")).item() == 0
