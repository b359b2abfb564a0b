"""Random programs for the fused eager mode, alone and on several threads, compared with the CPU.

    python fused_programs.py --programs 40 --seed 1 [--faults]

A program is a stream of ops that is repeated a few times with other data, so that its regions return, are compiled and
run as one program. Between ops it looks at values, synchronises, records events, changes the mode, hands tensors over
to other threads: whatever makes recorded ops run. Elements are integers small enough to be exact in float32, so every
order of rounding gives the same bits. With --faults the engine is the test plugin, and compiles of regions fail or take
long, at random.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
import view_programs

TPU = torch.device("tpu")
SHAPES = ((4,), (3, 4), (2, 3, 4))
FLOATS = (3, 4)  # what is handed over: float32 of this shape, so that the taker's stream of ops stays the same
MOST_TENSORS = 10
LARGE = 1 << 16
INTERNAL = 13  # PJRT_Error_Code


@dataclass
class Pair:
    """A tensor on the CPU and the one that must have its elements."""

    want: torch.Tensor
    got: torch.Tensor
    writable: bool = True

    def check(self, where: str) -> None:
        """Reads the device's elements."""
        got = self.got.detach().cpu()
        assert torch.equal(got, self.want.detach()), f"{where}: got {got.tolist()}, want {self.want.tolist()}"


@dataclass
class Shared:
    """What the threads of one run have in common: tensors that nobody writes, and places to hand tensors over."""

    read_only: list[Pair]
    places: list[Pair | None] = field(default_factory=lambda: [None] * 4)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def exchange(self, place: int, pair: Pair | None) -> Pair | None:
        with self.lock:
            pair, self.places[place] = self.places[place], pair
        return pair


def upload(want: torch.Tensor, writable: bool = True) -> Pair:
    return Pair(want, want.to(TPU), writable)


