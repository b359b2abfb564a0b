"""One training step of a small model: forward, backward, optimizer, synchronised each step and pipelined.

    python bench/03_train_step.py [--batches 7] [--processes 2] [--model mlp|block]

`mlp`: 256-256-10, batch 64, SGD. `block`: a transformer block of width 256, 4 heads, 4 x 128 tokens, SGD. Contenders take
turns, each in a process of its own: ours in strict and fused eager mode, torch CPU (beside ours), torch-tpu 0.2.0 in its
strict mode, and JAX with the whole step in one jit. Before the batches every contender has made 300 steps (ours then waits
for its background compiles), so figures are of the steady state; "first step" and "second step" are not. Every timed batch
ends with a read of the last parameter: torch-tpu's synchronize() does not wait for programs whose results are dropped.
A process that has waited for its turn is slower for a while, whatever the contender (a step of the MLP by up to 1.7 on a
virtual machine), so each turn begins with 0.2 s that do not count.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from interleave import FUSED, JAX, OURS, RIVAL, TORCH_CPU, Figures, Minima, answer, device_of, interleave, script_of

WARM_UP, STEPS = 300, 30
WAKE_SECONDS = 0.2
MODEL = "TORCH_TPU_BENCH_MODEL"


def torch_step(device: str, model: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A function that makes one step, and one that reads the last parameter."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, width: int = 256, heads: int = 4) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, tokens, width = x.shape
            parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.mlp(self.norm2(x))

    torch.manual_seed(0)
    net: nn.Module
    if model == "mlp":
        net, loss = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)), F.cross_entropy
        x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    else:
        net, loss = Block(), F.mse_loss
        x, y = torch.randn(4, 128, 256), torch.randn(4, 128, 256)
    net, x, y = net.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)

    def step() -> Any:
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value

    last = list(net.parameters())[-1].detach()
    return step, last.cpu


def jax_step(model: str) -> tuple[Callable[[], Any], Callable[[], None]]:
    """The same step in one jit, and a wait for the last one."""
    import jax
    import jax.numpy as jnp

    key = jax.random.PRNGKey(0)

    def weight(i: int, *shape: int) -> Any:
        return jax.random.normal(jax.random.fold_in(key, i), shape) * 0.05

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift

    if model == "mlp":
        p = {"w1": weight(1, 256, 256), "b1": jnp.zeros(256), "w2": weight(2, 256, 10), "b2": jnp.zeros(10)}
        x, y = weight(3, 64, 256), jnp.arange(64) % 10

        def loss(p: Any) -> Any:
            scores = jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
            return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()
    else:
        d = 256
        sizes = {"qkv": (d, 3 * d), "out": (d, d), "m1": (d, 4 * d), "m2": (4 * d, d)}
        p = {name: weight(i, *shape) for i, (name, shape) in enumerate(sizes.items())}
        p |= {f"b{name}": jnp.zeros(shape[1]) for name, shape in sizes.items()}
        p |= {"s1": jnp.ones(d), "t1": jnp.zeros(d), "s2": jnp.ones(d), "t2": jnp.zeros(d)}
        x, y = weight(5, 4, 128, d), weight(6, 4, 128, d)

        def loss(p: Any) -> Any:
            parts = norm(x, p["s1"], p["t1"]) @ p["qkv"] + p["bqkv"]
            q, k, v = parts.reshape(4, 128, 3, 4, d // 4).transpose(2, 0, 3, 1, 4)
            a = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (d // 4) ** -0.5) @ v
            h = x + a.transpose(0, 2, 1, 3).reshape(4, 128, d) @ p["out"] + p["bout"]
            m = jax.nn.gelu(norm(h, p["s2"], p["t2"]) @ p["m1"] + p["bm1"], approximate=False)
            return ((h + m @ p["m2"] + p["bm2"] - y) ** 2).mean()

    update = jax.jit(lambda p: jax.tree.map(lambda a, g: a - 0.01 * g, p, jax.grad(loss)(p)), donate_argnums=0)
    state = [p]

    def step() -> None:
        state[0] = update(state[0])

    return step, lambda: jax.block_until_ready(state[0])


def batches(
    step: Callable[[], Any], wait: Callable[[], Any], read: Callable[[], Any], settle: Callable[[], Any]
) -> Iterator[Figures]:
    """First and second step, then a batch of the steady state per element."""

    def timed(count: int, each: bool) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step()
            if each:
                wait()
        wait()
        read()
        return (time.perf_counter() - start) / count * 1e3

    figures = {"first step ms": timed(1, True), "second step ms": timed(1, True)}
    timed(WARM_UP, True)
    timed(WARM_UP, False)
    settle()
    timed(STEPS, True)
    yield figures
    while True:
        start = time.perf_counter()
        while time.perf_counter() - start < WAKE_SECONDS:
            timed(STEPS, True)
        yield {"step ms": timed(STEPS, True), "pipelined step ms": timed(STEPS, False)}


def work(contender: str) -> Iterator[dict[str, Figures]]:
    """What the worker of a contender measures; ours measures torch CPU in between."""
    model = os.environ[MODEL]
    if contender == JAX:
        step, wait = jax_step(model)
        yield from ({JAX: figures} for figures in batches(step, wait, wait, lambda: None))
        return
    import torch

    torch.set_num_threads(2)
    device = device_of(contender)
    ours = contender in (OURS, FUSED)
    settle = torch.tpu.synchronize_compiles if ours else lambda: None  # type: ignore[attr-defined]
    step, read = torch_step(device, model)
    own = batches(step, torch.accelerator.synchronize, read, settle)
    step, read = torch_step("cpu", model)
    cpu = batches(step, lambda: None, read, lambda: None) if contender == OURS else None
    for figures in own:
        yield {contender: figures} | ({TORCH_CPU: next(cpu)} if cpu else {})


def main() -> None:
    """Runs the contenders; prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2, help="processes per contender, one after the other")
    parser.add_argument("--model", choices=("mlp", "block"), default="mlp")
    arguments = parser.parse_args()
    if arguments.worker:
        return answer(work(arguments.worker))
    minima = Minima()
    shared = {MODEL: arguments.model}
    for _ in range(arguments.processes):
        interleave(
            script_of(__file__),
            minima,
            arguments.batches,
            {OURS: shared, FUSED: shared, RIVAL: shared, JAX: shared},
        )
    return minima.emit(f"03_train_step {arguments.model}")


if __name__ == "__main__":
    main()
