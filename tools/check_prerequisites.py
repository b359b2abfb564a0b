"""Says in one line what is missing on this machine before a build starts.

    python3 tools/check_prerequisites.py [--gtest]

Exit status 1 and one line per missing thing: a C++20 compiler, Python 3.10 with venv, disk space; with --gtest also
GoogleTest (installed with apt-get where that is possible).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

DISK_GIB = 4


def compiler_problem() -> str | None:
    """None if g++ (or $CXX) compiles C++20."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"missing: a C++ compiler ({compiler}); Debian and Ubuntu: apt-get install g++"
    source = "#include <version>\n#include <concepts>\nint main() { return 0; }\n"
    run = subprocess.run(
        [compiler, "-std=c++20", "-x", "c++", "-fsyntax-only", "-"], input=source, text=True, capture_output=True
    )
    return None if run.returncode == 0 else f"missing: C++20 in {compiler} (GCC 11 or later)"


def python_problem() -> str | None:
    """None if this Python is new enough and can make virtual environments with headers for extensions."""
    if sys.version_info < (3, 10):  # noqa: UP036 - this file runs before the package's own minimum is enforced
        return f"missing: Python 3.10 or later, got {sys.version.split()[0]}"
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        return "missing: Python's venv; Debian and Ubuntu: apt-get install python3-venv"
    import sysconfig

    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return "missing: Python's headers; Debian and Ubuntu: apt-get install python3-dev"
    return None


def disk_problem() -> str | None:
    """None if the checkout's file system has room for the packages and the build."""
    free = shutil.disk_usage(Path(__file__).parent).free / 2**30
    return None if free >= DISK_GIB else f"missing: disk space, {free:.1f} GiB free here, {DISK_GIB} GiB needed"


def gtest_problem() -> str | None:
    """None if GoogleTest is installed, after trying to install it as root."""
    header = Path("/usr/include/gtest/gtest.h")
    if not header.exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run("apt-get update -qq && apt-get install -y -qq libgtest-dev", shell=True, capture_output=True)
    return None if header.exists() else "missing: GoogleTest; Debian and Ubuntu: apt-get install libgtest-dev"


def main() -> int:
    """Prints the problems; returns the exit status."""
    checks = [compiler_problem, python_problem, disk_problem]
    if "--gtest" in sys.argv[1:]:
        checks.append(gtest_problem)
    problems = [p for p in (check() for check in checks) if p]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