def integers(shape: tuple[int, ...], rng: random.Random, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.randint(-8, 9, shape, generator=generator).to(dtype)


class Draws:
    """A stream of random numbers, drawn in strict mode first: what the fused mode must draw again, in this order."""

    KINDS: tuple[Callable[[torch.Generator], torch.Tensor], ...] = (
        lambda g: (torch.rand(4, generator=g, device=TPU) * 16).floor(),
        lambda g: torch.randint(-4, 5, (3, 4), generator=g, device=TPU).float(),
        lambda g: torch.empty(2, 3, 4, device=TPU).bernoulli_(0.5, generator=g),
    )

    def __init__(self, seed: int, count: int, want: list[torch.Tensor] | None = None) -> None:
        """`want`: what another stream of the same seed has drawn. Without it the mode changes for a moment."""
        if want is None:
            with torch.tpu.eager_mode("strict"):
                generator = torch.Generator(TPU).manual_seed(seed)
                want = [self.KINDS[i % 3](generator).cpu() for i in range(count)]
        self.want = want
        self.generator = torch.Generator(TPU).manual_seed(seed)
        self.drawn = 0

    def next(self) -> Pair:
        # A copy, because the program may write it and another one of this seed wants the same.
        pair = Pair(self.want[self.drawn].clone(), self.KINDS[self.drawn % 3](self.generator))
        self.drawn += 1
        return pair

    def end_round(self) -> None:
        """Draws on to the first kind, with which the next round begins, or its stream of ops would be another."""
        while self.drawn % 3 != 0:
            self.next()


def shown(x: torch.Tensor) -> str:
    """As it is printed, without its device, white space, and signs of zeros: maximum(0, -0) may be either."""
    return re.sub(r"-(?=0\.0*[],)])", "", "".join(str(x).split()).replace(",device='tpu:0'", ""))


def small(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-8, 8)


def gradient(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A backward pass; exact because weights are small."""
    leaf = x.detach().clone().requires_grad_()
    ((leaf * small(weight)).relu() + leaf).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def attention(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products of matrices; of small numbers."""
    return small(x) @ small(y).transpose(-1, -2)


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "clamp": small,
    "sign": torch.sign,
    "clone": torch.clone,
    "add_1": lambda t: t + 1,
    "is_positive": lambda t: (t > 0).to(t.dtype),
    "flip": lambda t: t.flip(0),
    "cumsum": lambda t: small(t).cumsum(0),
    "row_sum": lambda t: small(t).sum(-1, keepdim=True) + torch.zeros_like(t),
    "masked": lambda t: t.masked_fill(t > 3, 2),
    "halves": lambda t: torch.cat([t[1:], t[:1]]),
    "to_int": lambda t: t.to(torch.int64).to(t.dtype),
    "refused": lambda t: t + t.new_zeros(7),
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": lambda a, b: small(a) * small(b),
    "maximum": torch.maximum,
    "where": lambda a, b: torch.where(a > b, a, b + 1),
    "gradient": gradient,
    "attention": attention,
}
WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add_": lambda t, s: t.add_(s),
    "sub_": lambda t, s: t.sub_(s, alpha=2),
    "copy_": lambda t, s: t.copy_(s),
    "neg_": lambda t, s: t.neg_(),
    "clamp_": lambda t, s: t.clamp_(-8, 8),
    "zero_": lambda t, s: t.zero_(),
    "fill_": lambda t, s: t.fill_(3),
    "out": lambda t, s: torch.maximum(t, s, out=t),
    "foreach": lambda t, s: torch._foreach_add_([t, t.detach()], 1),
    "foreach_lists": lambda t, s: torch._foreach_mul_([t.clone().clamp_(-8, 8), t], [s.sign(), s.sign()]),
    "masked_fill_": lambda t, s: t.masked_fill_(s > 0, 1),
}
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tail": lambda t: t[1:],
    "every_other": lambda t: t[..., ::2],
    "first": lambda t: t[0],
    "transpose": lambda t: t.transpose(0, -1),
    "flat": lambda t: t.reshape(-1),
    "detach": lambda t: t.detach(),
    "expand": lambda t: t.unsqueeze(0).expand(2, *t.shape),
}


