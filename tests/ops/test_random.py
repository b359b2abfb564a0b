"""Random ops: the generator's bits, reproducibility, exact ranges and the shapes of the distributions."""

import math

import pytest
import torch

pytestmark = pytest.mark.usefixtures("without_fallback")

N = 40_000


def seeded(seed: int = 0) -> None:
    torch.manual_seed(seed)


def assert_moments(x: torch.Tensor, mean: float, variance: float, fourth: float | None = None) -> None:
    """Mean and variance within five standard errors; `fourth` is the fourth central moment (normal if not given)."""
    x = x.detach().cpu().double().flatten()
    n = x.numel()
    fourth = 3 * variance**2 if fourth is None else fourth
    assert abs(x.mean().item() - mean) < 5 * math.sqrt(variance / n) + 1e-12
    assert abs(x.var().item() - variance) < 6 * math.sqrt(max(fourth - variance**2, 0) / n) + 1e-12


def test_bits_are_philox():
    # The known answer of Random123 for counter 0 and key 0, low halves of the four words.
    seeded(0)
    x = torch.empty(4, dtype=torch.int64, device="tpu").random_(0, 1 << 16)
    assert x.tolist() == [0x6627E8D5 & 0xFFFF, 0xE169C58D & 0xFFFF, 0xBC57AC4C & 0xFFFF, 0x9B00DBD8 & 0xFFFF]


def test_seed_decides_and_calls_differ():
    seeded(7)
    first, second = torch.rand(100, device="tpu"), torch.rand(100, device="tpu")
    seeded(7)
    again = torch.rand(100, device="tpu")
    assert torch.equal(first.cpu(), again.cpu())
    assert not torch.equal(first.cpu(), second.cpu())
    assert not set(first.tolist()) & set(second.tolist())
    seeded(8)
    assert not torch.equal(torch.rand(100, device="tpu").cpu(), first.cpu())


def test_generator_argument():
    g = torch.Generator("tpu").manual_seed(3)
    a = torch.randn(10, device="tpu", generator=g)
    g.manual_seed(3)
    assert torch.equal(a.cpu(), torch.randn(10, device="tpu", generator=g).cpu())


