"""Measures contenders side by side: one process each, which stay alive and take turns, batch by batch.

A bench script is started once per contender with `--worker NAME` in that contender's environment. The worker prints
a line of JSON ({figure: value}) for what happens once, then one for every line it reads. A figure is the minimum over
all batches of all processes (the maximum, if its name ends with GB/s).

The environments are made by `make bench-setup`. The rival torch-tpu has our import name, so nothing may put the
checkout on its path: workers run inside `bench/`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rivals import ROOT, engine_path

Figures = dict[str, float]
OURS, FUSED, TORCH_CPU, JAX = "torchtpu strict", "torchtpu fused", "torch CPU", "JAX jit"
RIVAL, RIVAL_FUSED = "torch-tpu 0.2.0", "torch-tpu 0.2.0 fused"
PYTHON = {
    OURS: ROOT / ".venv/bin/python",
    FUSED: ROOT / ".venv/bin/python",
    TORCH_CPU: ROOT / ".venv/bin/python",
    RIVAL: ROOT / ".venv-torch-tpu/bin/python",
    RIVAL_FUSED: ROOT / ".venv-torch-tpu/bin/python",
    JAX: ROOT / ".venv-jax/bin/python",
}


def environment_of(contender: str) -> dict[str, str]:
    """What the contender's processes need beside our own environment."""
    if contender in (RIVAL, RIVAL_FUSED):
        return {"TPU_LIBRARY_PATH": engine_path(PYTHON[RIVAL]), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    extra = {
        OURS: {"TORCH_TPU_EAGER_MODE": "strict"},
        FUSED: {"TORCH_TPU_EAGER_MODE": "fused"},
        TORCH_CPU: {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        JAX: {"JAX_PLATFORMS": "cpu"},
    }
    return extra.get(contender, {})


def device_of(contender: str) -> str:
    """Imports torch with the contender's device; returns the device string."""
    if contender == TORCH_CPU:
        return "cpu"
    if contender in (RIVAL, RIVAL_FUSED):  # its public loader registers nothing without a TPU, see goals.md
        import torch_tpu._loader as loader
        from torch_tpu._internal import env

        # Below the version gate of a native scan op that XLA:CPU cannot run.
        loader._set_libtpu_version = lambda: env.set_libtpu_version("0.0.30")
        loader._init_device("tpu")
        if contender == RIVAL_FUSED:
            from torch_tpu._internal import execution_mode

            execution_mode.eager_mode = execution_mode.EagerMode.DEFER_AND_FUSE
    return "tpu"


class Worker:
    """A contender's process."""

    def __init__(self, script: str, contender: str, environment: dict[str, str]) -> None:
        self.contender = contender
        self._process = subprocess.Popen(
            [str(PYTHON[contender]), script, "--worker", contender],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT / "bench",
            env={**os.environ, **environment_of(contender), **environment},
        )

    def figures(self) -> dict[str, Figures]:
        """The next line of figures, by contender; a worker may answer for torch CPU too."""
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith('{"'):
                return json.loads(line)
        raise RuntimeError(f"{self.contender}: the worker ended with {self._process.wait()}")

    def batch(self) -> dict[str, Figures]:
        """Runs one more batch."""
        assert self._process.stdin
        self._process.stdin.write("batch\n")
        self._process.stdin.flush()
        return self.figures()

    def close(self) -> None:
        """Lets the process end by itself; kills it after ten seconds."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Minima:
    """The best value of every figure of every contender."""

    def __init__(self) -> None:
        self._best: dict[tuple[str, str], float] = {}

    def add(self, contender: str, figures: Figures) -> None:
        """Takes in one batch."""
        for figure, value in figures.items():
            better: Callable[..., float] = max if figure.endswith("GB/s") else min
            key = (contender, figure)
            self._best[key] = better(value, self._best.get(key, value))

    def best(self, contender: str, figure: str) -> float | None:
        """None if it was not measured."""
        return self._best.get((contender, figure))

    def emit(self, bench: str) -> None:
        """One JSON line per figure."""
        for (contender, figure), value in self._best.items():
            print(json.dumps({"bench": bench, "contender": contender, "figure": figure, "value": round(value, 4)}))
        sys.stdout.flush()


def interleave(script: str, minima: Minima, batches: int, environments: dict[str, dict[str, str]]) -> None:
    """Starts one worker per contender of `environments` (name -> extra environment) and lets them take turns."""
    workers: list[Worker] = []
    for contender, environment in environments.items():
        if not PYTHON[contender].exists():
            print(f"{contender}: left out, `make bench-setup` makes its environment", file=sys.stderr)
            continue
        worker = Worker(script, contender, environment)
        workers.append(worker)
        try:
            for name, figures in worker.figures().items():
                minima.add(name, figures)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            workers.pop().close()
    for _ in range(batches):
        for worker in list(workers):
            try:
                for name, figures in worker.batch().items():
                    minima.add(name, figures)
            except (RuntimeError, BrokenPipeError) as error:
                print(f"{worker.contender}: {error}", file=sys.stderr)
                workers.remove(worker)
    for worker in workers:
        worker.close()


def answer(steps: Iterator[dict[str, Figures]]) -> None:
    """The worker's side: the first element at once, then one per line of standard input."""
    print(json.dumps(next(steps)), flush=True)
    for _ in sys.stdin:
        print(json.dumps(next(steps)), flush=True)


def parse(description: str | None, **extra: Any) -> argparse.Namespace:
    """The command line that the interleaved benches share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, default=extra.get("batches", 5))
    parser.add_argument("--processes", type=int, default=extra.get("processes", 1), help="processes per contender")
    return parser.parse_args()


def script_of(file: str) -> str:
    """The script as workers are started with it."""
    return str(Path(file).resolve())