class Program:
    """One stream of ops. `steps` is a generator, so that a scheduler can interleave several programs op by op."""

    DRAWS = 12  # per round

    def __init__(self, seed: int, shared: Shared, draws: list[torch.Tensor] | None = None) -> None:
        self.seed = seed
        self.shared = shared
        rng = random.Random(seed)
        self.length = rng.randrange(5, 41)
        self.flushes = rng.choice((0.0, 0.02, 0.1, 0.3))
        self.checks = rng.choice((0.0, 0.02, 0.2))
        self.ends_look = rng.random() < 0.5
        self.rounds = 6 if self.ends_look else 9  # where a round begins must be found out then
        self.waits = rng.choice(((), (1, 2), (1, 3)))  # rounds after which programs are ready
        # Rounds in which somebody keeps what the others drop or overwrite: the same ops, other holders.
        self.keeps = rng.choice(((), (self.rounds - 1,), (0, 4), (1, 4)))
        self.kept: list[Pair] = []
        self.pauses = rng.random() < 0.3
        self.switches = rng.random() < 0.25
        # In some programs the taken branch changes from round to round: then no region returns.
        self.changes = rng.random() < 0.1
        self.draws = Draws(seed, self.DRAWS * self.rounds, draws)
        self.log: list[str] = []
        self.ops: Counter[str] = Counter()
        data = random.Random(seed + 1)
        self.state = [upload(integers(FLOATS, data)), upload(integers(FLOATS, data, torch.int64))]

    def where(self) -> str:
        return f"seed {self.seed}: " + "; ".join(self.log[-60:])

    def steps(self) -> Iterator[None]:
        for self.round in range(self.rounds):
            self.log.append(f"round {self.round}")
            # The same choices in every round, with other numbers.
            self.rng = random.Random(self.seed + (self.round if self.changes else 0))
            self.data = random.Random(self.seed * 7919 + self.round)
            self.pool = [upload(integers(shape, self.data)) for shape in SHAPES]
            self.pool += [upload(integers(FLOATS, self.data, torch.int64)), *self.shared.read_only, *self.state]
            for pair in self.state:
                self.write("clamp_", pair, pair)
            for _ in range(self.length):
                self.step()
                yield
            self.draws.end_round()
            if self.round == self.rounds - 1:
                self.pool += self.kept
            if self.round == self.rounds - 1 or self.ends_look:
                for pair in [*self.pool, *self.state]:
                    pair.check(self.where())
            if self.round in self.waits:
                torch.tpu.synchronize_compiles()
            yield
        if self.switches:
            torch.tpu.eager_mode("fused")

    # --- ops -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        if rng.random() < self.flushes:
            self.flush()
        if rng.random() < self.checks:
            rng.choice(self.pool).check(self.where())
        kind = rng.choice(
            ("unary", "binary", "binary", "crossed", "write", "write", "view", "drop", "state", "draw", "hand_over")
        )
        if kind == "unary":
            name = rng.choice(list(UNARY))
            self.add(name, UNARY[name], rng.choice(self.pool))
        elif kind == "binary":
            name = rng.choice(list(BINARY))
            pair = rng.choice(self.pool)
            self.add(name, BINARY[name], pair, self.like(pair))
        elif kind == "crossed":
            self.crossed(rng.choice(self.pool))
        elif kind == "write":
            pair = rng.choice([p for p in self.pool if p.writable])
            self.write(rng.choice(list(WRITES)), pair, self.like(pair))
        elif kind == "view":
            pair = rng.choice(self.pool)
            name = rng.choice(list(VIEWS))
            self.add(name, VIEWS[name], pair, writable=pair.writable and name != "expand")
        elif kind == "drop" and len(self.pool) > 7:
            self.drop()
        elif kind == "state":
            # As an optimizer does it: a tensor that lives on is written from what was computed.
            pair = rng.choice(self.state)
            self.write(rng.choice(("add_", "sub_", "copy_", "out")), pair, self.like(pair))
        elif kind == "draw" and self.draws.drawn < self.DRAWS * (self.round + 1):
            self.count("draw")
            self.keep(self.draws.next())
        elif kind == "hand_over":
            self.hand_over(rng.randrange(len(self.shared.places)))

    def count(self, name: str) -> None:
        self.log.append(name)
        self.ops[name] += 1

    def like(self, pair: Pair) -> Pair:
        """A tensor that broadcasts to `pair`, of its dtype, and shares no memory with it unless it is the same."""
        fits = [
            p
            for p in self.pool
            if p.want.dtype == pair.want.dtype and p.want.shape in (pair.want.shape, torch.Size([4]))
        ]
        other = self.rng.choice(fits) if fits else pair
        if other is pair or other.want.shape != pair.want.shape and pair.want.shape[-1:] != (4,):
            return pair
        if other.want.untyped_storage().data_ptr() == pair.want.untyped_storage().data_ptr():
            return Pair(other.want.clone(), other.got.clone())
        return other

    def add(self, name: str, f: Callable[..., torch.Tensor], *operands: Pair, writable: bool = True) -> None:
        """Computes on both sides, where errors must be of one type, and keeps the result."""
        self.count(name)
        results: list[torch.Tensor] = []
        errors: list[Exception] = []
        for side in ("want", "got"):
            try:
                results.append(f(*[getattr(p, side) for p in operands]))
            except (RuntimeError, IndexError) as error:
                errors.append(error)
        assert not errors or (len(errors) == 2 and type(errors[0]) is type(errors[1])), f"{self.where()}: {errors}"
        if not errors:
            self.keep(Pair(results[0], results[1], writable))

    def keep(self, pair: Pair) -> None:
        assert pair.got.shape == pair.want.shape, self.where()
        if pair.want.numel() == 0:
            return
        if pair.want.abs().max() > LARGE:  # rare, so the stream of ops seldom changes
            pair = Pair(small(pair.want), small(pair.got))
        if len(self.pool) >= MOST_TENSORS:
            self.drop()
        self.pool.append(pair)
        if not any(p.writable for p in self.pool):
            self.pool.append(upload(integers(FLOATS, self.data)))

    def drop(self) -> None:
        pair = self.pool.pop(self.rng.randrange(len(self.pool)))
        if self.keeps_now():
            self.kept.append(pair)

    def keeps_now(self) -> bool:
        return self.round in self.keeps and self.data.random() < 0.5

    def write(self, name: str, pair: Pair, source: Pair) -> None:
        self.count(name)
        if pair.got.is_contiguous() and pair.got.nbytes == pair.got.untyped_storage().nbytes() and self.keeps_now():
            self.kept.append(Pair(pair.want.clone(), pair.got.clone()))  # shares the buffer: no op is recorded
        WRITES[name](pair.want, source.want)
        WRITES[name](pair.got, source.got)
        if pair.want.numel() and pair.want.abs().max() > LARGE:
            for side in (pair.want, pair.got):
                side.clamp_(-8, 8)

    def crossed(self, pair: Pair) -> None:
        """The same ops in every round, in some of them over other operands: another region."""
        operands = [pair, self.like(pair)]
        self.add("add", torch.add, *operands)
        if self.round in self.keeps:
            operands.reverse()
        self.add("sub", torch.sub, *operands)

    def hand_over(self, place: int) -> None:
        """Leaves a tensor, recorded and not run, for whoever comes next; takes what another left, and may write it."""
        self.count("hand_over")
        rng = self.rng
        fits = [p for p in self.pool if p.want.shape == FLOATS and p.want.dtype is torch.float32]
        given = rng.choice(fits) if fits else None
        pair = given and Pair(given.want + 1, given.got + 1)
        if pair and rng.random() < 0.3:  # both look at it, and nobody writes
            pair.writable = False
            self.keep(pair)
        taken = self.shared.exchange(place, pair)
        self.keep(taken or upload(integers(FLOATS, self.data)))

    # --- what makes recorded ops run -----------------------------------------------------------------------------

    def flush(self) -> None:
        pair = self.rng.choice(self.pool)
        name = self.rng.choice(list(FLUSHES))
        if self.pauses:
            name = "idle_once"
        elif name == "mode" and not self.switches:
            name = "synchronize"
        self.count(name)
        FLUSHES[name](self, pair)

    def in_another_thread(self, pair: Pair) -> None:
        failed: list[BaseException] = []

        def check() -> None:
            try:
                pair.check(self.where())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def pause_once(self, pair: Pair) -> None:
        """A region that is known from other rounds runs because nothing is recorded for a while."""
        if self.round in self.keeps:
            time.sleep(0.025)
        else:
            torch.tpu.synchronize()

    def mode(self, pair: Pair) -> None:
        torch.tpu.eager_mode(self.rng.choice(("strict", "fused", "fused")))

    def same(self, got: object, want: object) -> None:
        assert got == want, f"{self.where()}: got {got}, want {want}"


