"""Seeds bugs one at a time and requires a fuzzer (tests/aten: view_programs.py, fused_programs.py) to find each of them.

    python tools/mutation_test.py [--only NAME ...] [--programs N] [--seed N] [--jobs N] [--again]

Works in out/mutation: `tree` is a copy of the working tree, `build` its build folder. The unmutated copy must pass;
then each mutant is put into the copy, `_C` is rebuilt, and the random programs must fail. Outcomes are kept in
out/mutation/outcomes.json for as long as the tree, the mutant and the settings stay as they are, so that an interrupted
run goes on where it stopped. Exit status 1: a mutant survived, or the unmutated copy failed.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "out" / "mutation"
TREE = WORK / "tree"
BUILD = WORK / "build"
UNMUTATED = "unmutated"
SHARDS = 4  # of the view fuzzer: tests/aten/test_views.py
FUSED = "fused"  # the group of mutants that are the fused mode's fuzzer's to find
RUN_SECONDS = 900  # a mutant that hangs the fuzzer for so long counts as found


@dataclass(frozen=True)
class Mutant:
    """A bug to seed: in `file`, `old` (which occurs once) becomes `new`."""

    name: str
    group: str  # view, write-back, key, donation or fused
    file: str
    old: str
    new: str
    bug: str

    def identity(self) -> str:
        """What its outcome is kept under."""
        return f"{self.name} {hashlib.sha256(repr(self).encode()).hexdigest()[:12]}"


MUTANTS = (
    Mutant(
        "row-shift",
        "view",
        "csrc/hlo/view_plan.cc",
        "start[i] -= row.offset;",
        "",
        "A cut into rows counts twice where inside a row the view begins.",
    ),
    Mutant(
        "gather-offset",
        "view",
        "csrc/hlo/view.cc",
        "element_indices(b, indexed, view.offset, index_dtype(base.numel()))",
        "element_indices(b, indexed, 0, index_dtype(base.numel()))",
        "A view read by computed indices ignores its storage offset.",
    ),
    Mutant(
        "neg-bit",
        "view",
        "csrc/hlo/view.cc",
        "return view.neg ? b.neg(x) : x;",
        "return x;",
        "The neg bit of a view is dropped.",
    ),
    Mutant(
        "second-alias",
        "write-back",
        "csrc/aten/program.cc",
        "if (use.operand < 0 || !x) continue;  // zero elements",
        "if (use.operand < 0 || !x || !touched.empty()) continue;",
        "An op that writes two views of one base puts only the first of them back.",
    ),
    Mutant(
        "between-steps",
        "write-back",
        "csrc/hlo/view.cc",
        "b.select(chosen, spread, box)",
        "b.select(chosen, spread, b.zeros_like(box))",
        "A write through a strided slice clears the elements between its steps.",
    ),
    Mutant(
        "permutation",
        "write-back",
        "csrc/hlo/view.cc",
        "inverse[step.permutation[i]] = static_cast<int64_t>(i);",
        "inverse[i] = step.permutation[i];",
        "A write through a permuted view permutes forwards instead of back.",
    ),
    Mutant(
        "expanded-whole",
        "write-back",
        "csrc/hlo/view.cc",
        "if (bytes == base_bytes && covers_densely(view)) {",
        "if (bytes == base_bytes && (covers_densely(view) || repeats(view))) {",
        "A write through an expanded view as large as its base replaces the whole base.",
    ),
    Mutant(
        "out-forgets-base",
        "write-back",
        "csrc/aten/call.cc",
        "use.fresh = out && covers_storage(t, *slot);",
        "use.fresh = out && (covers_storage(t, *slot) || t.storage_offset() == 0);",
        "out= through a view that begins where its base does takes the rest of the base for unwritten.",
    ),
    Mutant(
        "upload-replaces-base",
        "write-back",
        "csrc/aten/copy.cc",
        "t.numel() * static_cast<int64_t>(t.itemsize()) == static_cast<int64_t>(t.storage().nbytes());",
        "t.numel() > 0;",
        "A copy into a view that begins where its base does replaces the base's buffer.",
    ),
    Mutant(
        "key-alias-pattern",
        "key",
        "csrc/aten/call.cc",
        "static_cast<uint64_t>(use.operand + 1) << 32);",
        "static_cast<uint64_t>(use.operand >= 0) << 32);",
        "The key leaves out which arguments share a storage.",
    ),
    Mutant(
        "key-strides",
        "key",
        "csrc/aten/call.cc",
        "for (int64_t s : t.strides()) key.push_back(static_cast<uint64_t>(s));",
        "",
        "The key leaves out the strides of views.",
    ),
    Mutant(
        "key-transposed",
        "key",
        "csrc/aten/call.cc",
        "|| t.storage_offset() != 0 || !t.is_contiguous()) return false;",
        "|| t.storage_offset() != 0) return false;",
        "The key takes a transposed square for the buffer itself.",
    ),
    Mutant(
        "key-conj-bit",
        "key",
        "csrc/aten/call.cc",
        "static_cast<uint64_t>(t.is_conj()) << 17 |",
        "",
        "The key leaves out the conj bit.",
    ),
    Mutant(
        "key-attribute",
        "key",
        "csrc/aten/call.cc",
        "key.push_back(static_cast<uint64_t>(item.isInt() ? item.toInt() : item.toSymInt().expect_int()));",
        "(void)item;",
        "The key leaves out the numbers of integer lists (dims, shifts).",
    ),
    Mutant(
        "key-dtype",
        "key",
        "csrc/aten/call.cc",
        "call.key.push_back(kTagTensor | static_cast<uint64_t>(t.scalar_type()) << 8 |",
        "call.key.push_back(kTagTensor |",
        "The key leaves out the dtype of tensors.",
    ),
    Mutant(
        "donate-shared",
        "donation",
        "csrc/aten/kernel.cc",
        "if (operand.value.use_count() > 2 ||",
        "if (operand.value.use_count() > 3 ||",
        "A buffer that one other storage still holds is donated.",
    ),
    Mutant(
        "donate-shared-recorded",
        "donation",
        "csrc/fuse/region.cc",
        "if (value.use_count() > 1 || !value->donatable",
        "if (value.use_count() > 2 || !value->donatable",
        "A recorded step donates a buffer that one other storage still holds.",
    ),
    Mutant(
        "donate-all",
        "donation",
        "csrc/pjrt/executable.cc",
        "options->num_non_donatable_input_indices = request.non_donatable_count;",
        "options->num_non_donatable_input_indices = 0;",
        "The list of arguments that must survive a call is not passed to the engine.",
    ),
    Mutant(
        "region-donates-held",
        FUSED,
        "csrc/fuse/region.cc",
        "if (value.use_count() > w.held[parameter] || !value",
        "if (value.use_count() > w.held[parameter] + 1 || !value",
        "A region's program donates a buffer that one storage outside of the region still holds.",
    ),
    Mutant(
        "region-donates-all",
        FUSED,
        "csrc/fuse/region.cc",
        "if (value.use_count() > w.held[parameter] || !value",
        "if (!value",
        "A region's program donates whatever its steps may overwrite.",
    ),
    Mutant(
        "region-lacks-results",
        FUSED,
        "csrc/fuse/regions.cc",
        "if (known.joint && covers(known.joint->results, returned)) {",
        "if (known.joint) {",
        "A region runs as a program that does not return all that is needed.",
    ),
    Mutant(
        "region-mixes-results",
        FUSED,
        "csrc/fuse/region.cc",
        "if (needed == w.returned.end() || !(*needed == joint.results[i])) continue;",
        "if (needed == w.returned.end()) continue;",
        "Results of a region's program that nobody needs this time are taken for those that somebody does.",
    ),
    Mutant(
        "region-key-wiring",
        FUSED,
        "csrc/fuse/region.cc",
        "static_cast<uint64_t>(sources[number].index));",
        "uint64_t{0});",
        "The key of a region leaves out which operand is used where.",
    ),
    Mutant(
        "early-region-lacks-results",
        FUSED,
        "csrc/fuse/regions.cc",
        "if (place->second.joint && covers(place->second.joint->results, returned)) meeting",
        "if (place->second.joint) meeting",
        "A region that runs early runs as a program that does not return all that is needed.",
    ),
)


def check_table() -> None:
    """Raises SystemExit unless every mutant's text occurs exactly once in its file."""
    for mutant in MUTANTS:
        count = (ROOT / mutant.file).read_text().count(mutant.old)
        if count != 1:
            raise SystemExit(f"mutation: {mutant.name}: its text occurs {count} times in {mutant.file}, expected once")


