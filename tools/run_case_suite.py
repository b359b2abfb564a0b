"""Runs the case suite (public bug reports as tests) on `tpu` and holds it against what is expected to pass.

    python tools/run_case_suite.py --cases ../shared/cases

Groups V, N, E, C, R and S. Cases listed in EXPECTED_FAILURES need what is not built yet, or are impossible on the embedded
engine; each has its reason. Any other failure, and any listed case that passes, fails the run.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

RANKS = "needs several ranks and the tpu_dist backend"
EXPECTED_FAILURES = {
    "N16": "the embedded engine flushes subnormal numbers (docs/numerics.md)",
    "S7": RANKS,
    "S9": RANKS,
    "S10": RANKS,
    "S11": RANKS,
}
# May pass or fail with the load of the machine: reported, never judged.
TIMING = {"S17", "S18", "S19", "R15"}


def main() -> int:
    """Runs pytest over the groups; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, required=True)
    folder = parser.parse_args().cases.resolve()
    environment = dict(os.environ, CASE_DEVICE="tpu", CASE_IMPORT="torch_tpu", PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", "--tb=line", "--timeout=300"]
    command += [str(folder / f"test_{group}.py") for group in "VNECRS"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    outcomes = dict(
        (name, outcome)
        for outcome, name in re.findall(
            r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\s+\S*::test_([A-Z]\d+)_", run.stdout, re.M
        )
    )
    wrong = []
    for name, outcome in outcomes.items():
        bad = outcome in ("FAILED", "ERROR")
        if bad and name not in EXPECTED_FAILURES and name not in TIMING:
            wrong.append(f"{name} failed")
        if outcome == "PASSED" and name in EXPECTED_FAILURES and name not in TIMING:
            wrong.append(f"{name} passes now: take it off the list ({EXPECTED_FAILURES[name]})")
    for name in sorted(EXPECTED_FAILURES):
        if outcomes.get(name) in ("FAILED", "ERROR"):
            print(f"expected: {name}: {EXPECTED_FAILURES[name]}")
    print(run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr[-2000:])
    if wrong or not outcomes:
        print("\n".join(wrong) or "no case ran", file=sys.stderr)
        print(run.stdout[-6000:], file=sys.stderr)
        return 1
    passed = sum(o == "PASSED" for o in outcomes.values())
    print(f"case suite: {passed} passed of {len(outcomes)}, the others as listed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