FLUSHES: dict[str, Callable[[Program, Pair], object]] = {
    "item": lambda s, p: s.same(p.got.sum().item(), p.want.sum().item()),
    "cpu": lambda s, p: p.check(s.where()),
    "tolist": lambda s, p: s.same(p.got.tolist(), p.want.tolist()),
    "bool": lambda s, p: s.same(bool((p.got > 2).any()), bool((p.want > 2).any())),
    "print": lambda s, p: s.same(shown(p.got), shown(p.want)),
    "nonzero": lambda s, p: s.same(torch.nonzero(p.got).tolist(), torch.nonzero(p.want).tolist()),
    "synchronize": lambda s, p: torch.tpu.synchronize(),
    "stream": lambda s, p: torch.tpu.current_stream().synchronize(),
    "query": lambda s, p: torch.tpu.current_stream().query(),
    "event": lambda s, p: torch.tpu.Event().record(),
    "idle": lambda s, p: time.sleep(0.025),
    "idle_once": Program.pause_once,
    "thread": Program.in_another_thread,
    "garbage": lambda s, p: gc.collect(),
    "compiles": lambda s, p: torch.tpu.synchronize_compiles(),
    "mode": Program.mode,
}


class Views(view_programs.Program):
    """A program over aliases that looks at its values now and then only."""

    def __init__(self, seed: int, share: float) -> None:
        self.share = share
        self.moments = random.Random(seed)
        super().__init__(seed, TPU)

    def looks(self) -> bool:
        return self.moments.random() < self.share

    def run(self) -> None:
        super().run()
        self.share = 1
        self.compare()