def test_state_round_trip():
    seeded(1)
    torch.rand(5, device="tpu")
    state = torch.tpu.get_rng_state()
    a = torch.rand(5, device="tpu")
    torch.tpu.set_rng_state(state)
    assert torch.equal(a.cpu(), torch.rand(5, device="tpu").cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_uniform(dtype):
    seeded()
    x = torch.empty(N, dtype=dtype, device="tpu").uniform_(1, 2)
    assert x.min().item() >= 1 and x.max().item() < 2
    step = torch.finfo(dtype).eps
    assert_moments(x.double() if dtype == torch.float64 else x.float(), 1.5, 1 / 12, 1 / 80) if step < 1e-3 else None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_normal(dtype):
    seeded()
    x = torch.empty(N, dtype=dtype, device="tpu").normal_(2, 3)
    assert x.dtype == dtype
    y = x.double().cpu()
    assert_moments(y, 2, 9)
    z = ((y - 2) / 3).sort().values
    cdf = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    distance = (cdf - torch.arange(1, N + 1) / N).abs().max().item()
    assert distance < 1.95 / math.sqrt(N) + (0.01 if dtype == torch.bfloat16 else 0)


def test_neighbours_are_independent():
    seeded()
    x = torch.randn(N, device="tpu").cpu()
    for lag in (1, 2, 3, 4, 8):
        assert abs((x[:-lag] * x[lag:]).mean().item()) < 5 / math.sqrt(N)


def test_complex_normal():
    seeded()
    x = torch.randn(N, dtype=torch.complex64, device="tpu").cpu()
    assert_moments(x.real, 0, 0.5)
    assert_moments(x.imag, 0, 0.5)
    assert abs((x.real * x.imag).mean().item()) < 5 * 0.5 / math.sqrt(N)


def test_normal_overloads():
    seeded()
    mean, std = torch.full((N,), 2.0, device="tpu"), torch.full((N,), 0.5, device="tpu")
    for x in (
        torch.normal(mean, std),
        torch.normal(mean, 0.5),
        torch.normal(2.0, std),
        torch.normal(2.0, 0.5, (N,), device="tpu"),
    ):
        assert_moments(x, 2, 0.25)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_bernoulli(p):
    seeded()
    for x in (
        torch.empty(N, device="tpu").bernoulli_(p),
        torch.empty(N, dtype=torch.bool, device="tpu").bernoulli_(p).float(),
        torch.bernoulli(torch.full((N,), p, device="tpu")),
        torch.empty(N, dtype=torch.int32, device="tpu").bernoulli_(torch.full((N,), p, device="tpu")).float(),
    ):
        assert set(
            x.unique().tolist() if hasattr(x, "unique") and x.device.type == "cpu" else x.cpu().unique().tolist()
        ) <= {0.0, 1.0}
        assert_moments(x, p, p * (1 - p), p * (1 - p) * (1 - 3 * p * (1 - p)))


def test_integers_cover_their_range_exactly():
    seeded()
    x = torch.randint(-3, 4, (N,), device="tpu").cpu()
    counts = torch.bincount(x + 3, minlength=7)
    assert x.min() == -3 and x.max() == 3
    assert ((counts - N / 7).abs() < 5 * math.sqrt(N / 7)).all()
    limits = torch.iinfo(torch.int64)
    wide = torch.empty(N, dtype=torch.int64, device="tpu").random_(limits.min, None).cpu()
    assert (wide < 0).float().mean().sub(0.5).abs() < 0.02
    assert (
        torch.empty(N, dtype=torch.int64, device="tpu")
        .random_(limits.max - 1, limits.max)
        .cpu()
        .eq(limits.max - 1)
        .all()
    )
    nearly = torch.randint(0, 3 << 40, (N,), device="tpu").double().cpu()
    assert_moments(nearly / (3 << 40), 0.5, 1 / 12, 1 / 80)
    for dtype, top in ((torch.uint8, 255), (torch.int8, 127), (torch.bool, 1)):
        y = torch.empty(N, dtype=dtype, device="tpu").random_().cpu().long()
        assert y.min() == 0 and y.max() == top
    assert torch.empty(N, device="tpu").random_().max().item() <= 1 << 24


def test_continuous_distributions():
    seeded()
    x = torch.empty(N, device="tpu").exponential_(2.0)
    assert x.min().item() > 0
    assert_moments(x, 0.5, 0.25, 9 * 0.0625)
    logs = torch.empty(N, device="tpu").log_normal_(0.2, 0.5).log()
    assert_moments(logs, 0.2, 0.25)
    cauchy = torch.empty(N, device="tpu").cauchy_(1.0, 2.0).cpu()
    assert abs(cauchy.median().item() - 1.0) < 0.1
    assert abs(((cauchy - 1).abs() < 2).float().mean().item() - 0.5) < 0.02
    geometric = torch.empty(N, device="tpu").geometric_(0.25)
    assert geometric.min().item() == 1
    assert_moments(geometric, 4, 12, 9 * 144 + 12)


@pytest.mark.parametrize("rate", [0.0, 0.5, 4.0, 10.0, 60.0, 1000.0])
def test_poisson(rate):
    seeded()
    x = torch.poisson(torch.full((N,), rate, device="tpu"))
    assert x.cpu().eq(x.cpu().round()).all() and x.min().item() >= 0
    assert_moments(x, rate, rate, 3 * rate**2 + rate)


@pytest.mark.parametrize("n,p", [(10, 0.3), (10, 0.9), (1000, 0.5), (1000, 0.01), (40, 0.0), (40, 1.0), (0, 0.5)])
def test_binomial(n, p):
    seeded()
    x = torch.binomial(torch.full((N,), float(n), device="tpu"), torch.full((N,), p, device="tpu"))
    variance = n * p * (1 - p)
    assert x.min().item() >= 0 and x.max().item() <= n
    assert_moments(x, n * p, variance, 3 * variance**2 + variance)


@pytest.mark.parametrize("shape", [0.1, 0.7, 1.0, 5.0, 100.0])
def test_gamma(shape):
    seeded()
    x = torch._standard_gamma(torch.full((N,), shape, device="tpu"))
    assert x.min().item() > 0
    assert_moments(x, shape, shape, 3 * shape**2 + 6 * shape)


def test_dirichlet():
    seeded()
    x = torch._sample_dirichlet(torch.tensor([1.0, 2.0, 3.0], device="tpu").expand(N, 3).contiguous()).cpu()
    torch.testing.assert_close(x.sum(1), torch.ones(N), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(x.mean(0), torch.tensor([1 / 6, 2 / 6, 3 / 6]), rtol=0.03, atol=0.01)


@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
def test_dropout(p):
    seeded()
    x = torch.ones(N, device="tpu", requires_grad=True)
    y = torch.nn.functional.dropout(x, p, training=True)
    kept = y.detach().cpu() != 0
    assert abs(kept.float().mean().item() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / N) + 1e-9
    if p < 1:
        torch.testing.assert_close(y.detach().cpu()[kept], torch.full((int(kept.sum()),), 1 / (1 - p)))
    y.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.detach().cpu())
    assert torch.equal(torch.nn.functional.dropout(x, p, training=False).detach().cpu(), x.detach().cpu())


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_randperm(n):
    seeded()
    x = torch.randperm(n, device="tpu")
    assert x.dtype == torch.int64 and x.cpu().sort().values.tolist() == list(range(n))
    if n == 1000:
        assert x.tolist() != list(range(n)) and torch.randperm(n, device="tpu").tolist() != x.tolist()


def test_randperm_is_uniform():
    seeded()
    counts = torch.zeros(4, 4)
    for _ in range(400):
        counts[torch.arange(4), torch.randperm(4, device="tpu").cpu()] += 1
    assert ((counts - 100).abs() < 50).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_never_draws_zero_weights(replacement, dtype):
    seeded()
    weights = torch.rand(64, 100, dtype=dtype)
    weights[:, ::3] = 0
    drawn = torch.multinomial(weights.to("tpu"), 30, replacement=replacement).cpu()
    assert (weights.gather(1, drawn) > 0).all()
    if not replacement:
        assert all(len(set(row)) == 30 for row in drawn.tolist())


def test_multinomial_frequencies():
    seeded()
    weights = torch.tensor([0.1, 0.0, 0.4, 2.0, 0.5])
    expected = weights / weights.sum()
    with_replacement = torch.multinomial(weights.to("tpu"), N, replacement=True).cpu()
    single = torch.multinomial(weights.expand(N, 5).contiguous().to("tpu"), 1).cpu().flatten()
    for drawn in (with_replacement, single):
        share = torch.bincount(drawn, minlength=5) / N
        assert ((share - expected).abs() < 5 * (expected * (1 - expected) / N).sqrt() + 1e-9).all()


def test_rrelu():
    seeded()
    x = torch.linspace(-2, 2, N).to("tpu").requires_grad_()
    y = torch.nn.functional.rrelu(x, 0.1, 0.5, training=True)
    slope = (y / x).detach().cpu()[: N // 2 - 1]
    assert slope.min() >= 0.1 - 1e-6 and slope.max() <= 0.5 + 1e-6
    assert_moments(slope, 0.3, 0.16 / 12, 0.4**4 / 80)
    assert torch.equal(y.detach().cpu()[N // 2 :], x.detach().cpu()[N // 2 :])
    y.sum().backward()
    torch.testing.assert_close(x.grad.cpu()[: N // 2 - 1], slope, rtol=1e-4, atol=1e-5)
    evaluated = torch.nn.functional.rrelu(x.detach(), 0.1, 0.5, training=False).cpu()
    torch.testing.assert_close(evaluated, torch.nn.functional.rrelu(x.detach().cpu(), 0.1, 0.5, training=False))


def test_writes_through_views_and_without_elements():
    seeded()
    base = torch.zeros(4, 4, device="tpu")
    base[1].uniform_(1, 2)
    base[:, 3].normal_(100, 1)
    assert (base.cpu()[0, :3] == 0).all() and (base.cpu()[1, :3] >= 1).all() and (base.cpu()[:, 3] > 50).all()
    torch.rand(0, 3, device="tpu")
    torch.empty(0, device="tpu").bernoulli_(0.5)
    assert torch.multinomial(torch.rand(0, 4, device="tpu"), 2, replacement=True).shape == (0, 2)
