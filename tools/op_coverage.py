"""How much of PyTorch works on `tpu`: runs PyTorch's own op database (op_db) on the CPU and on the device and counts.

    python tools/op_coverage.py [--only REGEX] [--json FILE]

One sample per OpInfo, the first, in float32 (or the op's first dtype where float32 is not supported): forward, then
backward where the OpInfo has one, against the CPU with the tolerances of tests/ops. Ops with random or uninitialised
results are compared by structure, shape and dtype. Whatever leaves the device is counted by the fallback itself. The
ops run in a child process: one that dies or hangs is reported, and another goes on behind it. The exit status is 1 when
anything is wrong, crashes or hangs.
"""

import argparse
import dataclasses
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest.mock
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECONDS_PER_OP = 60
# Beyond the alarm: an op that hangs in C++ never lets Python's signal handler run.
SECONDS_OF_SILENCE = SECONDS_PER_OP + 30

# The outcomes of a comparison. "right up to its freedom": equal once op_db's own output_process_fn_grad has taken out
# what is not determined (signs of eigenvectors). "not testable": the CPU has no sample, no kernel or no gradient.
OUTCOMES = ("right", "right up to its freedom", "right by shape", "wrong", "raises", "hangs", "crashes", "not testable")
# PyTorch wants these ops' integer tensors on the CPU, whatever the device.
INTEGERS_ON_CPU = ("tensor_split",)
# Relative and absolute, where those of tests/ops are too strict: differences of two sums over all paths in log space;
# an exponential whose smallest elements the CPU itself has no nearer than 4e-5 (ours: 1.4e-5, against float64).
GRADIENT_TOLERANCES = {"nn.functional.ctc_loss": (1e-4, 1e-4), "matrix_exp": (1e-4, 1e-4)}
# An op is random when these many seeds do not give one result.
SEEDS = 8
# Results that nobody wrote.
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


@dataclasses.dataclass
class Result:
    """One direction of one op: its outcome, what was wrong, and the ATen ops that ran on the CPU (name -> calls)."""

    outcome: str
    detail: str = ""
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)


# --- the child: runs ops ---------------------------------------------------------------------------------------------


class OutOfTime(BaseException):
    """Raised by the alarm; not an Exception, so that no op swallows it."""


