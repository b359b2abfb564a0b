"""What one eager op costs, of 4 floats: host time back to back, host time and device time together, synchronised each time.

    python bench/01_dispatch.py [--batches 7]

torch CPU runs in the same process as ours; JAX (each op a `jit` of its own) and torch-tpu 0.2.0 in theirs. Figures in
microseconds per op: "host" is the time until the calls have returned, "total" includes one synchronisation after all,
"sync" one after each. "part" are the parts of our `a + b` as C++ sees them (csrc/aten/dispatch_parts.h); the floor under
them is `bench_execute` (bench/02_execute.cc). 16 MB copies in GB/s, each result dropped before the next; for torch CPU a
copy between two tensors.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from interleave import JAX, OURS, RIVAL, TORCH_CPU, Figures, Minima, answer, device_of, interleave, parse, script_of

CALLS, SYNCHRONISED, COPIES = 300, 100, 5
Op = Callable[[], Any]


def microseconds(op: Op, calls: int, after_each: Op, after_all: Op) -> tuple[float, float]:
    """Per call: until the calls have returned, and until `after_all` has."""
    start = time.perf_counter()
    for _ in range(calls):
        op()
        after_each()
    host = time.perf_counter() - start
    after_all()
    return host / calls * 1e6, (time.perf_counter() - start) / calls * 1e6


def measure(ops: dict[str, Op], wait: Op) -> Figures:
    """One batch over asynchronous ops."""
    result: Figures = {}
    for name, op in ops.items():
        for _ in range(20):
            op()
        wait()
        result[f"{name} host us"], result[f"{name} total us"] = microseconds(op, CALLS, lambda: None, wait)
        result[f"{name} sync us"] = microseconds(op, SYNCHRONISED, wait, wait)[0]
    return result


def gigabytes(copy: Op, wait: Op) -> float:
    """GB/s of a copy of 16 MB, the best of a few."""
    best = float("inf")
    for _ in range(COPIES):
        start = time.perf_counter()
        kept = copy()
        wait()
        best = min(best, time.perf_counter() - start)
        del kept
    return (16 << 20) / best / 1e9


def torch_batches(contender: str, device: str) -> Iterator[Figures]:
    """A first call of a + b, then batches."""
    import torch

    wait: Op = (lambda: None) if device == "cpu" else torch.accelerator.synchronize
    torch.manual_seed(0)
    a, b, m = (torch.randn(s).to(device) for s in (4, 4, (4, 4)))
    i = torch.tensor([0, 2, 1]).to(device)
    one, total = torch.ones(1).to(device), torch.zeros(4).to(device)
    host = torch.randn(4 << 20)
    big, warm = host.to(device), torch.zeros_like(host)
    # On the CPU there is nothing to transfer: one copy into memory in use is what the host can do at best.
    up: Op = (lambda: warm.copy_(host)) if device == "cpu" else (lambda: host.to(device))
    down: Op = (lambda: warm.copy_(host)) if device == "cpu" else (lambda: big.cpu())
    wait()
    start = time.perf_counter()
    _ = a + b
    wait()
    yield {"first a + b ms": (time.perf_counter() - start) * 1e3}
    parts = None
    if contender == OURS:
        from torch_tpu import _C

        parts = _C.dispatch_parts
    ops: dict[str, Op] = {
        "a + b": lambda: a + b,
        "add_": lambda: total.add_(a),
        "relu": lambda: torch.relu(a),
        "sum": lambda: a.sum(),
        "mm 4x4": lambda: m @ m,
        "x[i]": lambda: a[i],
        "x[1:3] + 1": lambda: a[1:3] + 1,
    }
    reads: dict[str, Op] = {"item": lambda: one.item(), "cpu()": lambda: a.cpu()}
    while True:
        result = measure(ops, wait)
        for name, op in reads.items():
            result[f"{name} sync us"] = microseconds(op, CALLS, lambda: None, wait)[0]
        result["H2D 16 MB GB/s"] = gigabytes(up, wait)
        result["D2H 16 MB GB/s"] = gigabytes(down, wait)
        if parts:
            result |= {f"a + b part: {name} us": value / 1e3 for name, value in parts(2000).items()}
        yield result


def jax_batches() -> Iterator[Figures]:
    """The same with jit; `add_` donates its first argument, transfers copy as NumPy would."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    a, b, m, i = jnp.ones(4), jnp.ones(4), jnp.ones((4, 4)), jnp.array([0, 2, 1])
    last: list[Any] = [jnp.zeros(4)]
    add, relu, mm = jax.jit(lambda x, y: x + y), jax.jit(jax.nn.relu), jax.jit(lambda x: x @ x)
    total, pick, part = jax.jit(lambda x: x.sum()), jax.jit(lambda x, j: x[j]), jax.jit(lambda x: x[1:3] + 1)
    accumulate = jax.jit(lambda x, y: x + y, donate_argnums=0)

    def keep(value: Any) -> None:
        last[0] = value

    start = time.perf_counter()
    add(a, b).block_until_ready()
    yield {"first a + b ms": (time.perf_counter() - start) * 1e3}
    ops: dict[str, Op] = {
        "a + b": lambda: keep(add(a, b)),
        "relu": lambda: keep(relu(a)),
        "sum": lambda: keep(total(a)),
        "mm 4x4": lambda: keep(mm(m)),
        "x[i]": lambda: keep(pick(a, i)),
        "x[1:3] + 1": lambda: keep(part(a)),
    }
    host = np.random.rand(4 << 20).astype(np.float32)
    while True:
        result = measure(ops, lambda: last[0].block_until_ready())
        last[0] = jnp.zeros(4)
        result |= measure({"add_": lambda: keep(accumulate(last[0], a))}, lambda: last[0].block_until_ready())
        # An array remembers what it was read as, so each read needs a fresh one.
        scalars = iter([jnp.ones(()) + k for k in range(CALLS)])
        fresh = iter([a + k for k in range(CALLS)])
        result["item sync us"] = microseconds(lambda: next(scalars).item(), CALLS, lambda: None, lambda: None)[0]
        result["cpu() sync us"] = microseconds(lambda: np.array(next(fresh)), CALLS, lambda: None, lambda: None)[0]
        result["H2D 16 MB GB/s"] = gigabytes(lambda: jax.device_put(host).block_until_ready(), lambda: None)
        big = jax.device_put(host).block_until_ready()
        result["D2H 16 MB GB/s"] = gigabytes(lambda: np.array(big), lambda: None)
        yield result


def work(contender: str) -> Iterator[dict[str, Figures]]:
    """What the worker of a contender measures; ours measures torch CPU in between."""
    if contender == JAX:
        yield from ({JAX: figures} for figures in jax_batches())
        return
    import torch

    torch.set_num_threads(2)
    batches = torch_batches(contender, device_of(contender))
    cpu = torch_batches(TORCH_CPU, "cpu") if contender == OURS else None
    for figures in batches:
        yield {contender: figures} | ({TORCH_CPU: next(cpu)} if cpu else {})


def main() -> None:
    """Runs the contenders; prints the figures."""
    arguments = parse(__doc__, batches=7)
    if arguments.worker:
        return answer(work(arguments.worker))
    minima = Minima()
    for _ in range(arguments.processes):
        interleave(script_of(__file__), minima, arguments.batches, {OURS: {}, RIVAL: {}, JAX: {}})
    return minima.emit("01_dispatch")


if __name__ == "__main__":
    main()
