"""Host cost of a compiled call: a small MLP's forward pass, nothing but the call measured.

    python bench/05_compiled_call.py [--batches 7]

Linear 8-16-16-4 with relu, 4 rows, 7 tensor arguments, no gradients. Contenders take turns, each in a process of its own:
`torch.compile` on tpu, beside it Dynamo with a backend that does nothing (its guards and the module call) and our eager
modes; torch CPU eager; JAX with the same arguments in one jit. "call us": back to back, a synchronisation after each 2,000.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

from interleave import FUSED, JAX, OURS, TORCH_CPU, Figures, Minima, answer, interleave, script_of

CALLS = 2000
COMPILED, GUARDS = "torchtpu compiled", "Dynamo, null backend"


def timed(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Microseconds per call."""
    for _ in range(CALLS // 4):
        call()
    wait()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    wait()
    return (time.perf_counter() - start) / CALLS * 1e6


def torch_calls(contender: str) -> dict[str, Callable[[], Any]]:
    """What a process of ours measures, by contender."""
    import torch
    from torch import nn

    def network(device: str) -> tuple[nn.Module, torch.Tensor]:
        layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)]
        return nn.Sequential(*layers).to(device), torch.ones(4, 8).to(device)

    torch.set_grad_enabled(False)
    model, x = network("tpu")
    if contender == FUSED:
        return {FUSED: lambda: model(x)}
    other, y = network("cpu")
    answer_of_null = model(x)

    def null(module: Any, inputs: Any) -> Callable[..., Any]:
        return lambda *_: (answer_of_null,)

    compiled, nothing = torch.compile(model), torch.compile(network("tpu")[0], backend=null)
    return {
        COMPILED: lambda: compiled(x),
        GUARDS: lambda: nothing(x),
        OURS: lambda: model(x),
        TORCH_CPU: lambda: other(y),
    }


def jax_call() -> Callable[[], Any]:
    """The same network in one jit."""
    import jax
    import jax.numpy as jnp

    sizes = [(8, 16), (16, 16), (16, 4)]
    weights = [(jnp.ones(size) * 0.1, jnp.zeros(size[1])) for size in sizes]

    @jax.jit
    def forward(weights: Any, x: Any) -> Any:
        for i, (w, b) in enumerate(weights):
            x = x @ w + b
            x = jax.nn.relu(x) if i < 2 else x
        return x

    x = jnp.ones((4, 8))
    return lambda: forward(weights, x)


def work(contender: str) -> Iterator[dict[str, Figures]]:
    """What the worker of a contender measures."""
    calls: dict[str, Callable[[], Any]]
    if contender == JAX:
        import jax

        call = jax_call()
        calls, wait = {JAX: call}, lambda: jax.block_until_ready(call())
    else:
        import torch

        calls, wait = torch_calls(contender), torch.accelerator.synchronize
    for call in calls.values():
        timed(call, wait)
    yield {name: {} for name in calls}
    while True:
        yield {name: {"call us": timed(call, wait)} for name, call in calls.items()}


def main() -> None:
    """Runs the contenders; prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, default=7)
    arguments = parser.parse_args()
    if arguments.worker:
        return answer(work(arguments.worker))
    minima = Minima()
    interleave(script_of(__file__), minima, arguments.batches, {OURS: {}, FUSED: {}, JAX: {}})
    return minima.emit("05_compiled_call")


if __name__ == "__main__":
    main()
