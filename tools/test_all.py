"""Every test, the slow ones and a long fuzz included, in resumable shards: `make test-all`.

    python tools/test_all.py [--again]

Each shard is one command; its closing line is kept in out/test-all/ with the commit that it ran on, so that an
interrupted run goes on where it stopped; the whole output of a shard that failed is kept beside it. When all shards have
passed, docs/test_all.md is written: closing lines, date and commits.
"""

import argparse
import datetime
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
# In a mode that the environment sets; the fuzzer of the fused mode sets its own.
ATEN_IN_A_MODE = ["tests/aten", "--ignore", "tests/aten/test_fused_fuzz.py"]
PLUGIN = ROOT / "build-tests/tests/plugin/libtorch_tpu_test_plugin.so"
# By name: arguments for Python, and additions to the environment.
SHARDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "ops": ([*PYTEST, "tests/ops"], {}),
    "models": ([*PYTEST, "tests/models"], {}),
    "package": ([*PYTEST, "tests/package"], {}),
    "aten": ([*PYTEST, "tests/aten"], {"TORCH_TPU_FUZZ_PROGRAMS": "4000", "TORCH_TPU_FUSED_FUZZ_PROGRAMS": "2000"}),
    "compile": ([*PYTEST, "tests/compile"], {}),
    "plugin": ([*PYTEST, "tests/plugin"], {"TORCH_TPU_TEST_PLUGIN_LIBRARY": str(PLUGIN)}),
    "examples": ([*PYTEST, "tests/examples"], {}),
    "every region compiled": ([*PYTEST, *ATEN_IN_A_MODE, "tests/ops", "tests/models"], {"TORCH_TPU_FUSE_AFTER": "3"}),
    "strict mode": ([*PYTEST, *ATEN_IN_A_MODE, "tests/ops", "tests/models"], {"TORCH_TPU_EAGER_MODE": "strict"}),
    "debug mode": ([*PYTEST, *ATEN_IN_A_MODE, "tests/ops", "tests/models"], {"TORCH_TPU_EAGER_MODE": "debug"}),
    "mutation": (["tools/mutation_test.py"], {}),
}


def commit() -> str:
    """The checkout's commit, abbreviated."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def record_of(name: str, folder: Path) -> Path:
    """Where a shard's closing line is kept."""
    return folder / f"{name.replace(' ', '-')}.txt"


def run_shard(name: str, folder: Path) -> bool:
    """Runs one shard unless it passed before; prints and keeps its closing line."""
    record = record_of(name, folder)
    if record.exists():
        print(f"{name}: {record.read_text().strip()} (kept)")
        return True
    arguments, environment = SHARDS[name]
    run = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    closing = (run.stdout.strip().splitlines() or ["no output"])[-1]
    print(f"{name}: {closing}")
    if run.returncode != 0:
        output = record.with_suffix(".failed")
        output.write_text(run.stdout + run.stderr)
        print(f"{run.stdout[-5000:]}\nall of it: {output.relative_to(ROOT)}", file=sys.stderr)
        return False
    record.write_text(f"{closing} ({commit()})\n")
    return True


def main() -> int:
    """Runs the shards; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="forget what passed before")
    folder = ROOT / "out" / "test-all"
    folder.mkdir(parents=True, exist_ok=True)
    if parser.parse_args().again:
        for record in folder.glob("*.txt"):
            record.unlink()
    if not all([run_shard(name, folder) for name in SHARDS]):
        return 1
    lines = [f"- {name}: {record_of(name, folder).read_text().strip()}" for name in SHARDS]
    day = datetime.date.today().isoformat()
    (ROOT / "docs" / "test_all.md").write_text(
        f"# make test-all\n\n{day}, commit {commit()}\n\n" + "\n".join(lines) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
