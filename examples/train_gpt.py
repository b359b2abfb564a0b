"""Trains a small GPT on a play of Shakespeare's on `tpu`, samples from it and draws the loss curve.

    python examples/train_gpt.py [--device tpu] [--steps 300] [--out out]

A character model of 1.2 M parameters: 4 blocks, 4 heads, width 160, rotary positions. An op that left the device, or a
loss that does not fall, makes the exit status 1.
"""

import argparse
import math
import sys
import time
from pathlib import Path

from packages import need

need("torch", "matplotlib", "tqdm")

import torch
import torch.nn.functional as F
from report import counters, fallbacks, summary_line
from torch import nn
from tqdm import tqdm

TEXT = Path(__file__).parent / "data" / "twelfth_night.txt"
WIDTH, HEADS, BLOCKS, CONTEXT, BATCH = 160, 4, 4, 64, 16
BUCKETS = (16, 32, 64)  # context lengths while sampling: a growing context meets three shapes, not two hundred


def rotary(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions (Su et al. 2021) for x of shape [batch, heads, time, depth]."""
    half = x.shape[-1] // 2
    frequency = torch.exp(torch.arange(half, device=x.device) * (-math.log(10_000.0) / half))
    angle = torch.arange(x.shape[-2], device=x.device)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, time, WIDTH]."""
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(rotary(q), rotary(k), v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.feed(self.norm2(x))


class GPT(nn.Module):
    """Characters in, logits over the next character out."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: int64 [batch, time] -> [batch, time, vocabulary]."""
        return self.head(self.norm(self.blocks(self.embed(tokens))))


@torch.no_grad()
def sample(model: GPT, prompt: torch.Tensor, count: int) -> torch.Tensor:
    """`count` more tokens after `prompt` (1-D). The context is padded at its end to a bucket's length."""
    tokens = prompt.tolist()
    for _ in range(count):
        context = tokens[-CONTEXT:]
        length = next(b for b in BUCKETS if b >= len(context))
        padded = torch.tensor([context + [0] * (length - len(context))]).to(prompt.device)
        last = torch.tensor([len(context) - 1]).to(prompt.device)
        logits = model(padded)[0].index_select(0, last)[0]
        tokens.append(int(torch.multinomial(torch.softmax(logits / 0.8, -1), 1)))
    return torch.tensor(tokens)


def draw(losses: list[float], path: Path) -> None:
    """The loss curve as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(losses, linewidth=0.7, alpha=0.5, label="step")
    window = max(1, len(losses) // 20)
    smooth = [sum(losses[max(0, i - window) : i + 1]) / (i + 1 - max(0, i - window)) for i in range(len(losses))]
    axes.plot(smooth, label=f"mean of {window}")
    axes.set(xlabel="step", ylabel="cross entropy, nats per character", title="GPT on Twelfth Night, device tpu")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("out"))
    arguments = parser.parse_args()
    device = torch.empty(0, device=arguments.device).device
    before = counters(device)
    torch.manual_seed(0)
    text = TEXT.read_text(encoding="utf-8")
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([number[letter] for letter in text])
    model = GPT(len(letters)).to(device)
    print(
        f"{len(text):,} characters, {len(letters)} kinds; {sum(p.numel() for p in model.parameters()):,} parameters on {device}"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps, eta_min=2e-4)
    losses: list[torch.Tensor] = []
    began = time.perf_counter()
    with tqdm(total=arguments.steps, desc="train", mininterval=1) as bar:
        for step in range(arguments.steps):
            starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
            window = torch.stack([data[s : s + CONTEXT + 1] for s in starts]).to(device)
            loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
            bar.update()
            if step % 10 == 9:
                bar.set_postfix(loss=f"{loss.item():.3f}")
    values = torch.stack(losses).tolist()
    seconds = time.perf_counter() - began
    tokens = arguments.steps * BATCH * CONTEXT
    tenth = max(1, len(values) // 10)
    first, last = sum(values[:tenth]) / tenth, sum(values[-tenth:]) / tenth
    print(f"loss {first:.3f} -> {last:.3f}; {tokens / seconds:,.0f} tokens/s over {seconds:.1f} s")
    compiled = counters(device).get("compiles", 0) + counters(device).get("disk_hits", 0)
    prompt = torch.tensor([number[letter] for letter in "VIOLA."]).to(device)
    written = "".join(letters[i] for i in sample(model, prompt, arguments.sample).tolist())
    compiled = counters(device).get("compiles", 0) + counters(device).get("disk_hits", 0) - compiled
    print(
        f"\n{written}\n\n{arguments.sample} characters sampled with a growing context; programs that this needed: {compiled}"
    )
    picture = arguments.out / "train_gpt_loss.png"
    draw(values, picture)
    print(f"loss curve: {picture}")
    print(summary_line(device, before))
    return int(not last < first or fallbacks(device, before) != 0)


if __name__ == "__main__":
    sys.exit(main())