def short(error: BaseException) -> str:
    """Type and first lines of an error, on one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " | ")[:400]


def seeded(function: Callable[[], Any], shift: int = 0) -> Any:
    """Calls `function` with the seed 0 + `shift`. Many of op_db's functions seed once more themselves: theirs is
    shifted as well."""
    import torch

    manual_seed = torch.manual_seed
    with unittest.mock.patch("torch.manual_seed", lambda seed: manual_seed(seed + shift)):
        torch.manual_seed(0)
        return function()


def same_values(a: Any, b: Any) -> bool:
    import torch
    from torch.utils._pytree import tree_leaves

    a, b = tree_leaves(a), tree_leaves(b)
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if isinstance(x, torch.Tensor):
            if x.shape != y.shape or not torch.allclose(x.detach().to_dense(), y.detach().to_dense(), equal_nan=True):
                return False
        elif x != y and x == x:
            return False
    return True


def assert_same_shapes(actual: Any, expected: Any, what: str) -> None:
    """Structure, shapes, dtypes and device, not values."""
    import torch
    from torch.utils._pytree import tree_leaves

    pairs = list(zip(tree_leaves(actual), tree_leaves(expected), strict=True))
    for a, e in pairs:
        if isinstance(e, torch.Tensor):
            assert a.device.type == "tpu", f"{what}: result is on {a.device}"
            assert (a.shape, a.dtype) == (e.shape, e.dtype), f"{what}: got {a.shape} {a.dtype}"


class Case:
    """The first sample of one OpInfo, ready to run on either device."""

    def __init__(self, op: Any, dtype: Any, requires_grad: bool):
        self.op, self.dtype = op, dtype
        self.sample = seeded(lambda: next(iter(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))))

    def arguments(self, device: str) -> tuple[Any, Any, list[Any]]:
        """Copies of the arguments on `device`, and those of them that take a gradient."""
        import torch
        from torch.utils._pytree import tree_map

        leaves: list[Any] = []

        def move(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                if self.op.name in INTEGERS_ON_CPU and not x.is_floating_point():
                    return x
                y = x.detach().clone().to(device)
                if x.requires_grad:
                    leaves.append(y.requires_grad_())
                return y
            return torch.device(device) if isinstance(x, torch.device) or x == "cpu" else x

        return tree_map(move, (self.sample.input, *self.sample.args)), tree_map(move, self.sample.kwargs), leaves

    def forward(self, device: str) -> Any:
        args, kwargs, _ = self.arguments(device)
        return self.op.op(*args, **kwargs)

    def backward(self, device: str) -> list[Any]:
        """Gradients of every differentiable result, weighted, with respect to every input that has one."""
        import torch
        from torch.utils._pytree import tree_leaves

        args, kwargs, leaves = self.arguments(device)
        result = self.sample.output_process_fn_grad(self.op.op(*args, **kwargs))
        outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
        if not outputs or not leaves:
            return []
        weights = [torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape).to(x.dtype).to(device) for x in outputs]
        return list(torch.autograd.grad(outputs, leaves, weights, allow_unused=True))


def compare(run: Callable[[str], Any], case: Case, process: Callable[[Any], Any]) -> Result:
    """Runs on both devices; `process` is applied to both results where they differ."""
    import comparing
    import torch

    try:
        expected = seeded(lambda: run("cpu"))
        by_shape = case.op.name in UNINITIALISED or any(
            not same_values(expected, seeded(lambda: run("cpu"), shift)) for shift in range(1, SEEDS)
        )
    except Exception as error:
        return Result("not testable", short(error))
    if isinstance(expected, list) and not expected:
        return Result("not testable", "no result takes a gradient")
    before = torch.tpu.stats()["fallbacks_by_op"]
    result = Result("right by shape" if by_shape else "right")
    try:
        actual = seeded(lambda: run("tpu"))
        torch.accelerator.synchronize()
        if by_shape:
            assert_same_shapes(actual, expected, case.op.full_name)
        else:
            try:
                comparing.assert_same(actual, expected, case.dtype, "result")
            except AssertionError:
                comparing.assert_same(process(actual), process(expected), case.dtype, "result")
                result.outcome = "right up to its freedom"
    except AssertionError as error:
        result = Result("wrong", short(error))
    except Exception as error:
        result = Result("raises", short(error))
    after = torch.tpu.stats()["fallbacks_by_op"]
    result.fallbacks = {k: n - before.get(k, 0) for k, n in after.items() if n > before.get(k, 0)}
    return result


def run_op(op: Any) -> dict[str, Any]:
    """Both directions of one OpInfo."""
    import comparing
    import torch

    dtypes = op.supported_dtypes("cpu")
    record: dict[str, Any] = {"name": op.full_name}
    if not dtypes:
        return record | {"forward": Result("not testable", "no dtype on the CPU")}
    dtype = torch.float32 if torch.float32 in dtypes else sorted(dtypes, key=str)[0]
    record["dtype"] = str(dtype)
    try:
        case = Case(op, dtype, requires_grad=False)
    except (Exception, StopIteration) as error:
        return record | {"forward": Result("not testable", f"no sample: {short(error)}")}
    record["forward"] = compare(case.forward, case, case.sample.output_process_fn_grad)
    has_gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    if has_gradient and record["forward"].outcome != "not testable":
        case = Case(op, dtype, requires_grad=True)
        tolerance = GRADIENT_TOLERANCES.get(op.name, comparing.TOLERANCES[dtype])
        with unittest.mock.patch.dict(comparing.TOLERANCES, {dtype: tolerance}):
            record["backward"] = compare(case.backward, case, lambda gradients: gradients)
    return record


def child(names: list[str]) -> None:
    """Runs the ops named on standard input; one JSON line per op on standard output, preceded by its name."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(ROOT / "tests" / "ops"))
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    torch.tpu.fallback("quiet")

    def alarm(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, alarm)
    by_name = {op.full_name: op for op in op_db}
    for name in names:
        lines.write(json.dumps(name) + "\n")
        signal.alarm(SECONDS_PER_OP)
        try:
            record = run_op(by_name[name])
        except OutOfTime:
            record = {"name": name, "forward": Result("hangs", f"more than {SECONDS_PER_OP} s")}
        finally:
            signal.alarm(0)
        lines.write(json.dumps(record, default=dataclasses.asdict) + "\n")