# --- running them ------------------------------------------------------------------------------------------------


def alone(programs: list[Program], rng: random.Random) -> None:
    """One after the other, in this thread."""
    for program in programs:
        for _ in program.steps():
            pass


def interleaved(programs: list[Program], rng: random.Random) -> None:
    """Each in a thread of its own, one op at a time in an order that the seed decides."""
    running = [(program.steps(), ThreadPoolExecutor(1)) for program in programs]
    while running:
        steps, thread = running[rng.randrange(len(running))]
        for _ in range(rng.choice((1, 1, 3, 10))):
            if thread.submit(next, steps, "end").result() == "end":
                thread.shutdown()
                running.remove((steps, thread))
                break


def beside(programs: list[Program], rng: random.Random) -> None:
    """Each in a thread of its own, as they come."""
    with ThreadPoolExecutor(len(programs)) as threads:
        for done in [threads.submit(alone, [program], rng) for program in programs]:
            done.result()


def run_group(seed: int) -> tuple[int, Counter[str]]:
    """A few programs with shared tensors. Their number, and how often each op ran."""
    rng = random.Random(seed)
    torch.tpu.eager_mode("fused")
    if rng.random() < 0.2:
        program = Views(seed, rng.choice((0, 0.05, 0.5)))
        for _ in range(4):
            program.__init__(seed, program.share)  # type: ignore[misc]
            program.run()
        return 1, Counter(views=4 * len(program.log))
    data = random.Random(seed)
    # Recorded by this thread and not run when the others begin.
    read_only = [upload(integers(shape, data)) for shape in SHAPES[:2]]
    read_only = [Pair(p.want * 2 + 1, p.got * 2 + 1, writable=False) for p in read_only]
    programs = [Program(seed * 10 + i, Shared([])) for i in range(rng.choice((1, 3)))]
    shared = Shared(read_only)
    for program in programs:
        program.shared = shared
    way = alone if len(programs) == 1 else rng.choice((interleaved, beside))
    print(f"group {seed}: {len(programs)} programs {way.__name__}", file=sys.stderr, flush=True)
    way(programs, rng)
    for pair in [*read_only, *shared.places]:
        if pair is not None:
            pair.check(f"group {seed}, shared")
    return len(programs), sum((p.ops for p in programs), Counter())


class Faults:
    """Orders failures and delays of the test plugin, for compiles of regions only."""

    def __init__(self) -> None:
        self.plugin = ctypes.CDLL(os.environ["TORCH_TPU_PJRT_PLUGIN"])
        self.plugin.torch_tpu_test_plugin_region_compiles.restype = ctypes.c_long

    def order(self, group: int) -> None:
        rng = random.Random(group)
        self.plugin.torch_tpu_test_plugin_slow_regions(rng.choice((0, 0, 3, 30, 100)))
        if group % 2 == 0 or rng.random() < 0.5:
            order = f"compile_region:{rng.randrange(1, 3)}:{rng.randrange(1, 4)}:{INTERNAL}"
            assert self.plugin.torch_tpu_test_plugin_order_faults(order.encode()) == 1


