"""Limits and ends: little address space, much memory, none left, and every way a process can stop."""

import gc
import os
import random
import re
import subprocess
import sys
import textwrap

import pytest
import torch

GIB = 1 << 30


def run(script: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs a Python script in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def printed(script: str, **environment: str) -> list[str]:
    """The words that a script prints, which ends well and says nothing on stderr."""
    done = run(script, **environment)
    assert done.returncode == 0 and done.stderr == "", done.stderr[-3000:]
    return done.stdout.split()


# --- address space and memory ------------------------------------------------------------------------------------------


def test_starts_under_ulimit_v() -> None:
    words = printed(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
        import torch
        a = torch.ones(3, device="tpu")
        m = torch.full((64, 64), 2.0, device="tpu")
        print((a + a).sum().item(), (m @ m)[0, 0].item())
        large = [torch.empty(1 << 28, device="tpu") for _ in range(200)]
        print(len({x.data_ptr() for x in large}), large[7][100:].storage_offset())
        large[7][100:102].fill_(3)
        print(large[7][99:103].sum().item())
        """
    )
    assert words == ["6.0", "256.0", "200", "100", "6.0"]


def test_two_thousand_gibibyte_tensors() -> None:
    """empty() reserves addresses; a buffer comes with the first write. So 2 TB of tensors cost next to nothing."""
    words = printed(
        """
        import torch

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4 >> 10  # MiB

        torch.ones(1, device="tpu").add_(1)
        torch.tpu.empty_cache()
        memory, allocated = resident(), torch.tpu.memory_allocated()
        tensors = [torch.empty(1 << 28, device="tpu") for _ in range(2000)]
        addresses = sorted(x.data_ptr() for x in tensors)
        print(min(b - a for a, b in zip(addresses, addresses[1:])) >= 1 << 30)
        sizes = [s["total_size"] for s in torch.tpu.memory_snapshot()]
        print(sizes.count(1 << 30), torch.tpu.memory_allocated() - allocated, resident() - memory < 50)
        small = [torch.ones(256, device="tpu") for _ in range(2000)]
        torch.tpu.empty_cache()  # of the number that filled them
        print(torch.tpu.memory_allocated() - allocated, (small[0] + small[1999]).sum().item())
        del tensors, small
        torch.tpu.empty_cache()
        print(torch.tpu.memory_allocated() - allocated)
        """
    )
    assert words == ["True", "2000", "0", "True", str(2000 * 1024), "512.0", "0"]


def test_the_seventeenth_sixteenth_does_not_fit() -> None:
    """As 17 tensors of 1 GiB on a chip of 16 GiB, a sixteenth of that size."""
    done = run(
        """
        import torch
        tensors = []
        try:
            for _ in range(17):
                tensors.append(torch.empty(4 << 20, device="tpu").fill_(len(tensors)))
        except torch.OutOfMemoryError as error:
            print(error)
        print(len(tensors), torch.tpu.memory_stats()["num_ooms"], torch.tpu.mem_get_info()[0] <= 1 << 20)
        print([int(x[5].item()) for x in tensors] == list(range(16)))
        del tensors[3]
        tensors.append(torch.full((4 << 20,), 7.0, device="tpu"))
        print(tensors[-1].sum().item() / (4 << 20))
        """,
        TORCH_TPU_MEMORY_LIMIT="257MiB",
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    first, *rest = done.stdout.splitlines()
    assert re.fullmatch(
        r"aten::fill_\.Scalar: out of memory on tpu:0, asked 16\.00 MiB, live 256\.\d\d MiB, peak 256\.\d\d MiB, "
        r"limit 257\.00 MiB; largest: 16 x 16\.00 MiB f32\[4194304\].*",
        first,
    ), first
    assert rest == ["16 1 True", "True", "7.0"]


def test_more_than_a_chip_has() -> None:
    words = printed(
        """
        import torch
        kept = torch.ones(1 << 20, device="tpu")
        try:
            torch.zeros(17 << 28, device="tpu")
        except torch.OutOfMemoryError as error:
            text = str(error)
            print(all(part in text for part in ("asked 17.00 GiB", "live 4.00 MiB", "limit 16.00 GiB", "4.00 MiB f32[")))
        print((kept + 1).sum().item() / (1 << 20), torch.tpu.mem_get_info()[1] >> 30)
        """,
        TORCH_TPU_MEMORY_LIMIT="16GiB",
    )
    assert words == ["True", "2.0", "16"]


def test_the_limit_counts_what_a_program_needs_meanwhile() -> None:
    """A sort of 4 MiB gives 12 MiB and needs as much again while it runs."""
    words = printed(
        """
        import re
        import torch
        x = torch.rand(1 << 20, device="tpu")
        torch.tpu.set_per_process_memory_fraction(0.0)
        try:
            x.sort()
        except torch.OutOfMemoryError as error:
            print(float(re.search(r"asked ([0-9.]+) MiB", str(error))[1]) > 12)
        torch.tpu.set_per_process_memory_fraction(1.0)
        print(x.sort().values.shape[0])
        """,
        TORCH_TPU_MEMORY_LIMIT="1GiB",
    )
    assert words == ["True", str(1 << 20)]


def test_a_limit_lost_and_found_in_a_loop() -> None:
    """A program that catches the error and goes on with less loses nothing."""
    words = printed(
        """
        import torch
        kept, refused = [], 0
        for step in range(400):
            try:
                kept.append(torch.ones(1 << 18, device="tpu") * step)
            except torch.OutOfMemoryError:
                refused += 1
                kept = kept[len(kept) // 2 :]
        torch.tpu.empty_cache()
        print(refused > 3, torch.tpu.memory_allocated() == len(kept) << 20)
        print(torch.tpu.memory_stats()["num_ooms"] == refused, int(kept[-1][0].item()))
        """,
        TORCH_TPU_MEMORY_LIMIT="64MiB",
    )
    assert words == ["True", "True", "True", "399"]


# --- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_statistics_add_up_after_any_history(seed: int) -> None:
    with torch.tpu.eager_mode("strict"):  # in the fused mode what nobody looks at is never made, and the peak is lower
        statistics_of_a_history(seed)


def statistics_of_a_history(seed: int) -> None:
    rng = random.Random(seed)
    # What earlier tests have left behind is gone before the first look, not in the middle.
    gc.collect()
    torch.tpu.synchronize()
    torch.tpu.empty_cache()
    before = torch.tpu.memory_stats()
    torch.tpu.reset_peak_memory_stats()
    live: list[torch.Tensor] = []
    highest = 0
    for _ in range(600):
        size, choice = rng.choice([1, 7, 64, 1000, 5000]), rng.random()
        if choice < 0.15:
            live.append(torch.ones(size, device="tpu"))
        elif choice < 0.3:
            live.append(torch.arange(float(size)).to("tpu"))
        elif choice < 0.45 or not live:
            live.append(torch.zeros(size, 3, dtype=torch.int64, device="tpu"))
        elif choice < 0.5:
            live.append(rng.choice(live) + 1)
        elif choice < 0.6:
            rng.choice(live).add_(1)
        elif choice < 0.65:
            rng.choice(live)[:1].fill_(1)
        else:
            live.pop(rng.randrange(len(live)))
        highest = max(highest, sum(x.untyped_storage().nbytes() for x in live))
    torch.tpu.synchronize()
    torch.tpu.empty_cache()
    after = torch.tpu.memory_stats()
    expected = sum(x.untyped_storage().nbytes() for x in live)
    changes = {
        name: {
            kind: after[f"{name}.all.{kind}"] - before[f"{name}.all.{kind}"]
            for kind in ("current", "allocated", "freed")
        }
        for name in ("allocated_bytes", "allocation")
    }
    assert changes["allocated_bytes"]["current"] == expected
    assert changes["allocation"]["current"] == len(live)
    for numbers in changes.values():
        assert numbers["current"] == numbers["allocated"] - numbers["freed"]
    assert after["allocated_bytes.all.peak"] - before["allocated_bytes.all.current"] >= highest
    torch.tpu.reset_peak_memory_stats()
    again = torch.tpu.memory_stats()
    for name in ("allocated_bytes", "allocation"):
        assert again[f"{name}.all.peak"] == again[f"{name}.all.current"] == after[f"{name}.all.current"]
    live.clear()
    assert torch.tpu.memory_allocated() == before["allocated_bytes.all.current"]


def test_a_shared_buffer_counts_once() -> None:
    torch.tpu.empty_cache()
    before = torch.tpu.memory_allocated()
    x = torch.ones(1000, device="tpu") * 2
    y, view = x.clone(), x[10:]
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() - before == 4000
    y.add_(1)
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() - before == 8000
    del x
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() - before == 8000  # the view holds the storage
    del y, view
    assert torch.tpu.memory_allocated() == before


def line_here() -> int:
    return sys._getframe(1).f_lineno


def test_a_snapshot_names_the_line_of_every_live_block() -> None:
    torch.tpu.memory._record_memory_history()
    try:
        line = line_here() + 1
        made = [torch.ones(100 + i, device="tpu") for i in range(5)]
        snapshot = torch.tpu.memory._snapshot()
    finally:
        torch.tpu.memory._record_memory_history(None)
    segments = {s["address"]: s for s in snapshot["segments"]}
    for x in made:
        segment = segments[x.untyped_storage().data_ptr()]
        (block,) = segment["blocks"]
        assert segment["total_size"] == block["size"] == block["requested_size"] == x.nbytes == segment["buffer_bytes"]
        assert block["state"] == "active_allocated" and segment["contents"] == f"float32[{len(x)}]"
        assert any(f["filename"] == __file__ and f["line"] == line for f in block["frames"]), block["frames"]


def test_history_keeps_the_last_entries_and_no_stacks_if_told_so() -> None:
    torch.tpu.memory._record_memory_history(context=None, max_entries=4)
    try:
        for _ in range(10):
            torch.ones(50, device="tpu")
        trace = torch.tpu.memory._snapshot()["device_traces"][0]
    finally:
        torch.tpu.memory._record_memory_history(None)
    assert len(trace) == 4 and not any(entry["frames"] for entry in trace)
    assert [entry["action"] for entry in trace] == ["alloc", "free_completed"] * 2


# --- debug modes and the profiler --------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [torch.Tensor.item, torch.Tensor.cpu, torch.Tensor.tolist, torch.Tensor.nonzero, bool])
def test_sync_debug_mode_names_the_exact_line(read) -> None:
    x = torch.ones(1, device="tpu")
    site = r"called a synchronizing tpu operation at .*test_limits\.py:"
    torch.tpu.set_sync_debug_mode("warn")
    try:
        line = line_here() + 2
        with pytest.warns(UserWarning, match=rf"{site}{line}\b"):
            read(x)
        torch.tpu.set_sync_debug_mode("error")
        line = line_here() + 2
        with pytest.raises(RuntimeError, match=rf"{site}{line}\b"):
            read(x)
    finally:
        torch.tpu.set_sync_debug_mode("default")
    read(x)


def test_profiler_ranges_contain_their_ops() -> None:
    from torch.profiler import ProfilerActivity, profile, record_function

    x = torch.ones(64, 64, device="tpu", requires_grad=True)
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities, record_shapes=True) as profiler, record_function("outer"):
        with record_function("forward"):
            y = (x @ x).relu()
        with record_function("backward"):
            y.sum().backward()
    events = {e.name: e for e in profiler.events()}
    product = events["aten::mm"]
    assert product.input_shapes == [[64, 64], [64, 64]]
    outer, forward, relu = events["outer"].time_range, events["forward"].time_range, events["aten::relu"].time_range
    assert outer.start <= forward.start <= relu.start <= relu.end <= forward.end <= outer.end
    assert any(e.key == "aten::mm" and e.count == 3 for e in profiler.key_averages())


def test_profiler_counts_device_memory() -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        x = torch.ones(64, 64, device="tpu") @ torch.ones(64, 64, device="tpu")
        del x
    rows = {e.key: e for e in profiler.key_averages()}
    assert rows["aten::mm"].self_device_memory_usage == 4 * 64 * 64
    assert rows["[memory]"].self_device_memory_usage < 0  # what was freed


def test_legacy_profiler_gives_device_times() -> None:
    x = torch.ones(256, 256, device="tpu")
    with torch.autograd.profiler.profile(use_device="tpu") as profiler, torch.profiler.record_function("range"):
        (x @ x).sum().item()
    events = {e.name: e for e in profiler.function_events}
    assert events["aten::mm"].device_time_total > 0 and events["range"].device_time_total > 0


# --- ends of a process -------------------------------------------------------------------------------------------------

WORK = """
import os, sys, threading, torch
x = torch.rand(1000, 1000, device="tpu")
def work():
    y = x
    for _ in range(3):
        y = y @ x
    return y
"""

ENDS = {
    "work in flight": (0, "y = work()"),
    "work in flight, results dropped": (0, "work()"),
    "sys.exit": (7, "y = work(); sys.exit(7)"),
    "os._exit": (9, "y = work(); os._exit(9)"),
    "thread in flight": (0, "threading.Thread(target=work).start()"),
    "sys.exit in a thread": (0, "threading.Thread(target=lambda: (work(), sys.exit(3))).start()"),
    "os._exit in a thread": (5, "threading.Thread(target=lambda: (work(), os._exit(5))).start()"),
    "backward in flight": (0, "w = torch.ones_like(x).requires_grad_(); (work() @ w).sum().backward()"),
    "non-blocking copy in flight": (0, "y = torch.ones(1 << 20).pin_memory().to('tpu', non_blocking=True)"),
    "events and streams alive": (
        0,
        "s = torch.tpu.Stream(); e = torch.tpu.Event(enable_timing=True)\nwith torch.tpu.stream(s): work(); e.record()",
    ),
    "tensors in a cycle": (0, "a = [work()]; a.append(a)"),
    "tensor dropped by a finaliser": (
        0,
        "class C:\n    def __del__(self): del self.y\nc = C(); c.y = work(); c.me = c",
    ),
    "device used by an exit handler": (0, "import atexit; atexit.register(lambda: work().sum().item())"),
    "out of memory caught": (
        0,
        "try: torch.zeros(1 << 45, device='tpu')\nexcept (torch.OutOfMemoryError, RuntimeError): pass\ny = work()",
    ),
    "fork alive after the parent": (
        0,
        "import time\ny = work()\nif os.fork() == 0:\n    time.sleep(0.3); del x, y; sys.exit(1)",
    ),
    "code of a fork": (
        6,
        "y = work()\npid = os.fork()\nif pid == 0:\n    del x, y; sys.exit(6)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    ),
    "data loader alive": (
        0,
        "data = torch.utils.data.TensorDataset(torch.arange(64.0))\n"
        "loader = iter(torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, persistent_workers=True))\n"
        "y = next(loader)[0].to('tpu') * 2; z = work()",
    ),
    "signal": (-15, "import signal; y = work(); os.kill(os.getpid(), signal.SIGTERM)"),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_cleanly(name: str) -> None:
    code, script = ENDS[name]
    done = run(WORK + script)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_ends_cleanly_with_an_exception() -> None:
    done = run(WORK + "y = work(); raise KeyError('gone')")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) == 3 and lines[-1] == "KeyError: 'gone'", done.stderr
    done = run(WORK + "def f(): work(); raise KeyError('gone')\nthreading.Thread(target=f).start()")
    assert done.returncode == 0 and done.stderr.startswith("Exception in thread"), done.stderr
    assert done.stderr.splitlines()[-1] == "KeyError: 'gone'"
