"""Random programs over aliasing views, run on two devices and compared.

A program starts from one base tensor and at least three live aliases of it, then reads, writes in place, makes further
views and checks, in an order drawn from a seeded generator. Every live alias is compared after every write.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)
SIZES = (0, 1, 1, 2, 3, 4, 5)


def _values(shape: list[int], dtype: torch.dtype, rng: random.Random) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype is torch.int64:
        return torch.randint(-9, 10, shape, generator=generator)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype) / 2


def _overlaps(x: torch.Tensor) -> bool:
    """True if two elements of x share memory."""
    flat = torch.zeros(x.untyped_storage().nbytes() // x.element_size(), dtype=torch.int32)
    alias = flat.as_strided(x.shape, x.stride(), x.storage_offset())
    places = torch.arange(flat.numel()).as_strided(x.shape, x.stride(), x.storage_offset())
    return places.unique().numel() != alias.numel()


@dataclass
class Program:
    """One program: the aliases on the reference device and on the device under test, and a log of what was done."""

    seed: int
    device: torch.device
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        rng = self.rng
        self.dtype = rng.choice(DTYPES)
        shape = [rng.choice(SIZES) for _ in range(rng.randrange(6))]
        base = _values(shape, self.dtype, rng)
        self.want = [base]
        self.got = [base.to(self.device)]
        self.log.append(f"base {tuple(shape)} {self.dtype}")

    def _both(self, index: int, what: str, f) -> None:
        """Adds the view f makes of alias `index` on both sides; the error types must agree."""
        want = got = None
        want_error = got_error = None
        try:
            want = f(self.want[index])
        except (RuntimeError, IndexError) as error:
            want_error = error
        try:
            got = f(self.got[index])
        except (RuntimeError, IndexError) as error:
            got_error = error
        assert type(want_error) is type(got_error), f"{what}: CPU {want_error!r}, device {got_error!r}"
        if want_error is None:
            self.log.append(f"[{len(self.want)}] = {what}([{index}])")
            self.want.append(want)
            self.got.append(got)

    def view(self) -> None:
        rng = self.rng
        index = rng.randrange(len(self.want))
        x = self.want[index]
        rank = x.dim()
        kind = rng.choice(
            (
                "slice",
                "transpose",
                "select",
                "unsqueeze",
                "expand",
                "flatten",
                "as_strided",
                "flip_view",
                "alias",
                "diagonal",
                "split",
            )
        )
        if kind == "slice" and rank:
            d = rng.randrange(rank)
            start = rng.randrange(x.size(d) + 1)
            stop = rng.randrange(start, x.size(d) + 1)
            step = rng.choice((1, 1, 2, 3))
            at = (slice(None),) * d + (slice(start, stop, step),)
            self._both(index, f"slice{at}", lambda t: t[at])
        elif kind == "transpose" and rank > 1:
            a, b = rng.sample(range(rank), 2)
            self._both(index, f"transpose({a},{b})", lambda t: t.transpose(a, b))
        elif kind == "select" and rank and all(x.shape):
            d = rng.randrange(rank)
            i = rng.randrange(x.size(d))
            self._both(index, f"select({d},{i})", lambda t: t.select(d, i))
        elif kind == "unsqueeze" and rank < 5:
            d = rng.randrange(rank + 1)
            self._both(index, f"unsqueeze({d})", lambda t: t.unsqueeze(d))
        elif kind == "expand":
            n = rng.choice((1, 2, 3))
            if rank < 5:
                self._both(index, f"expand({n},...)", lambda t: t.expand(n, *t.shape))
        elif kind == "flatten" and x.is_contiguous():
            self._both(index, "view(-1)", lambda t: t.view(-1) if t.numel() else t)
        elif kind == "as_strided" and x.numel() > 1:
            room = x.untyped_storage().nbytes() // x.element_size()
            size = (rng.randrange(1, 4), rng.randrange(1, 4))
            stride = (rng.randrange(0, 4), rng.randrange(0, 4))
            offset = rng.randrange(room)
            if offset + (size[0] - 1) * stride[0] + (size[1] - 1) * stride[1] < room:
                self._both(index, f"as_strided({size},{stride},{offset})", lambda t: t.as_strided(size, stride, offset))
        elif kind == "alias":
            self._both(index, "detach", lambda t: t.detach())
        elif kind == "diagonal" and rank > 1:
            self._both(index, "diagonal", lambda t: t.diagonal(0, 0, 1))
        elif kind == "split" and rank and x.size(0) > 1:
            self._both(index, "split", lambda t: t.split(1)[-1])

    def write(self) -> None:
        rng = self.rng
        index = rng.randrange(len(self.want))
        x = self.want[index]
        kind = rng.choice(("add_", "copy_", "fill_", "mul_", "zero_", "read_write", "masked_fill_", "out"))
        numeric = self.dtype is not torch.bool
        if _overlaps(x) and 0 not in x.stride():
            # PyTorch neither refuses this nor says in which order it writes: only a constant has one right answer.
            kind = "fill_"
        if kind == "add_" and numeric:
            other = _values(list(x.shape), self.dtype, rng)
            self._apply(index, "add_", lambda t: t.add_(other.to(t.device)))
        elif kind == "copy_":
            other = _values(list(x.shape), self.dtype, rng)
            from_host = rng.random() < 0.5
            self._apply(index, "copy_", lambda t: t.copy_(other if from_host else other.to(t.device)))
        elif kind == "fill_":
            value = rng.randrange(2)
            self._apply(index, f"fill_({value})", lambda t: t.fill_(value))
        elif kind == "mul_" and numeric:
            self._apply(index, "mul_(2)", lambda t: t.mul_(2))
        elif kind == "zero_":
            self._apply(index, "zero_", lambda t: t.zero_())
        elif kind == "masked_fill_":
            if _overlaps(x):  # deprecated in PyTorch (it warns and writes in no defined order); the device refuses
                return
            mask = torch.randint(0, 2, x.shape, generator=torch.Generator().manual_seed(rng.randrange(2**31))).bool()
            self._apply(index, "masked_fill_", lambda t: t.masked_fill_(mask.to(t.device), 1))
        elif kind == "read_write":
            other = rng.randrange(len(self.want))
            if self.want[other].shape == x.shape:
                self._apply_pair(index, other, "copy_(alias)", lambda t, s: t.copy_(s.clone()))
        elif kind == "out" and numeric:
            other = rng.randrange(len(self.want))
            source = _values(list(x.shape), self.dtype, rng)
            if self.want[other].shape == x.shape:
                self._apply_pair(
                    index, other, "add(out=)", lambda t, s: torch.add(s.clone(), source.to(s.device), out=t)
                )

    def _apply(self, index: int, what: str, f) -> None:
        self._apply_pair(index, index, what, lambda t, _: f(t))

    def _apply_pair(self, index: int, other: int, what: str, f) -> None:
        errors = []
        for side in (self.want, self.got):
            try:
                f(side[index], side[other])
                errors.append(None)
            except (RuntimeError, IndexError) as error:
                errors.append(error)
        self.log.append(f"{what} on [{index}] from [{other}]")
        assert type(errors[0]) is type(errors[1]), f"{self.trace()}: CPU {errors[0]!r}, device {errors[1]!r}"
        self.compare()

    def compare(self) -> None:
        for i, (want, got) in enumerate(zip(self.want, self.got, strict=True)):
            assert got.shape == want.shape and got.stride() == want.stride(), (
                f"{self.trace()}\nalias {i}: shape or strides differ"
            )
            if not torch.equal(got.cpu(), want):
                raise AssertionError(f"{self.trace()}\nalias {i}: got {got.cpu().tolist()}, want {want.tolist()}")

    def trace(self) -> str:
        return f"seed {self.seed}: " + "; ".join(self.log)

    def run(self) -> None:
        for _ in range(3):
            self.view()
        while len(self.want) < 4:
            self._both(0, "detach", lambda t: t.detach())
        for _ in range(self.rng.randrange(5, 41)):
            self.view() if self.rng.random() < 0.35 and len(self.want) < 9 else self.write()
        self.compare()
