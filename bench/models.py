"""The models of 03_fused.py, for every contender: chains of ops, functions written by hand from small ops, two networks.

A step of any of them changes a state that the next step and `read` need (parameters, and the sum of all losses), so that
no contender can leave out a part of the work.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

# PyTorch's or JAX's namespace: what is written by hand is written once, with the names that both have.
Namespace = Any

CHAINS = {"chain 4": (4,), "chain 256x256": (256, 256)}
BY_HAND = ("gelu", "layer_norm", "rope", "cross_entropy")
MODELS = (*CHAINS, *BY_HAND, "adam", "mlp", "gpt")

RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
WIDTH, HEADS, LAYERS, BATCH, TOKENS, VOCABULARY = 128, 4, 2, 4, 64, 256


class Model(NamedTuple):
    """A step, and a host read of what all steps so far have led to."""

    step: Callable[[], Any]
    read: Callable[[], Any]


def chain(xp: Namespace, x: Any, y: Any) -> Any:
    """20 ops in which no sequence returns."""
    a = x + y
    a = a * y
    a = a - x
    b = xp.abs(a)
    b = b + 1.0
    b = xp.sqrt(b)
    a = a / b
    a = xp.maximum(a, y)
    c = a * b
    c = c - y
    c = -c
    c = xp.minimum(c, x)
    a = a + c
    a = a * 0.5
    a = xp.square(a)
    a = a + b
    b = xp.sqrt(a)
    c = c / b
    c = c + x
    return c * 0.5


def gelu(xp: Namespace, x: Any) -> Any:
    """By its tanh formula."""
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def layer_norm(xp: Namespace, x: Any, scale: Any, shift: Any) -> Any:
    """Over the last dimension."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5) * scale + shift


def rope(xp: Namespace, x: Any, cos: Any, sin: Any) -> Any:
    """Rotates the halves of the last dimension."""
    half = x.shape[-1] // 2
    return x * cos + xp.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def cross_entropy(xp: Namespace, x: Any, y: Any) -> Any:
    """Softmax and the mean negative log-likelihood of the classes y."""
    gather = xp.take_along_dim if hasattr(xp, "take_along_dim") else xp.take_along_axis
    shifted = x - xp.amax(x, -1, keepdims=True)
    return (xp.log(xp.exp(shifted).sum(-1, keepdims=True)) - gather(shifted, y[:, None], -1)).mean()


def by_hand(xp: Namespace, name: str, p: list[Any], data: list[Any]) -> Any:
    """A scalar loss of the function of that name."""
    if name == "cross_entropy":
        return cross_entropy(xp, p[0], data[0])
    if name == "gelu":
        return (gelu(xp, p[0]) * data[0]).mean()
    if name == "layer_norm":
        return (layer_norm(xp, *p) * data[0]).mean()
    q, k = (rope(xp, x, *data) for x in p)
    return (q * k).mean()


