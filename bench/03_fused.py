"""The fused eager mode on chains of small ops, functions written by hand and two networks, beside every rival.

    python bench/03_fused.py [--batches 7] [--models mlp,gpt] [--stress] [--store DIR]

The models are those of models.py: a step is forward, backward and update. Contenders take turns, each in a process of its
own: torch CPU, ours in strict and in fused eager mode, torch-tpu 0.2.0 in its two, JAX with the whole step in one jit.
Figures, all of the steady state unless they say otherwise:

- "step ms": steps back to back, one host read after the batch; "read step ms": a host read after each step.
- "host us/op" (chains): the Python thread's time per op until the last of 20 calls has returned; in fused mode, recording.
- "steps to steady", "seconds to steady": until nothing was compiled or loaded any more and no region that comes by waits
  for its program, a read after every 20 steps. "compiles waited for": a read after each step, in an empty disk store, and
  each compile waited for, so that the number says after how many steps the last one was asked for.
- "peak bytes": `max_memory_allocated()` over steps back to back.
- "compiles afterwards", "new regions afterwards" in 1,500 further steps, a read after every 20; "RSS bytes/step", the slope
  of least squares over the last 1,000, when the allocator has found its size. With --stress once more with a busy
  process on each core and `gc.collect()` forced at random.
- "background compile": a strict `a + b` of 4 floats, alone and while a region of 84 ops compiles.

--store keeps the disk store between calls; without, it is a new folder. TORCH_TPU_FUSE_AFTER=3 makes ours compile at the
third run of a region instead of when it pays. A table of the models follows on stderr.
"""

import argparse
import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from interleave import (
    FUSED,
    JAX,
    OURS,
    RIVAL,
    RIVAL_FUSED,
    TORCH_CPU,
    Figures,
    Minima,
    answer,
    device_of,
    interleave,
    script_of,
)
from models import CHAINS, MODELS, Model, jax_model, torch_model

MODEL, PART = "TORCH_TPU_BENCH_MODEL", "TORCH_TPU_BENCH_PART"
RACE, ENDURANCE, STRESS, COMPILE = "race", "endurance", "stress", "compile"
CONTENDERS = (TORCH_CPU, OURS, FUSED, RIVAL, RIVAL_FUSED, JAX)
CHAIN_OPS = 20
LIMIT, RIVAL_WARM_UP, WINDOW, BATCH_SECONDS = 20.0, 3.0, 20, 0.15
FURTHER_STEPS, BEFORE_SLOPE = 1000, 500
BACKGROUND, STRESSED = "background compile", ", stressed"
Step = Callable[[], object]


# --- ours: until nothing changes any more ------------------------------------------------------------------------------
def tpu() -> Any:
    """`torch.tpu`, of a process that has ours."""
    import torch

    return torch.tpu  # type: ignore[attr-defined]


def compiles() -> int:
    """Programs compiled so far, waited for or not."""
    stats = tpu().stats()
    return stats["compiles"] + stats["background_compiles"]


def programs() -> int:
    """The same with what came from disk."""
    return compiles() + tpu().stats()["disk_hits"]


def regions() -> list[dict[str, Any]]:
    """Those known, as `explain_regions` prints them."""
    from torch_tpu import _C

    return _C.region_reports()


def waiting_runs() -> int:
    """How often those regions have come by that are new, or whose compile waits for more runs."""
    return sum(row["runs"] for row in regions() if row["state"].startswith(("compiles at", "new")))


def settle(step: Step, read: Step) -> Figures:
    """Steps, a read after each WINDOW of them, until nothing changes any more; what it took."""
    begin = time.perf_counter()
    count = calm = steady = 0
    seconds, before = 0.0, programs()

    def note() -> None:
        nonlocal before, steady, seconds
        if (now := programs()) != before:
            before, steady, seconds = now, count, time.perf_counter() - begin

    while calm < 2:
        if time.perf_counter() - begin > LIMIT:
            print(f"{os.environ[MODEL]}: not steady after {count} steps", file=sys.stderr)
            break
        waiting = waiting_runs()
        for _ in range(WINDOW):
            step()
            count += 1
            note()
        read()
        if calm:
            tpu().synchronize_compiles()
        note()
        calm = calm + 1 if waiting_runs() == waiting and steady <= count - WINDOW else 0
    return {"steps to steady": float(steady), "seconds to steady": seconds}


def settle_step_by_step(model: Model) -> Figures:
    """The same with a read after each step and each compile waited for: what is left are the steps."""
    begin = time.perf_counter()
    count = steady = 0
    seconds, before = 0.0, programs()
    while count - steady < 2 * WINDOW and count < FURTHER_STEPS:
        read_each(model)()
        tpu().synchronize_compiles()
        count += 1
        if (now := programs()) != before:
            before, steady, seconds = now, count, time.perf_counter() - begin
    return {"compiles waited for: steps to steady": float(steady), "compiles waited for: seconds to steady": seconds}