# --- the parent: collects and counts ---------------------------------------------------------------------------------


def run_child(names: list[str], records: dict[str, Any]) -> None:
    """Runs a child over `names` until it ends, dies or falls silent; adds to `records`."""
    with tempfile.TemporaryFile() as errors, tempfile.NamedTemporaryFile("w+", suffix=".json") as todo:
        json.dump(names, todo)
        todo.flush()
        command = [sys.executable, __file__, "--child", todo.name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        running, silent, pending = None, False, b""
        while True:
            # The first line waits for the imports.
            if not select.select([process.stdout], [], [], SECONDS_OF_SILENCE)[0]:
                silent = True
                process.kill()
                break
            block = os.read(process.stdout.fileno(), 1 << 16)
            if not block:
                break
            *whole, pending = (pending + block).split(b"\n")
            for line in whole:
                value = json.loads(line)
                if isinstance(value, str):
                    running = value
                else:
                    records[value["name"]], running = value, None
        status = process.wait()
        if running is None and status != 0 and not records:
            errors.seek(0)
            raise SystemExit(errors.read().decode(errors="replace")[-4000:])
        if running is not None:
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-300:].replace("\n", " | ")
            outcome = "hangs" if silent else "crashes"
            detail = "in C++" if silent else f"exit status {status}: {said}"
            records[running] = {"name": running, "forward": dataclasses.asdict(Result(outcome, detail))}


def run_all(names: list[str]) -> list[dict[str, Any]]:
    records: dict[str, Any] = {}
    while todo := [n for n in names if n not in records]:
        before = len(records)
        run_child(todo, records)
        if len(records) == before:
            raise SystemExit("op_coverage: the child ended without running an op")
    return [records[n] for n in names]


def table(records: list[dict[str, Any]]) -> str:
    """Counts as a Markdown table, then the names of every class but "right"."""
    sides = {side: [(r["name"], r[side]) for r in records if side in r] for side in ("forward", "backward")}
    lines = ["| | forward | backward |", "|---|---|---|"]

    def row(label: str, chosen: Callable[[dict[str, Any]], bool]) -> None:
        counts = [sum(chosen(r) for _, r in side) for side in sides.values()]
        lines.append(f"| {label} | {counts[0]} | {counts[1]} |")

    row("testable", lambda r: r["outcome"] != "not testable")
    row("right", lambda r: r["outcome"].startswith("right"))
    row("right without leaving the device", lambda r: r["outcome"].startswith("right") and not r["fallbacks"])
    row("right by shape and dtype only (random or uninitialised results)", lambda r: r["outcome"] == "right by shape")
    for outcome in ("wrong", "raises", "hangs", "crashes"):
        row(outcome, lambda r, outcome=outcome: r["outcome"] == outcome)
    row("not testable", lambda r: r["outcome"] == "not testable")

    def names(heading: str, chosen: Iterable[str]) -> None:
        if listed := list(chosen):
            lines.extend(["", f"{heading} ({len(listed)}):", *(f"  {x}" for x in listed)])

    for side, results in sides.items():
        names(
            f"{side}, on the CPU",
            (f"{n}: {', '.join(sorted(r['fallbacks']))}" for n, r in results if r["fallbacks"]),
        )
        for outcome in OUTCOMES[1:]:
            names(
                f"{side}, {outcome}",
                (f"{n}: {r['detail']}".rstrip(": ") for n, r in results if r["outcome"] == outcome),
            )
    return "\n".join(lines)


def main() -> int:
    """Runs op_db; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression that an op's name must contain")
    parser.add_argument("--json", type=Path, help="file for every op's outcome")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(json.loads(arguments.child.read_text()))
        return 0
    from torch.testing._internal.common_methods_invocations import op_db

    start = time.monotonic()
    names = list(dict.fromkeys(op.full_name for op in op_db if re.search(arguments.only, op.full_name)))
    records = run_all(names)
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1) + "\n")
    print(table(records))
    print(f"\n{len(records)} ops in {time.monotonic() - start:.0f} s")
    bad = ("wrong", "hangs", "crashes")
    return int(any(r[side]["outcome"] in bad for r in records for side in ("forward", "backward") if side in r))


if __name__ == "__main__":
    sys.exit(main())
