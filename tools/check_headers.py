"""Checks that every header of csrc/ compiles alone.

    python tools/check_headers.py [--build DIR] [--room ROOM ...] [--jobs N]

Takes the compiler flags of a source of the same room from DIR/compile_commands.json, which configuring is enough for:
nothing of it needs to be built. Each header is compiled on its own, without optimisation and through ccache where that is
installed, so that a second run compiles only what changed. Exit status 1 if one fails.
"""

import argparse
import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What CMake defines for the tests only, and some headers are for tests.
TEST_DEFINITIONS = ['-DTORCH_TPU_EMBEDDED_PLUGIN=""']


def flags_by_room(build: Path) -> dict[str, list[str]]:
    """Room -> compiler command without source, output and precompiled header."""
    flags: dict[str, list[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = Path(entry["file"])
        if not file.is_relative_to(ROOT / "csrc"):
            continue
        room = file.relative_to(ROOT / "csrc").parts[0]
        if room in flags or file.stem.endswith("_test"):
            continue
        words = [word for word in shlex.split(entry["command"]) if Path(word).name != "ccache"]
        kept: list[str] = []
        skip = False
        for index, word in enumerate(words):
            if skip:
                skip = False
            elif word in ("-o", "-c") or (word == "-include" and "cmake_pch" in words[index + 1]):
                skip = True
            elif word not in ("-Winvalid-pch",) and "cmake_pch" not in word and word != entry["file"]:
                kept.append(word)
        flags[room] = kept
    return flags


def check(header: Path, command: list[str], folder: Path) -> str:
    """'' if the header compiles alone, else what the compiler said. `folder` takes the source and the object."""
    name = header.relative_to(ROOT / "csrc")
    source = folder / name.with_suffix(".cc")
    source.parent.mkdir(parents=True, exist_ok=True)
    # Twice: a header without include guard fails.
    source.write_text(f'#include "{name}"\n#include "{name}"\n')
    cached = [ccache] if (ccache := shutil.which("ccache")) else []
    command = [*cached, *command, *TEST_DEFINITIONS, "-O0", "-c", str(source), "-o", str(source.with_suffix(".o"))]
    run = subprocess.run(command, capture_output=True, text=True)
    return "" if run.returncode == 0 else f"{header.relative_to(ROOT)} does not compile alone:\n{run.stderr}"


def main() -> int:
    """Runs the check; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build-headers")
    parser.add_argument("--room", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if not (options.build / "compile_commands.json").exists():
        print(f"{options.build}/compile_commands.json is missing: run `make check-headers`, which configures")
        return 1
    flags = flags_by_room(options.build)
    folder = options.build.resolve() / "alone"
    headers, messages = [], []
    for header in sorted((ROOT / "csrc").rglob("*.h")):
        room = header.relative_to(ROOT / "csrc").parts[0]
        if options.room and room not in options.room:
            continue
        if room in flags:
            headers.append((header, flags[room]))
        else:
            messages.append(f"{header.relative_to(ROOT)}: no source of room {room} is part of the build")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        messages += [message for message in pool.map(lambda pair: check(*pair, folder), headers) if message]
    for message in messages:
        print(message)
    print(f"headers that compile alone: {len(headers)} checked, {len(messages)} failed")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