def peak(model: Model) -> Figures:
    """Of the steady state."""
    model.read()
    tpu().reset_peak_memory_stats()
    for _ in range(WINDOW):
        model.step()
    model.read()
    return {"peak bytes": tpu().max_memory_allocated()}


# --- every contender: turns --------------------------------------------------------------------------------------------
def read_each(model: Model) -> Step:
    """A step with its read."""

    def step() -> None:
        model.step()
        model.read()

    return step


def warm_up(contender: str, model: Model) -> Figures:
    """Until steps take what they will take from then on."""
    if contender in (OURS, FUSED):
        figures = settle(model.step, model.read)
        settle(read_each(model), model.read)
        return figures | peak(model)
    begin = time.perf_counter()
    for step in (model.step, read_each(model)):
        for _ in range(WINDOW):
            step()
            if time.perf_counter() - begin > RIVAL_WARM_UP:
                break
        model.read()
    return {}


def race(contender: str, name: str) -> Iterator[Figures]:
    """What is measured once, then batches."""
    model = jax_model(name) if contender == JAX else torch_model(name, device_of(contender))
    yield warm_up(contender, model)

    def timed(step: Step, count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            step()
        model.read()
        return (time.perf_counter() - begin) / count

    count = max(5, min(200, int(BATCH_SECONDS / timed(read_each(model), 5))))
    while True:
        figures = {"step ms": timed(model.step, count) * 1e3, "read step ms": timed(read_each(model), count) * 1e3}
        if name in CHAINS and contender != JAX:
            figures["host us/op"] = host_microseconds(model, count)
        yield figures


def host_microseconds(model: Model, count: int) -> float:
    """Per op of a chain until the calls have returned, the best of a few."""
    best = float("inf")
    for _ in range(count):
        begin = time.perf_counter()
        model.step()
        best = min(best, time.perf_counter() - begin)
        model.read()
    return best / CHAIN_OPS * 1e6


# --- ours: a thousand steps more ---------------------------------------------------------------------------------------
def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def slope(points: list[tuple[int, int]]) -> float:
    """Of least squares."""
    middle_x, middle_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / sum((x - middle_x) ** 2 for x, _ in points)


def further_steps(model: Model, suffix: str, collect: bool) -> Figures:
    """Compiles, new regions and growth of FURTHER_STEPS steps; garbage collections at random, if asked for."""
    chance = random.Random(0)
    compiled, known = compiles(), len(regions())
    points = []
    for i in range(-BEFORE_SLOPE, FURTHER_STEPS):
        model.step()
        if collect and chance.random() < 0.02:
            gc.collect()
        if i % WINDOW == WINDOW - 1:
            model.read()
            if i >= 0:
                points.append((i, resident()))
    return {
        f"compiles afterwards{suffix}": compiles() - compiled,
        f"new regions afterwards{suffix}": len(regions()) - known,
        f"RSS bytes/step{suffix}": slope(points),
    }


def endurance(name: str, stress: bool) -> Iterator[Figures]:
    """What happens in FURTHER_STEPS steps, and in as many on a busy machine."""
    model = torch_model(name, device_of(FUSED))
    figures = settle_step_by_step(model)
    settle(model.step, model.read)
    figures |= further_steps(model, "", collect=False)
    if stress:
        spin = [sys.executable, "-S", "-c", "while True: pass"]
        busy = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
        try:
            figures |= further_steps(model, STRESSED, collect=True)
        finally:
            for process in busy:
                process.kill()
                process.wait()
    yield figures


# --- ours: beside a compile --------------------------------------------------------------------------------------------
def beside_a_compile() -> Iterator[Figures]:
    """A strict `a + b` alone and while a region compiles: one compile per batch."""
    import torch

    tpu().eager_mode("strict")
    a, b = torch.ones(4, device="tpu"), torch.ones(4, device="tpu")

    def adds() -> tuple[float, float, float]:
        """When a hundred began and ended, and microseconds for each."""
        begin, wall = time.perf_counter(), time.time()
        for _ in range(100):
            _ = a + b
        return wall, time.time(), (time.perf_counter() - begin) / 100 * 1e6

    def recorded(x: torch.Tensor, y: torch.Tensor, runs: int) -> None:
        """A region of 84 ops, 42 of them different."""
        with tpu().eager_mode("fused"):
            for _ in range(runs):
                z = x
                for size in range(len(x), len(x) - 6, -1):
                    for op in (torch.tanh, torch.exp, torch.sin, torch.cos, torch.abs, torch.neg, torch.square):
                        z = op(z[:size] * y[:size])
                z.cpu()

    yield {}
    for size in range(1000, 1_000_000, 10):
        alone = min(adds()[2] for _ in range(50))
        x, y = (torch.rand(size).to("tpu") for _ in range(2))
        recorded(x, y, 2)
        tpu().synchronize_compiles()  # it has been looked for on disk
        before = tpu().stats()["background_compiles"]
        recorded(x, y, 2)
        hundreds, deadline = [], time.perf_counter() + LIMIT
        while tpu().stats()["background_compiles"] == before:
            hundreds.append(adds())
            if time.perf_counter() > deadline:
                raise RuntimeError("no background compile came")
        last = next(row for row in reversed(tpu().compile_log()) if row["background"])
        begin, end = last["when"] - last["seconds"], last["when"]
        beside = [value for start, stop, value in hundreds if start >= begin and stop <= end]
        figures = {"a + b alone us": alone, "compile ms": last["seconds"] * 1e3}
        if beside:
            figures["a + b beside it us"] = sum(beside) / len(beside)
        yield figures


# --- the two sides -----------------------------------------------------------------------------------------------------
def work(contender: str) -> Iterator[dict[str, Figures]]:
    """What a worker measures; figures are named after the model."""
    name, part = os.environ[MODEL], os.environ[PART]
    if contender != JAX:
        device_of(contender)
        import torch

        torch.set_num_threads(2)
    if part == RACE:
        steps = race(contender, name)
    elif part == COMPILE:
        steps = beside_a_compile()
    else:
        steps = endurance(name, stress=part == STRESS)
    for figures in steps:
        yield {contender: {f"{name}: {figure}": value for figure, value in figures.items()}}


def table(measured: dict[str, Minima]) -> str:
    """Per model: each contender's two times, what fused is to strict and to torch CPU, and what is asked of ours alone."""

    def best(contender: str, name: str, figure: str) -> float:
        value = measured[name].best(contender, f"{name}: {figure}")
        return float("nan") if value is None else value

    def text(values: list[float], digits: int) -> str:
        return " / ".join("-" if value != value else f"{value:.{digits}f}" for value in values)

    times = ("step ms", "read step ms")
    heads = ["model", *(f"{contender}, ms" for contender in CONTENDERS), "strict/fused", "CPU/fused"]
    heads += ["peak fused/strict", "steps to steady + compiles", "compiles, stressed", "RSS bytes/step, stressed"]
    rows = [heads, ["---"] * len(heads)]
    for name in (name for name in measured if name != BACKGROUND):
        row = [name, *(text([best(contender, name, figure) for figure in times], 3) for contender in CONTENDERS)]
        for slower in (OURS, TORCH_CPU):
            row.append(text([best(slower, name, figure) / best(FUSED, name, figure) for figure in times], 2))
        row.append(text([best(FUSED, name, "peak bytes") / best(OURS, name, "peak bytes")], 2))
        row.append(text([best(FUSED, name, "compiles waited for: steps to steady")], 0))
        for figure in ("compiles afterwards", "RSS bytes/step"):
            row.append(text([best(FUSED, name, figure + suffix) for suffix in ("", STRESSED)], 0))
        rows.append(row)
    lines = ["times: back to back / with a host read after each step", *("| " + " | ".join(row) + " |" for row in rows)]
    for name in (name for name in measured if name in CHAINS):
        costs = (f"{contender} {text([best(contender, name, 'host us/op')], 2)}" for contender in CONTENDERS[:-1])
        lines.append(f"{name}, host us/op: {', '.join(costs)}")
    if BACKGROUND in measured:
        beside = [best(FUSED, BACKGROUND, figure) for figure in ("a + b alone us", "a + b beside it us")]
        lines.append(f"a + b, us, alone / while a region compiles: {text(beside, 2)}")
    return "\n".join(lines)


def measure(name: str, arguments: argparse.Namespace, store: str) -> Minima:
    """Runs the contenders on a model, then what is asked of ours alone, in an empty store."""
    script, minima = script_of(__file__), Minima()
    with tempfile.TemporaryDirectory() as empty:
        own = {MODEL: name, "TORCH_TPU_CACHE_DIR": empty}
        if name == BACKGROUND:
            interleave(script, minima, arguments.batches, {FUSED: {**own, PART: COMPILE}})
        else:
            shared = {MODEL: name, PART: RACE, "TORCH_TPU_CACHE_DIR": store}
            interleave(script, minima, arguments.batches, {contender: shared for contender in CONTENDERS})
            interleave(script, minima, 0, {FUSED: {**own, PART: STRESS if arguments.stress else ENDURANCE}})
    return minima


def main() -> None:
    """Runs everything asked for; prints the figures."""
    names = [*MODELS, BACKGROUND]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, default=7)
    parser.add_argument("--models", default=",".join(names), help="some of %(default)s")
    parser.add_argument("--stress", action="store_true", help="the further steps once more on a busy machine")
    parser.add_argument("--store", default="", help="folder of the disk store, otherwise a new one")
    arguments = parser.parse_args()
    if arguments.worker:
        return answer(work(arguments.worker))
    asked = arguments.models.split(",")
    if unknown := sorted(set(asked) - set(names)):
        parser.error(f"--models: expected some of {', '.join(names)}, got {', '.join(unknown)}")
    measured = {}
    with tempfile.TemporaryDirectory() as store:
        for name in asked:
            measured[name] = measure(name, arguments, str(Path(arguments.store or store).resolve()))
            measured[name].emit("03_fused")
    print(table(measured), file=sys.stderr)
    return None


if __name__ == "__main__":
    main()