def copy_tree() -> str:
    """Makes TREE equal to the working tree, touching only files that differ; returns a digest of the contents."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = sorted(name for name in set(listing.split("\0")) if name and (ROOT / name).is_file())
    digest = hashlib.sha256()
    for name in names:
        contents = (ROOT / name).read_bytes()
        if name.startswith(("csrc/", "torch_tpu/", "tests/aten/", "CMakeLists.txt")):
            digest.update(f"{name}\0{len(contents)}\0".encode() + contents)
        place = TREE / name
        if not place.exists() or place.read_bytes() != contents:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(contents)
    for place in (TREE / "csrc").rglob("*"):
        if place.is_file() and str(place.relative_to(TREE)) not in names:
            place.unlink()
    return digest.hexdigest()


def build(jobs: int) -> None:
    """Builds `_C` of the copy and puts it into the copy's package. Raises SystemExit when it does not compile."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    configure = ["cmake", "-G", "Ninja", "-S", str(TREE), "-B", str(BUILD), f"-DPython_EXECUTABLE={sys.executable}"]
    make = ["cmake", "--build", str(BUILD), "--target", "_C", "-j", str(jobs)]
    steps = [make] if (BUILD / "build.ninja").exists() else [[*configure, "-DTORCH_TPU_TESTS=OFF"], make]
    for step in steps:
        run = subprocess.run(step, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0:
            raise SystemExit(f"mutation: the copy does not build:\n{run.stdout[-4000:]}")
    for product in BUILD.glob("_C.*.so"):
        # Replaced, not overwritten: a process that is still ending may have the old one mapped.
        (TREE / "torch_tpu" / product.name).unlink(missing_ok=True)
        shutil.copy2(product, TREE / "torch_tpu" / product.name)


def environment_of(name: str, programs: int, seed: int) -> dict[str, str]:
    """The environment that runs the copy's package, with a store of its own so that no wrong program outlives it.

    For Python with -S: an editable install puts a finder before PYTHONPATH, by a .pth file.
    """
    store = WORK / "cache" / name
    shutil.rmtree(store, ignore_errors=True)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(TREE), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))),
        "TORCH_TPU_CACHE_DIR": str(store),
        "TORCH_TPU_EAGER_MODE": "strict",  # where the view fuzzer's mutants are on the way of every op
        "TORCH_TPU_FUZZ_PROGRAMS": str(programs),
        "TORCH_TPU_FUSED_FUZZ_PROGRAMS": str(max(programs // 10, 1)),
        "TORCH_TPU_FUZZ_SEED": str(seed),
    }


def check_import(environment: dict[str, str]) -> None:
    """Raises SystemExit unless the copy's own `_C` is what Python imports."""
    command = [sys.executable, "-S", "-c", "import torch, torch_tpu._C; print(torch_tpu._C.__file__)"]
    run = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True)
    if not run.stdout.startswith(str(TREE)):
        raise SystemExit(f"mutation: expected {TREE}'s _C, got {run.stdout}{run.stderr[-2000:]}")