def resident() -> int:
    """Bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def programs_made() -> int:
    """Compiled in the background, or loaded."""
    stats = torch.tpu.stats()
    return int(stats["background_compiles"] + stats["disk_hits"])


def fork_drops_what_is_recorded() -> None:
    """While other threads record. The child may hold no lock of theirs for ever, and says what it cannot do."""
    x = torch.ones(4, device=TPU) + 1
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            x.cpu()
        except RuntimeError as error:
            del x
            os._exit(17 if "forked subprocess" in str(error) else 18)
        os._exit(19)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 17, f"the forked child ended with {status}"
    assert x.tolist() == [2.0] * 4


def soak(seed: int, wanted: int, threads: int = 4) -> dict[str, int]:
    """`wanted` ops on a few threads, which run the same programs again and again; forks, and watches the memory."""
    lock = threading.Lock()
    done, failed = 0, []
    shared = Shared([])
    seeds = [[seed * 100_000 + 100 * thread + i for i in range(8)] for thread in range(threads)]
    draws = {s: Program(s, shared).draws.want for of_thread in seeds for s in of_thread}

    def work(thread: int) -> None:
        nonlocal done
        turn = 0
        try:
            while done < wanted and not failed:
                program = Program(seeds[thread][turn % 8], shared, draws[seeds[thread][turn % 8]])
                program.switches = program.changes = False
                alone([program], random.Random())
                turn += 1
                with lock:
                    done += sum(program.ops.values())
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    for thread in running:
        thread.start()
    sizes: dict[int, int] = {}  # by the tenth of the work that is done
    made: dict[int, int] = {}  # and programs of regions
    while any(thread.is_alive() for thread in running):
        time.sleep(0.1)
        tenth = 10 * done // wanted
        if tenth not in sizes:
            sizes[tenth], made[tenth] = resident(), programs_made()
            print(f"{done} ops: {sizes[tenth] >> 20} MiB, {made[tenth]} programs", file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(300, exit=True)
            if tenth in (3, 5, 7):
                fork_drops_what_is_recorded()
    for thread in running:
        thread.join()
    if failed:
        raise failed[0]
    half = min(t for t in sizes if t >= 5)
    return {
        "ops": done,
        "grown_kib": (resident() - sizes[half]) >> 10,
        "programs_made": programs_made() - made[half],
        "joint": torch.tpu.stats()["joint_executions"],
    }


def main() -> None:
    """Runs programs until there were enough; prints what they did as one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--group", type=int, help="only this one, as a failure names it")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--soak", type=int, help="so many ops on four threads instead")
    parser.add_argument("--seconds", type=float, default=240, help="for one group; a longer one hangs")
    options = parser.parse_args()
    torch.tpu.init()
    if options.soak:
        torch.tpu.eager_mode("fused")
        print(json.dumps(soak(options.seed, options.soak)))
        return
    faults = Faults() if options.faults else None
    groups = programs = 0
    ops: Counter[str] = Counter()
    while programs < options.programs:
        seed = options.group if options.group is not None else options.seed * 100_000 + groups
        faulthandler.dump_traceback_later(options.seconds, exit=True)
        if faults:
            faults.order(seed)
        ran, counts = run_group(seed)
        groups += 1
        programs += ran
        ops += counts
        if options.group is not None:
            break
    faulthandler.cancel_dump_traceback_later()
    torch.tpu.synchronize()
    torch.tpu.synchronize_compiles()
    stats = torch.tpu.stats()
    summary = {
        "seed": options.seed,
        "programs": programs,
        "ops": sum(ops.values()),
        "joint": stats["joint_executions"],
        "background_compiles": stats["background_compiles"],
        "flushes": sum(ops[name] for name in FLUSHES),
    }
    if faults:
        summary["region_compiles"] = faults.plugin.torch_tpu_test_plugin_region_compiles()
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
