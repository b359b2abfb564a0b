"""Checks the direction of includes between the rooms of csrc/: a room includes only itself and the rooms it may.

    python tools/check_includes.py [--root DIR]

Exit status 1 and one line per wrong arrow, 0 otherwise. Also: PyTorch's headers only in `aten` and `python`, Python's only
in `python` and `aten`, and no include path that climbs with `..`.
"""

import argparse
import re
import sys
from pathlib import Path

# Room -> rooms it may include. The picture in docs/design.md is drawn from the same facts; change both.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "hlo": {"base"},
    "pjrt": {"base"},
    "ops": {"base", "hlo"},
    "runtime": {"base", "hlo", "pjrt"},
    "store": {"base", "pjrt", "runtime"},
    "fuse": {"base", "hlo", "ops", "pjrt", "runtime", "store"},
    "aten": {"base", "hlo", "ops", "pjrt", "runtime", "store", "fuse"},
    "graph": {"base", "hlo", "ops", "pjrt", "runtime", "store", "fuse", "aten"},
    "dist": {"base", "pjrt", "runtime", "store", "aten"},
    "python": {"base", "hlo", "ops", "pjrt", "runtime", "store", "fuse", "aten", "graph", "dist"},
}
TORCH_ROOMS = {"aten", "graph", "dist", "python"}
TORCH_PREFIXES = ("ATen/", "c10/", "torch/", "caffe2/", "torch_python/")
PYTHON_HEADERS = ("Python.h", "pybind11/", "pyerrors.h")
PYTHON_ROOMS = {"aten", "graph", "dist", "python"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def wrong_arrows(file: Path, room: str) -> list[str]:
    """One message per include of `file` that its room may not have."""
    messages = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match is None:
            continue
        path = match.group(2)
        place = f"{file}:{number}"
        target = path.split("/", 1)[0]
        if ".." in path.split("/"):
            messages.append(f"{place}: {path} climbs; include from the root of csrc/")
        elif path.startswith(TORCH_PREFIXES) and room not in TORCH_ROOMS:
            messages.append(f"{place}: room {room} includes a PyTorch header, {path}")
        elif path.startswith(PYTHON_HEADERS) and room not in PYTHON_ROOMS:
            messages.append(f"{place}: room {room} includes a Python header, {path}")
        elif target in ALLOWED and "/" in path and target != room and target not in ALLOWED[room]:
            messages.append(
                f"{place}: room {room} includes {path}; it may include {sorted(ALLOWED[room]) or 'no room'}"
            )
    return messages


def main() -> int:
    """Runs the check; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    messages = []
    count = 0
    for folder in sorted(path for path in (root / "csrc").iterdir() if path.is_dir()):
        if folder.name not in ALLOWED:
            messages.append(
                f"{folder}: unknown room; add it to ALLOWED in tools/check_includes.py and to docs/design.md"
            )
            continue
        if not (folder / "README.md").exists():
            messages.append(f"{folder}: no README.md at the room's door")
        for file in sorted([*folder.rglob("*.h"), *folder.rglob("*.cc")]):
            count += 1
            messages += wrong_arrows(
                file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file, folder.name
            )
    for message in messages:
        print(message)
    print(f"include directions: {count} files, {len(messages)} wrong")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
