"""Runs the shared benchmark scripts on ours and on the rivals, each in its own environment and process, interleaved.

    python bench/rivals.py eager|train [--rounds 3]

Every round runs each contender once; a figure is the minimum over the rounds. One JSON line per figure:
{"bench", "contender", "figure", "value"}. The environments are made by `make bench-setup`; a missing one is left out
and said so on stderr. The scripts live beside the checkout, in ../shared/rivals.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT.parent / "shared" / "rivals"
ENGINE = "xla_plugins.xla_cpu_pjrt"

SCRIPT = {"eager": ["bench_eager.py", "--shapes", "4", "--reps", "5"], "train": ["bench_train.py", "--model", "mlp"]}
HIGHER_IS_BETTER = ("h2d_GBs", "d2h_GBs")


def engine_path(python: Path) -> str:
    """The embedded engine's library as that environment sees it."""
    code = f"import {ENGINE} as p; print(p.__path__[0])"
    found = subprocess.run(
        [str(python), "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    return found.stdout.strip() + "/xla_cpu_pjrt.so"


def contenders(bench: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Name -> (command, extra environment)."""
    ours = ROOT / ".venv/bin/python"
    rival = ROOT / ".venv-torch-tpu/bin/python"
    jax = ROOT / ".venv-jax/bin/python"
    script = [str(SCRIPTS / SCRIPT[bench][0]), *SCRIPT[bench][1:], "--skip-cpu"]
    runs: dict[str, tuple[list[str], dict[str, str]]] = {
        "torchtpu": ([str(ours), *script, "--device", "tpu"], {}),
        "torch CPU": ([str(ours), *script, "--device", "cpu"], {}),
    }
    if rival.exists():
        environment = {"TPU_LIBRARY_PATH": engine_path(rival), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        runs["torch-tpu 0.2.0"] = (
            [str(rival), *script, "--device", "tpu", "--import", "boot_torch_tpu_cpu"],
            environment,
        )
    if jax.exists():
        runs["JAX jit"] = ([str(jax), str(SCRIPTS / "bench_jax.py")], {})
    return runs


def figures(output: str) -> dict[str, float]:
    """Figure -> value from a script's output: JSON lines, or JAX's one JSON object."""
    result: dict[str, float] = {}
    if output.lstrip().startswith("{\n"):
        for key, value in json.loads(output).items():
            for name, number in value.items() if isinstance(value, dict) else [("", value)]:
                if isinstance(number, (int, float)):
                    result[f"{key} {name}".strip()] = float(number)
        return result
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        subject = " ".join(str(row[k]) for k in ("op", "model", "bench") if k in row)
        result.update(
            {
                f"{subject} {k}": float(v)
                for k, v in row.items()
                if isinstance(v, (int, float)) and not isinstance(v, bool)
            }
        )
    return result


def main() -> int:
    """Runs the rounds; prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", choices=sorted(SCRIPT))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    best: dict[tuple[str, str], float] = {}
    for _ in range(arguments.rounds):
        for name, (command, environment) in contenders(arguments.bench).items():
            run = subprocess.run(
                command, capture_output=True, text=True, cwd=SCRIPTS, env={**os.environ, **environment}
            )
            if run.returncode != 0:
                print(f"{name}: {run.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            for figure, value in figures(run.stdout).items():
                better = max if figure.endswith(HIGHER_IS_BETTER) else min
                key = (name, figure)
                best[key] = better(best[key], value) if key in best else value
    for (name, figure), value in best.items():
        print(json.dumps({"bench": arguments.bench, "contender": name, "figure": figure, "value": value}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