def arrays(name: str) -> tuple[list[Any], list[Any]]:
    """Parameters and data of what is written by hand, as NumPy arrays."""
    import numpy

    random = numpy.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=numpy.float32)

    if name == "gelu":
        return [normal(256, 256)], [normal(256, 256)]
    if name == "layer_norm":
        return [normal(256, 256), normal(256), normal(256)], [normal(256, 256)]
    if name == "cross_entropy":
        return [normal(256, 256)], [random.integers(0, 256, 256)]
    if name == "rope":
        half = WIDTH // HEADS // 2
        angles = numpy.arange(TOKENS)[:, None] * 10000.0 ** (-numpy.arange(half) / half)
        angles = numpy.concatenate([angles, angles], -1).astype(numpy.float32)
        shape = (BATCH, HEADS, TOKENS, WIDTH // HEADS)
        return [normal(*shape), normal(*shape)], [numpy.cos(angles), numpy.sin(angles)]
    shapes = [(WIDTH, WIDTH), (WIDTH,)] * 4  # adam
    return [normal(*shape) for shape in shapes], [normal(*shape) for shape in shapes]


def torch_model(name: str, device: str) -> Model:
    """The model in PyTorch on a device."""
    import torch

    torch.manual_seed(0)
    if name in CHAINS:
        x, y = (torch.randn(CHAINS[name]).to(device) for _ in range(2))
        state = [x]

        def link() -> Any:
            state[0] = chain(torch, state[0], y)

        return Model(link, lambda: state[0].cpu())
    if name in ("mlp", "gpt"):
        return torch_network(name, device)
    parameters, data = ([torch.from_numpy(a).to(device) for a in each] for each in arrays(name))
    if name == "adam":
        return torch_adam(parameters, data)
    total = torch.zeros((), device=device)
    for p in parameters:
        p.requires_grad_()

    def step() -> None:
        loss = by_hand(torch, name, parameters, data)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= RATE * p.grad
                p.grad = None
            total.add_(loss)

    return Model(step, total.item)


def torch_adam(parameters: list[Any], gradients: list[Any]) -> Model:
    """Adam as one writes it: in place, its bias corrections Python numbers."""
    import torch

    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    count = [0]

    @torch.no_grad()
    def step() -> None:
        count[0] += 1
        correction1, correction2 = 1 - BETA1 ** count[0], 1 - BETA2 ** count[0]
        for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
            m.mul_(BETA1).add_((1 - BETA1) * g)
            v.mul_(BETA2).add_((1 - BETA2) * g * g)
            p.sub_(RATE * (m / correction1) / ((v / correction2).sqrt() + EPSILON))

    return Model(step, parameters[-1].cpu)


def torch_network(name: str, device: str) -> Model:
    """MLP with SGD, or GPT with Adam."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.register_buffer("future", torch.ones(TOKENS, TOKENS).triu(1).bool())

        def forward(self, x: Any) -> Any:
            parts = self.qkv(self.norm1(x)).view(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            scores = (q @ k.transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5
            y = scores.masked_fill(self.future, float("-inf")).softmax(-1) @ v
            x = x + self.out(y.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.register_buffer("places", torch.arange(TOKENS))

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.blocks(self.token(x) + self.place(self.places)))).flatten(0, 1)

    net: nn.Module
    if name == "mlp":
        net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    else:
        net = Gpt()
        x, y = torch.randint(0, VOCABULARY, (BATCH, TOKENS)), torch.randint(0, VOCABULARY, (BATCH * TOKENS,))
    net, x, y, total = net.to(device), x.to(device), y.to(device), torch.zeros((), device=device)
    optimizer: torch.optim.Optimizer
    if name == "mlp":
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=RATE)

    def step() -> None:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total.add_(loss.detach())

    return Model(step, total.item)


def jax_model(name: str) -> Model:
    """The same with the whole step in one jit, which donates its state."""
    import jax
    import jax.numpy as jnp

    def running(update: Callable[[Any], Any], state: Any, read: Callable[[Any], Any]) -> Model:
        jitted, kept = jax.jit(update, donate_argnums=0), [state]

        def step() -> None:
            kept[0] = jitted(kept[0])

        return Model(step, lambda: read(kept[0]))

    if name in CHAINS:
        x, y = (jax.random.normal(jax.random.PRNGKey(i), CHAINS[name]) for i in range(2))
        return running(lambda x: chain(jnp, x, y), x, jax.device_get)
    if name == "adam":
        parameters, gradients = ([jnp.asarray(a) for a in each] for each in arrays(name))
        zeros = [[jnp.zeros_like(p) for p in parameters] for _ in range(2)]

        def adam(state: Any) -> Any:
            return jax_adam(state, gradients)

        return running(adam, (parameters, *zeros, jnp.zeros(())), lambda state: jax.device_get(state[0][-1]))
    if name in BY_HAND:
        parameters, data = ([jnp.asarray(a) for a in each] for each in arrays(name))
        loss = lambda p: by_hand(jnp, name, p, data)  # noqa: E731
    else:
        parameters, loss = jax_network(name)

    def descend(state: Any) -> Any:
        p, total = state
        value, gradient = jax.value_and_grad(loss)(p)
        return jax.tree.map(lambda a, g: a - RATE * g, p, gradient), total + value

    def descend_adam(state: Any) -> Any:
        adam, total = state
        value, gradient = jax.value_and_grad(loss)(adam[0])
        return jax_adam(adam, gradient), total + value

    if name != "gpt":
        return running(descend, (parameters, jnp.zeros(())), lambda state: float(state[1]))
    zeros = [jax.tree.map(jnp.zeros_like, parameters) for _ in range(2)]
    adam_state = (parameters, *zeros, jnp.zeros(()))
    return running(descend_adam, (adam_state, jnp.zeros(())), lambda state: float(state[1]))


def jax_adam(state: Any, gradient: Any) -> Any:
    """One step; the state is parameters, both moments and the number of steps."""
    import jax
    import jax.numpy as jnp

    p, m, v, count = state
    count = count + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, gradient)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, v, gradient)
    correction1, correction2 = 1 - BETA1**count, 1 - BETA2**count

    def changed(p: Any, m: Any, v: Any) -> Any:
        return p - RATE * (m / correction1) / (jnp.sqrt(v / correction2) + EPSILON)

    return jax.tree.map(changed, p, m, v), m, v, count


def jax_network(name: str) -> tuple[Any, Callable[[Any], Any]]:
    """Parameters and loss of the MLP or the GPT."""
    import jax
    import jax.numpy as jnp

    key = iter(jax.random.split(jax.random.PRNGKey(0), 64))

    def linear(inputs: int, outputs: int) -> Any:
        return jax.random.normal(next(key), (inputs, outputs)) * 0.05, jnp.zeros(outputs)

    def through(x: Any, layer: Any) -> Any:
        return x @ layer[0] + layer[1]

    if name == "mlp":
        x, y = jax.random.normal(next(key), (64, 256)), jnp.arange(64) % 10
        net = {"up": linear(256, 256), "down": linear(256, 10)}
        return net, lambda p: cross_entropy(jnp, through(jax.nn.relu(through(x, p["up"])), p["down"]), y)

    def norm() -> Any:
        return jnp.ones(WIDTH), jnp.zeros(WIDTH)

    def block() -> dict[str, Any]:
        sizes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
        layers = {layer: linear(a * WIDTH, b * WIDTH) for layer, (a, b) in sizes.items()}
        return {**layers, "norm1": norm(), "norm2": norm()}

    future = jnp.triu(jnp.ones((TOKENS, TOKENS), bool), 1)
    tokens = jax.random.randint(next(key), (BATCH, TOKENS), 0, VOCABULARY)
    classes = jax.random.randint(next(key), (BATCH * TOKENS,), 0, VOCABULARY)
    net = {
        "token": linear(VOCABULARY, WIDTH)[0],
        "place": linear(TOKENS, WIDTH)[0],
        "blocks": [block() for _ in range(LAYERS)],
        "norm": norm(),
        "head": linear(WIDTH, VOCABULARY)[0],
    }

    def loss(p: Any) -> Any:
        x = p["token"][tokens] + p["place"]
        for b in p["blocks"]:
            parts = through(layer_norm(jnp, x, *b["norm1"]), b["qkv"]).reshape(BATCH, TOKENS, 3, HEADS, -1)
            q, k, v = parts.transpose(2, 0, 3, 1, 4)
            scores = jnp.where(future, -jnp.inf, q @ k.swapaxes(-1, -2) * (WIDTH // HEADS) ** -0.5)
            y = jax.nn.softmax(scores) @ v
            x = x + through(y.transpose(0, 2, 1, 3).reshape(BATCH, TOKENS, WIDTH), b["out"])
            x = x + through(jax.nn.gelu(through(layer_norm(jnp, x, *b["norm2"]), b["up"])), b["down"])
        return cross_entropy(jnp, (layer_norm(jnp, x, *p["norm"]) @ p["head"]).reshape(-1, VOCABULARY), classes)

    return net, loss
