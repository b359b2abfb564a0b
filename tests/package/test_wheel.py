"""The wheel that `make wheel` leaves in out/wheel/repaired: what is in it, and that it runs in a fresh environment."""

import email
import email.message
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
MEGABYTES = 15


@pytest.fixture(scope="module")
def wheel() -> Path:
    """TORCH_TPU_TEST_WHEEL, else the repaired wheel for this Python."""
    named = os.environ.get("TORCH_TPU_TEST_WHEEL")
    if named:
        return Path(named).resolve(strict=True)
    found = sorted((ROOT / "out" / "wheel" / "repaired").glob(f"torchtpu-*-{TAG}-{TAG}-*.whl"))
    if not found:
        pytest.skip(f"no wheel for {TAG} in out/wheel/repaired: run `make wheel`, or name one in TORCH_TPU_TEST_WHEEL")
    return found[-1]


@pytest.fixture(scope="module")
def contents(wheel) -> dict[str, bytes]:
    """Path -> bytes of the wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def information(contents: dict[str, bytes], name: str) -> email.message.Message:
    """A file of the wheel's .dist-info folder that is made of headers."""
    (text,) = (data for path, data in contents.items() if path.endswith(f".dist-info/{name}"))
    return email.message_from_bytes(text)


def test_size_and_tag(wheel, contents):
    assert wheel.stat().st_size <= MEGABYTES * 2**20
    assert re.fullmatch(rf"torchtpu-[\d.]+-{TAG}-{TAG}-manylinux_2_\d+_x86_64\.whl", wheel.name), wheel.name
    assert f"torchtpu-{information(contents, 'METADATA')['Version']}-" in wheel.name
    assert information(contents, "WHEEL").get_all("Tag") == [wheel.stem.split("-", 2)[2]]


def test_metadata(contents):
    metadata = information(contents, "METADATA")
    assert metadata["Name"] == "torchtpu" and metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    assert metadata.get_all("Requires-Dist") == ["torch==2.13.*", "xla-cpu-pjrt==0.0.1"]
    files = {
        path.partition(".dist-info/")[2]: data.decode() for path, data in contents.items() if ".dist-info/" in path
    }
    assert files["entry_points.txt"].split("\n\n")[0].split() == [
        "[torch.backends]",
        "torch_tpu",
        "=",
        "torch_tpu:_autoload",
    ]
    assert files["licenses/LICENSE"] == (ROOT / "LICENSE").read_text()


def test_only_the_package_is_inside(contents):
    # One library, for this Python: neither PyTorch's nor what other builds left in the source folder.
    libraries = [path for path in contents if ".so" in path]
    assert libraries == [f"torch_tpu/_C.cpython-{TAG[2:]}-x86_64-linux-gnu.so"]
    others = [path for path in contents if path not in libraries and ".dist-info/" not in path]
    assert {Path(path).suffix for path in others} == {".py", ".pyi"}
    assert {path.split("/")[0] for path in others} == {"torch_tpu"}


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """Runs Python in a new environment that holds PyTorch and the wheel; leads to the process that ended."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    # Not PYTHONPATH or a setting of this process's: what a user has who follows the README.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TORCH_"))}
    environment["TORCH_TPU_CACHE_DIR"] = str(folder / "cache")

    def run(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [python, *arguments], capture_output=True, text=True, timeout=500, cwd=folder, env=environment
        )

    for package in ("torch==2.13.0", str(wheel)):
        done = run("-m", "pip", "install", "-q", package)
        assert done.returncode == 0, done.stderr[-4000:]
    return run


def test_runs_in_a_fresh_environment(fresh):
    done = fresh("-c", "import torch; print(torch.ones(3, device='tpu') + 1)")
    assert done.stdout == "tensor([2., 2., 2.], device='tpu:0')\n", done.stderr
    script = """
import importlib, pkgutil, torch, torch_tpu
for module in pkgutil.walk_packages(torch_tpu.__path__, "torch_tpu."):
    importlib.import_module(module.name)
layer = torch.nn.Linear(4, 4).to("tpu")
layer(torch.ones(2, 4, device="tpu")).sum().backward()
print(torch_tpu.__file__, layer.weight.grad.sum().item(), torch.tpu.stats()["fallbacks"])
"""
    done = fresh("-c", script)
    assert done.returncode == 0, done.stderr
    file, *values = done.stdout.split()
    assert "/fresh" in file and "/site-packages/" in file and values == ["32.0", "0"]


def test_another_torch_is_refused_in_one_sentence(fresh):
    # The version that PyTorch itself reports is changed, in the fresh environment's copy.
    found = fresh("-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
    file = Path(found.stdout.strip()) / "version.py"
    text = file.read_text()
    file.write_text(re.sub(r"2\.13\.0(\+\w+)?", "2.99.1", text))
    try:
        done = fresh("-W", "ignore", "-c", "import torch; print(torch.ones(1).item(), hasattr(torch, 'tpu'))")
        assert done.stdout == "1.0 False\n"
        assert re.fullmatch(
            r"torch_tpu is not loaded: torchtpu [\d.]+ is built for PyTorch 2\.13, but PyTorch 2\.99\.1 is installed\n",
            done.stderr,
        ), done.stderr
        done = fresh("-W", "ignore", "-c", "import torch_tpu")
        assert done.returncode == 1 and "built for PyTorch 2.13, but PyTorch 2.99.1" in done.stderr.splitlines()[-1]
    finally:
        file.write_text(text)