def fuzz(name: str, group: str, programs: int, seed: int) -> str:
    """Runs the group's random programs on the copy. Returns what failed first, or an empty string when all passed."""
    environment = environment_of(name, programs, seed)
    check_import(environment)
    command = [sys.executable, "-S", "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["tests/aten/test_fused_fuzz.py" if group == FUSED else "tests/aten/test_views.py"]
    command += ["-k", "test_random_programs"]
    try:
        run = subprocess.run(
            command,
            cwd=TREE,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"still running after {RUN_SECONDS} s"
    finally:
        shutil.rmtree(WORK / "cache" / name, ignore_errors=True)
    (WORK / f"{name}.log").write_text(run.stdout)
    if run.returncode == 0:
        return ""
    if run.returncode < 0:
        return f"crash, signal {-run.returncode}"
    if run.returncode != 1:
        raise SystemExit(f"mutation: pytest ended with {run.returncode}:\n{run.stdout[-4000:]}")
    lines = [line[1:].strip() for line in run.stdout.splitlines() if line.startswith("E ")]
    if group == FUSED:
        groups = re.findall(r"group (\d+): ", run.stdout)
        said = [line for line in lines if re.match(r"\w*Error\b", line)]
        return (
            f"group {int(groups[-1]) - seed * 100_000 + 1 if groups else '?'}: {said[-1][:80] if said else 'failure'}"
        )
    found = re.search(r"seed (\d+)", "\n".join(lines))
    if found is None:
        return f"failure: {lines[0] if lines else run.stdout[-200:]}"
    shard, place = (int(found[1]) - seed * 100_000) % SHARDS, (int(found[1]) - seed * 100_000) // SHARDS
    said = [line for line in lines if re.match(r"alias \d+: ", line)]
    what = said[0] if said else lines[0].rsplit(": ", 1)[-1] if ": " in lines[0] else lines[0]
    return f"program {shard * (programs // SHARDS) + place + 1}: {what[:80]}"


def try_mutant(mutant: Mutant, programs: int, seed: int, jobs: int) -> str:
    """Builds and fuzzes one mutant, then takes it out of the copy again; returns what fuzz() returned."""
    place = TREE / mutant.file
    original = place.read_text()
    place.write_text(original.replace(mutant.old, mutant.new))
    try:
        build(jobs)
        return fuzz(mutant.name, mutant.group, programs, seed)
    finally:
        place.write_text(original)


def main() -> int:
    """Runs the unmutated copy, then every mutant; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants")
    parser.add_argument("--programs", type=int, default=1000, help="random programs per mutant, at most")
    parser.add_argument("--seed", type=int, default=1, help="the fuzzer's")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    parser.add_argument("--again", action="store_true", help="forget the outcomes of before")
    options = parser.parse_args()
    if unknown := set(options.only or ()) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    check_table()
    state = f"{copy_tree()} {options.programs} {options.seed}"
    record = WORK / "outcomes.json"
    kept = json.loads(record.read_text()) if record.exists() and not options.again else {}
    outcomes: dict[str, str] = kept["outcomes"] if kept.get("state") == state else {}

    def keep(name: str, outcome: str) -> None:
        outcomes[name] = outcome
        record.write_text(json.dumps({"state": state, "outcomes": outcomes}, indent=1) + "\n")

    if UNMUTATED not in outcomes:
        print(f"{UNMUTATED}: building and running {options.programs} programs", flush=True)
        build(options.jobs)
        for group in (UNMUTATED, FUSED):
            if failure := fuzz(UNMUTATED, group, options.programs, options.seed):
                print(f"{UNMUTATED}: FAILED ({failure}); see {WORK / (UNMUTATED + '.log')}")
                return 1
        keep(UNMUTATED, "")
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    for number, mutant in enumerate(chosen, 1):
        if mutant.identity() not in outcomes:
            keep(mutant.identity(), try_mutant(mutant, options.programs, options.seed, options.jobs))
        print(f"[{number}/{len(chosen)}] {mutant.name}: {outcomes[mutant.identity()] or 'SURVIVED'}", flush=True)

    print(f"\n{'mutant':24}{'group':12}killed by")
    for mutant in chosen:
        print(f"{mutant.name:24}{mutant.group:12}{outcomes[mutant.identity()] or 'SURVIVED: ' + mutant.bug}")
    killed = sum(bool(outcomes[mutant.identity()]) for mutant in chosen)
    print(f"{killed} of {len(chosen)} mutants killed, at most {options.programs} programs each, seed {options.seed}")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
