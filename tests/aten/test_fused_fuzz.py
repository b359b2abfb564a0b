"""Random programs in the fused eager mode, on several threads, with compiles that fail or take long."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = int(os.environ.get("TORCH_TPU_FUSED_FUZZ_PROGRAMS", "30"))
SOAK = int(os.environ.get("TORCH_TPU_FUSED_SOAK_OPS", "100000"))
SEED = int(os.environ.get("TORCH_TPU_FUZZ_SEED", "0")) or int.from_bytes(os.urandom(3), "little")
FOLDER = Path(__file__).parent
BUILT = FOLDER.parents[1] / "build-tests" / "tests" / "plugin" / "libtorch_tpu_test_plugin.so"
PLUGIN = Path(os.environ.get("TORCH_TPU_TEST_PLUGIN_LIBRARY", BUILT))


def run(programs: int, *options: str, **environment: str) -> dict[str, int]:
    """Runs programs in a process of their own, with regions compiled at their third run; what they did."""
    print(f"fused fuzz: TORCH_TPU_FUZZ_SEED={SEED}, {programs} programs, {' '.join(options) or 'no faults'}")
    flags = ["-S"] if sys.flags.no_site else []  # then the same package as here (tools/mutation_test.py)
    command = [sys.executable, *flags, str(FOLDER / "fused_programs.py")]
    command += [f"--programs={programs}", f"--seed={SEED}", *options]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=3600,
        env={**os.environ, "TORCH_TPU_FUSE_AFTER": "3", **environment},
    )
    assert done.returncode == 0, done.stderr[-8000:]
    summary: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(summary)
    return summary


@pytest.mark.timeout(120 + 6 * PROGRAMS)
def test_random_programs_on_several_threads():
    summary = run(PROGRAMS)
    # Or nothing was tested.
    assert summary["joint"] >= PROGRAMS // 4 and summary["flushes"] > PROGRAMS


@pytest.mark.skipif(not PLUGIN.exists(), reason="the test plugin is not built: cmake -DTORCH_TPU_TESTS=ON")
@pytest.mark.timeout(120 + 6 * PROGRAMS)
def test_compiles_that_fail_or_take_long_change_no_result(tmp_path):
    spec = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
    assert spec is not None and spec.submodule_search_locations
    summary = run(
        max(PROGRAMS // 2, 15),
        "--faults",
        TORCH_TPU_PJRT_PLUGIN=str(PLUGIN),
        TORCH_TPU_TEST_PLUGIN_TARGET=str(Path(spec.submodule_search_locations[0]) / "xla_cpu_pjrt.so"),
        TORCH_TPU_TEST_PLUGIN_MODE="",
        TORCH_TPU_CACHE_DIR=str(tmp_path),
    )
    assert summary["joint"] > 0 and summary["region_compiles"] > summary["background_compiles"]  # some failed


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_soak_of_mixed_ops_on_four_threads():
    """Programs that come again and again need no more memory, but for the regions that threads make by their timing."""
    summary = run(0, f"--soak={SOAK}")
    assert summary["ops"] >= SOAK and summary["joint"] > SOAK // 50
    # Measured: 0.8 MiB for the program of a region, and nothing else that grows.
    assert summary["grown_kib"] < 1024 * summary["programs_made"] + SOAK // 4
