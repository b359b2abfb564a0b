"""Prints the size of the code per room and lists long files and functions.

    python tools/size_report.py [--root DIR]

Aims of the house style: files under 600 lines, functions under 60; tables may be longer. Lists what is over the aim and
fails (exit status 1) only over the caps below, which nothing should ever need.
"""

import argparse
import ast
import re
import sys
from pathlib import Path

FILE_AIM, FILE_CAP = 600, 1000
FUNCTION_AIM, FUNCTION_CAP = 60, 200
PYTHON_FOLDERS = ["torch_tpu", "tests", "bench", "examples", "tools"]

# A definition in C++ as clang-format lays it out: starts in column 0 (or in a namespace or class, which add at most a few
# blanks) and its body ends with a brace in the same column.
NOT_FUNCTIONS = re.compile(
    r"^\s*(namespace|class|struct|enum|union|extern|if|for|while|switch|do|else|return|#|//|\}|using)\b"
)


def code_lines(text: str, comment: str) -> int:
    """Lines that are neither blank nor comment only."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith(comment))


def cc_functions(lines: list[str]) -> list[tuple[int, int, str]]:
    """(first line, length, text of the first line) of each function body; tables (initialisers) are left out."""
    found = []
    index = 0
    while index < len(lines):
        line = lines[index]
        indent = len(line) - len(line.lstrip())
        if indent <= 2 and line.rstrip().endswith("{") and "(" in _head(lines, index) and not NOT_FUNCTIONS.match(line):
            head = _head(lines, index)
            if re.search(r"=\s*\{?$", head) is None and "= {" not in head:
                end = _closing(lines, index, indent)
                found.append((index + 1, end - index + 1, line.strip()))
                index = end
        index += 1
    return found


def _head(lines: list[str], index: int) -> str:
    """The line that opens a body together with the lines of the same signature above it."""
    text = lines[index].strip()
    while index > 0 and text.count("(") < text.count(")"):
        index -= 1
        text = lines[index].strip() + " " + text
    return text


def _closing(lines: list[str], index: int, indent: int) -> int:
    """Index of the line that closes the body opened at `index`."""
    for later in range(index + 1, len(lines)):
        line = lines[later]
        if line.startswith(" " * indent + "}"):
            return later
    return len(lines) - 1


def python_functions(text: str) -> list[tuple[int, int, str]]:
    """(first line, length, name) of each function in Python source."""
    return [
        (node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1, node.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def is_table(file: Path) -> bool:
    """Tables may be longer than logic: files that say so in their first lines."""
    return "[table]" in "\n".join(file.read_text().splitlines()[:3])


def main() -> int:
    """Prints the report; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    folders = [path for path in sorted((root / "csrc").iterdir()) if path.is_dir()] if (root / "csrc").is_dir() else []
    folders += [root / name for name in PYTHON_FOLDERS if (root / name).is_dir()]
    long_files, long_functions = [], []
    total = total_tests = 0
    print(f"{'room':<12} {'files':>5} {'code':>7} {'tests':>7}")
    for folder in folders:
        files = sorted(file for kind in ("*.h", "*.cc", "*.py") for file in folder.rglob(kind))
        code = tests = 0
        for file in files:
            text = file.read_text()
            lines = text.splitlines()
            count = code_lines(text, "#" if file.suffix == ".py" else "//")
            is_test = file.stem.endswith("_test") or folder.name == "tests"
            code, tests = code + (0 if is_test else count), tests + (count if is_test else 0)
            if len(lines) > FILE_AIM:
                long_files.append((len(lines), file.relative_to(root), is_table(file)))
            functions = python_functions(text) if file.suffix == ".py" else cc_functions(lines)
            long_functions += [
                (length, file.relative_to(root), line, name)
                for line, length, name in functions
                if length > FUNCTION_AIM
            ]
        total, total_tests = total + code, total_tests + tests
        print(f"{folder.name:<12} {len(files):>5} {code:>7} {tests:>7}")
    print(f"{'total':<12} {'':>5} {total:>7} {total_tests:>7}")
    for length, path, table in sorted(long_files, key=lambda row: row[0], reverse=True):
        print(f"file of {length} lines (aim {FILE_AIM}{', a table' if table else ''}): {path}")
    for length, path, line, name in sorted(long_functions, key=lambda row: row[0], reverse=True):
        print(f"function of {length} lines (aim {FUNCTION_AIM}): {path}:{line}  {name[:60]}")
    over = [row for row in long_files if row[0] > FILE_CAP and not row[2]]
    over_functions = [row for row in long_functions if row[0] > FUNCTION_CAP]
    print(f"size: {len(over)} files over {FILE_CAP} lines, {len(over_functions)} functions over {FUNCTION_CAP}")
    return 1 if over or over_functions else 0


if __name__ == "__main__":
    sys.exit(main())
