"""Random programs over aliasing views, run on two devices and compared.

A program starts from one base tensor and at least three live aliases of it, then reads, writes in place, makes further
views and checks, in an order drawn from a seeded generator. Every live alias is compared after every write; so are the
copies that reads leave behind, which may share memory with what they were read from until one of them is written.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64)
SIZES = (0, 1, 1, 2, 3, 4, 5)
# What the bytes of a base may be taken for. Not bfloat16: an op on it gives every NaN the same bits (docs/numerics.md).
REINTERPRETATIONS = (torch.float32, torch.int32, torch.int16, torch.int64)
MOST_TENSORS = 10


def _converts(source: torch.Tensor, dtype: torch.dtype) -> bool:
    """Is every element's conversion defined? A NaN or a float beyond the integers has no integer (docs/numerics.md)."""
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool or not source.is_floating_point():
        return True
    return bool((source.abs() < torch.iinfo(dtype).max / 2).all())


def _values(shape: list[int], dtype: torch.dtype, rng: random.Random) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(-9, 10, shape, generator=generator).to(dtype)
    if dtype.is_complex:
        parts = torch.randint(-8, 9, [*shape, 2], generator=generator).float() / 2
        return torch.view_as_complex(parts).to(dtype)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype) / 2


def _shape(rng: random.Random) -> list[int]:
    """A shape of rank 0 to 5; one in five has equal sizes, so that transposed views have the shape of their base."""
    rank = rng.randrange(6)
    if rng.random() < 0.2:
        return [rng.choice((2, 3))] * min(rank, 3)
    return [rng.choice(SIZES) for _ in range(rank)]


