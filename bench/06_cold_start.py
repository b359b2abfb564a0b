"""What it costs to have the package, and to use it for the first time: wall time and memory of fresh processes.

    python bench/06_cold_start.py [--batches 5]

Cases, interleaved, each in a process of its own; a figure is the minimum over the batches:
`import` with the package's autoloading off and on, and the rival's; the first `a + b` read back on `tpu` with an empty
disk store and with a filled one; 500 distinct shapes of `x + 1`; the first AdamW step of a ResNet-18's 62 tensors with an
empty store beside that of one tensor of each of their 17 shapes. One JSON line per figure:
{"bench", "contender", "figure", "value"}.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RIVAL = Path(__file__).resolve().parent.parent / ".venv-torch-tpu/bin/python"
RIVAL_NAME = "torch-tpu 0.2.0"

MEMORY = 'next(int(l.split()[1]) / 1024 for l in open("/proc/self/status") if l.startswith("VmRSS"))'
IMPORT = f"""
import json, time
start = time.perf_counter()
import torch
print(json.dumps({{"wall_s": time.perf_counter() - start, "rss_mb": {MEMORY}}}))
"""
FIRST_OP = f"""
import json, time
import torch
start = time.perf_counter()
a = torch.ones(4, device="tpu")
b = torch.ones(4, device="tpu")
assert (a + b).tolist() == [2.0] * 4
wall = time.perf_counter() - start
stats = torch.tpu.stats()
print(json.dumps({{"wall_s": wall, "rss_mb": {MEMORY}, "compiles": stats["compiles"], "disk_hits": stats["disk_hits"]}}))
"""
SHAPES = f"""
import json, time
import torch
x = torch.ones(600).to("tpu")
x[:1] + 1
torch.tpu.synchronize()
before = {MEMORY}
start = time.perf_counter()
for n in range(2, 502):
    torch.ones(n).to("tpu") + 1
torch.tpu.synchronize()
stats = torch.tpu.stats()
print(json.dumps({{
    "wall_s": time.perf_counter() - start, "kb_per_shape": ({MEMORY} - before) * 1024 / 500, "compiles": stats["compiles"]
}}))
"""
OPTIMIZER = """
import json, time
import torch

def shapes():
    yield from [(64, 3, 7, 7), (64,), (64,)]
    inside = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            yield from [(width, inside if block == 0 else width, 3, 3), (width,), (width,)]
            yield from [(width, width, 3, 3), (width,), (width,)]
            if block == 0 and inside != width:
                yield from [(width, inside, 1, 1), (width,), (width,)]
        inside = width
    yield from [(1000, 512), (1000,)]

chosen = sorted(set(shapes())) if DISTINCT else list(shapes())
parameters = [torch.nn.Parameter(torch.randn(s).to("tpu")) for s in chosen]
for p in parameters:
    p.grad = torch.randn_like(p)
optimizer = torch.optim.AdamW(parameters, lr=1e-3, FORM=True)
torch.tpu.synchronize()
start = time.perf_counter()
optimizer.step()
torch.tpu.synchronize()
print(json.dumps({"wall_s": time.perf_counter() - start, "tensors": len(parameters)}))
"""


def measure(code: str, environment: dict[str, str], python: str = sys.executable) -> dict[str, float]:
    """The figures that `code` prints as its last line, run by a Python in a fresh process."""
    run = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, cwd="/", env={**os.environ, **environment}
    )
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return figures


def take(best: dict[tuple[str, str, str], float], name: str, contender: str, figures: dict[str, float]) -> None:
    """Keeps the minimum of every figure."""
    for figure, value in figures.items():
        key = (name, contender, figure)
        best[key] = min(value, best.get(key, value))


def main() -> None:
    """Runs every case `--batches` times and prints the minima."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=5)
    batches = parser.parse_args().batches
    best: dict[tuple[str, str, str], float] = {}
    with tempfile.TemporaryDirectory() as filled:
        measure(FIRST_OP, {"TORCH_TPU_CACHE_DIR": filled})
        measure(SHAPES, {"TORCH_TPU_CACHE_DIR": filled})
        for _ in range(batches):
            with tempfile.TemporaryDirectory() as empty:
                cases = [
                    ("import torch", "torch CPU", IMPORT, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
                    ("import torch", "torchtpu", IMPORT, {}),
                    ("import torch", RIVAL_NAME, IMPORT, {}),
                    ("first op, empty store", "torchtpu", FIRST_OP, {"TORCH_TPU_CACHE_DIR": empty}),
                    ("first op, filled store", "torchtpu", FIRST_OP, {"TORCH_TPU_CACHE_DIR": filled}),
                ]
                if not RIVAL.exists():
                    cases = [case for case in cases if case[1] != RIVAL_NAME]
                cases.append(("500 shapes, filled store", "torchtpu", SHAPES, {"TORCH_TPU_CACHE_DIR": filled}))
                for name, contender, code, environment in cases:
                    python = str(RIVAL) if contender == RIVAL_NAME else sys.executable
                    take(best, name, contender, measure(code, environment, python))
            for form in ("foreach", "fused"):
                for distinct in (False, True):
                    with tempfile.TemporaryDirectory() as empty:
                        code = OPTIMIZER.replace("FORM", form).replace("DISTINCT", str(distinct))
                        name = f"first AdamW({form}) step, {'distinct' if distinct else 'all'} tensors"
                        take(best, name, "torchtpu", measure(code, {"TORCH_TPU_CACHE_DIR": empty}))
        with tempfile.TemporaryDirectory() as empty:
            take(best, "500 shapes, empty store", "torchtpu", measure(SHAPES, {"TORCH_TPU_CACHE_DIR": empty}))
    for (name, contender, figure), value in best.items():
        line = {"bench": "cold_start", "contender": contender, "figure": f"{name} {figure}", "value": round(value, 4)}
        print(json.dumps(line))


if __name__ == "__main__":
    main()
