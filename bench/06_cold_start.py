"""What it costs to have the package, and to use it for the first time: wall time and memory of fresh processes.

    python bench/06_cold_start.py [--batches 5]

Cases, interleaved, each in a process of its own; a figure is the minimum over the batches:
`import` with the package's autoloading off and on, and the first `a + b` read back on `tpu` with an empty disk store
and with a filled one. One JSON line per figure: {"bench", "contender", "figure", "value"}.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

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


def measure(code: str, environment: dict[str, str]) -> dict[str, float]:
    """The figures that `code` prints as its last line, run by this Python in a fresh process."""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Runs every case `--batches` times and prints the minima."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=5)
    batches = parser.parse_args().batches
    best: dict[tuple[str, str, str], float] = {}
    with tempfile.TemporaryDirectory() as filled:
        measure(FIRST_OP, {"TORCH_TPU_CACHE_DIR": filled})
        for _ in range(batches):
            with tempfile.TemporaryDirectory() as empty:
                cases = [
                    ("import torch", "torch CPU", IMPORT, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
                    ("import torch", "torchtpu", IMPORT, {}),
                    ("first op, empty store", "torchtpu", FIRST_OP, {"TORCH_TPU_CACHE_DIR": empty}),
                    ("first op, filled store", "torchtpu", FIRST_OP, {"TORCH_TPU_CACHE_DIR": filled}),
                ]
                for name, contender, code, environment in cases:
                    for figure, value in measure(code, environment).items():
                        key = (name, contender, figure)
                        best[key] = min(value, best.get(key, value))
    for (name, contender, figure), value in best.items():
        line = {"bench": "cold_start", "contender": contender, "figure": f"{name} {figure}", "value": round(value, 4)}
        print(json.dumps(line))


if __name__ == "__main__":
    main()
