"""Runs the fault cases in processes whose engine is the test plugin (README.md)."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
BUILT = FOLDER.parents[1] / "build" / "tests" / "plugin" / "libtorch_tpu_test_plugin.so"
LIBRARY = Path(os.environ.get("TORCH_TPU_TEST_PLUGIN_LIBRARY", BUILT))


def engine() -> str:
    spec = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
    assert spec is not None and spec.submodule_search_locations, "pip install xla-cpu-pjrt==0.0.1"
    return str(Path(spec.submodule_search_locations[0]) / "xla_cpu_pjrt.so")


@pytest.mark.skipif(not LIBRARY.exists(), reason="the test plugin is not built: cmake -DTORCH_TPU_TESTS=ON")
@pytest.mark.parametrize("mode", ["", "tpu", "no_portable,no_zero_copy,late=4"])
def test_fault_cases(mode: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TORCH_TPU_PJRT_PLUGIN": str(LIBRARY),
        "TORCH_TPU_TEST_PLUGIN_TARGET": engine(),
        "TORCH_TPU_TEST_PLUGIN_MODE": mode,
        "TORCH_TPU_CACHE_DIR": str(tmp_path),
    }
    environment.pop("TORCH_TPU_TEST_PLUGIN_FAULTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / "fault_cases.py")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