def _overlaps(x: torch.Tensor) -> bool:
    """True if two elements of x share memory."""
    flat = torch.zeros(x.untyped_storage().nbytes() // x.element_size(), dtype=torch.int32)
    alias = flat.as_strided(x.shape, x.stride(), x.storage_offset())
    places = torch.arange(flat.numel()).as_strided(x.shape, x.stride(), x.storage_offset())
    return places.unique().numel() != alias.numel()


def _bytes(x: torch.Tensor) -> set[int]:
    """Where the bytes of x lie."""
    first = torch.arange(x.untyped_storage().nbytes() // x.element_size())
    first = first.as_strided(x.shape, x.stride(), x.storage_offset()).reshape(-1, 1) * x.element_size()
    places = first + torch.arange(x.element_size()) + x.untyped_storage().data_ptr()
    return set(places.reshape(-1).tolist())


def _may_meet(x: torch.Tensor, y: torch.Tensor) -> bool:
    """May y be read while x is written? True if PyTorch defines the outcome, be it an error."""
    if _overlaps(x) or _overlaps(y):
        return False
    if x.is_conj() != y.is_conj() or x.is_neg() != y.is_neg():
        return _bytes(x).isdisjoint(_bytes(y))
    if x.data_ptr() == y.data_ptr():  # strides of single elements may differ, and PyTorch looks at them
        return x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype
    return (x.is_contiguous() and y.is_contiguous()) or _bytes(x).isdisjoint(_bytes(y))


def _equal(x: torch.Tensor, y: torch.Tensor, bits: bool) -> bool:
    if bits and x.numel():
        x, y = (t.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8) for t in (x, y))
    return torch.equal(x, y)


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
        # Whether bytes are seen as other dtypes, too: then floats are moved only, because arithmetic on arbitrary bits
        # may change a NaN's payload or flush a subnormal.
        self.bits = self.dtype in (torch.float32, torch.int64) and rng.random() < 0.4
        shape = _shape(rng)
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

    def _computes(self, x: torch.Tensor) -> bool:
        """Does arithmetic on x have one right answer?"""
        return x.dtype is not torch.bool and not (self.bits and x.is_floating_point())

    def _changes(self, x: torch.Tensor) -> list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
        """Views of the sizes of x that differ from it in one property."""
        changes: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = []
        if x.is_complex():
            changes.append(("conj", torch.conj))
        if self._computes(x):
            changes.append(("neg", torch._neg_view))
        if x.dim() > 1 and x.size(0) == x.size(1):
            changes.append(("transposed", lambda t: t.transpose(0, 1)))
        return changes

    def view(self) -> None:
        rng = self.rng
        index = rng.randrange(len(self.want))
        x = self.want[index]
        rank = x.dim()
        kind = rng.choice(
            (
                "slice",
                "slice",
                "transpose",
                "permute",
                "select",
                "unsqueeze",
                "expand",
                "flatten",
                "as_strided",
                "alias",
                "diagonal",
                "split",
                "halves",
                "dtype",
                "bits",
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
        elif kind == "permute" and rank > 2:
            order = rng.sample(range(rank), rank)
            self._both(index, f"permute({order})", lambda t: t.permute(order))
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
        elif kind == "halves" and rank and x.size(0) > 1:
            half = x.size(0) // 2
            self._both(index, "first half", lambda t: t[:half])
            self._both(index, "last half", lambda t: t[-half:])
        elif kind == "dtype" and self.bits:
            dtype = rng.choice(REINTERPRETATIONS)
            self._both(index, f"view({dtype})", lambda t: t.view(dtype))
        elif kind == "bits" and x.is_complex():
            name = rng.choice(("conj", "conj", "view_as_real", "real", "imag"))
            self._both(index, name, lambda t: getattr(torch, name)(t))
        elif kind == "bits" and self._computes(x):
            self._both(index, "_neg_view", lambda t: torch._neg_view(t))

    def read(self) -> None:
        """Computes something without writing; the result is compared, and often kept."""
        rng = self.rng
        index = rng.randrange(len(self.want))
        x = self.want[index]
        kind = rng.choice(("clone", "clone", "roll", "flip", "cat", "cumsum", "triu", "to", "add"))
        if x.numel() == 0:  # strides of empty results may differ
            kind = "clone"
        before = len(self.want)
        d = rng.randrange(x.dim()) if x.dim() else 0
        n = rng.randrange(-2, 3)
        if kind == "clone":
            self._both(index, "clone", lambda t: t.clone())
        elif kind == "roll" and x.dim():
            self._both(index, f"roll({n},{d})", lambda t: t.roll(n, d))
        elif kind == "flip" and x.dim():
            self._both(index, f"flip({d})", lambda t: t.flip(d))
        elif kind == "cat" and x.dim():
            self._both(index, f"cat({d})", lambda t: torch.cat([t, t], d))
        elif kind == "cumsum" and x.dim() and x.dtype in (torch.int32, torch.int64):
            self._both(index, f"cumsum({d})", lambda t: t.cumsum(d))
        elif kind == "triu" and x.dim() > 1:
            self._both(index, f"triu({n})", lambda t: t.triu(n))
        elif kind == "to" and not self.bits:
            dtype = rng.choice((torch.bool, torch.complex64))
            self._both(index, f"to({dtype})", lambda t: t.to(dtype))
        elif kind == "add" and self._computes(x):
            others = [i for i, y in enumerate(self.want) if y.shape == x.shape and y.dtype == x.dtype]
            other = rng.choice(others)
            want, got = x + self.want[other], self.got[index] + self.got[other]
            self.log.append(f"[{index}] + [{other}]")
            assert not self.looks() or torch.equal(got.cpu(), want), f"{self.trace()}: got {got.tolist()}"
        if len(self.want) > before:
            want, got = self.want[-1], self.got[-1]
            assert want.shape == got.shape, self.trace()
            assert not self.looks() or _equal(got.cpu(), want, self.bits), f"{self.trace()}: got {got.tolist()}"
            # Strides of a result are PyTorch's to choose where a dimension has a single element.
            if want.stride() != got.stride() or (kind != "clone" and rng.random() < 0.5):
                self.want.pop()
                self.got.pop()
                self.log.append("dropped")

    def write(self) -> None:
        rng = self.rng
        index = rng.randrange(len(self.want))
        x = self.want[index]
        kinds = ("add_", "copy_", "fill_", "mul_", "zero_", "read_write", "masked_fill_", "out", "in_place")
        kind = rng.choice(kinds + ("alias", "alias", "list", "outs", "outs"))
        numeric = self._computes(x)
        if _overlaps(x) and 0 not in x.stride():
            # PyTorch neither refuses this nor says in which order it writes: only a constant has one right answer.
            kind = "fill_"
        if kind == "add_" and numeric:
            other = _values(list(x.shape), x.dtype, rng)
            self._apply(index, "add_", lambda t: t.add_(other.to(t.device)))
        elif kind == "copy_":
            dtype = rng.choice((x.dtype, x.dtype, torch.int64, torch.bool))
            other = _values(list(x.shape), dtype, rng)
            from_host = rng.random() < 0.5
            self._apply(index, f"copy_({dtype})", lambda t: t.copy_(other if from_host else other.to(t.device)))
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
        elif kind == "in_place" and x.dim() > 1 and not _overlaps(x):
            n = rng.randrange(-2, 3)
            self._apply(index, f"triu_({n})", lambda t: t.triu_(n))
        elif kind == "read_write":
            other = rng.randrange(len(self.want))
            y = self.want[other]
            if y.shape == x.shape and y.is_complex() <= x.is_complex() and _converts(y, x.dtype):
                self._apply_pair(index, other, "copy_(alias)", lambda t, s: t.copy_(s.clone()))
        elif kind == "out" and numeric:
            other = rng.randrange(len(self.want))
            source = _values(list(x.shape), x.dtype, rng)
            if self.want[other].shape == x.shape and self.want[other].dtype == x.dtype:
                self._apply_pair(
                    index, other, "add(out=)", lambda t, s: torch.add(s.clone(), source.to(s.device), out=t)
                )
        elif kind in ("alias", "list", "outs"):
            self._write_with_another(kind, index)

    def _write_with_another(self, kind: str, index: int) -> None:
        """Writes one tensor from another, or both, without copies in between."""
        rng = self.rng
        x = self.want[index]
        others = [i for i, y in enumerate(self.want) if y.shape == x.shape and y.dtype == x.dtype and i != index]
        if not others:
            return
        other = rng.choice(others)
        y = self.want[other]
        if kind == "alias" and _may_meet(x, y):
            if not self._computes(x) or rng.random() < 0.4:
                self._apply_pair(index, other, "copy_", lambda t, s: t.copy_(s))
                # Once more with one property changed: a key that leaves it out finds the first call's program.
                for name, changed in self._changes(y):
                    if _may_meet(x, changed(y)):
                        self._apply_pair(index, other, f"copy_({name})", lambda t, s: t.copy_(changed(s)))
            elif rng.random() < 0.5:
                self._apply_pair(index, other, "add_", lambda t, s: t.add_(s))
            else:
                self._apply_pair(index, other, "add(t, s, out=t)", lambda t, s: torch.add(t, s, out=t))
        elif kind == "list" and self._computes(x) and not _overlaps(x) and not _overlaps(y):
            self._apply_pair(index, other, "_foreach_add_", lambda t, s: torch._foreach_add_([t, s], 1))
        elif kind == "outs" and self._computes(x) and not x.is_complex() and _bytes(x).isdisjoint(_bytes(y)):
            if x.numel() == 0 or _overlaps(x) or _overlaps(y):
                return
            source = _values([2, *x.shape], x.dtype, rng)
            self._apply_pair(
                index, other, "aminmax(out=)", lambda t, s: torch.aminmax(source.to(t.device), dim=0, out=(t, s))
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
            if self.looks() and not _equal(got.cpu(), want, self.bits):
                raise AssertionError(f"{self.trace()}\nalias {i}: got {got.cpu().tolist()}, want {want.tolist()}")

    def looks(self) -> bool:
        """Are elements read here? In the fused mode that makes what is recorded run (fused_programs.py)."""
        return True

    def trace(self) -> str:
        return f"seed {self.seed}: " + "; ".join(self.log)

    def run(self) -> None:
        for _ in range(3):
            self.view()
        while len(self.want) < 4:
            self._both(0, "detach", lambda t: t.detach())
        for _ in range(self.rng.randrange(5, 41)):
            choice = self.rng.random()
            if choice < 0.3 and len(self.want) < MOST_TENSORS:
                self.view()
            elif choice < 0.4 and len(self.want) < MOST_TENSORS:
                self.read()
            else:
                self.write()
        self.compare()
