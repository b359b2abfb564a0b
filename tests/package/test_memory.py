"""torch.tpu.memory, pinned host memory and storage resizing."""

import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch


def run(script: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs a Python script in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def test_both_views_of_the_counters_agree():
    kept = torch.ones(1000, device="tpu")
    torch.tpu.synchronize()
    ours, generic = torch.tpu.memory_stats(), torch.accelerator.memory_stats()
    for key in ("allocated_bytes", "reserved_bytes", "active_bytes", "allocation"):
        for kind in ("current", "peak", "allocated", "freed"):
            assert ours[f"{key}.all.{kind}"] == generic[f"{key}.all.{kind}"]
    for key in ("allocated_bytes", "allocation"):
        numbers = torch.tpu.memory_stats_as_nested_dict()[key]["all"]
        assert numbers["current"] == numbers["allocated"] - numbers["freed"] >= 0
        assert numbers["peak"] >= numbers["current"]
    assert torch.tpu.memory_reserved() == torch.tpu.memory_allocated() == torch.accelerator.memory_allocated()
    assert torch.tpu.max_memory_reserved() == torch.tpu.max_memory_allocated() >= kept.nbytes
    assert torch.tpu.mem_get_info() == torch.accelerator.get_memory_info()


def test_resets_return_none_and_start_again():
    torch.ones(1000, device="tpu")
    assert torch.tpu.reset_peak_memory_stats() is None
    assert torch.tpu.reset_accumulated_memory_stats() is None
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.peak"] == stats["allocated_bytes.all.current"]
    assert stats["allocated_bytes.all.freed"] == 0 and stats["num_ooms"] == 0


def test_summary_and_empty_cache():
    text = torch.tpu.memory_summary()
    assert "memory of tpu:0" in text and "peak" in text
    assert "buffers" not in torch.tpu.memory_summary(abbreviated=True).split("memory in buffers")[1]
    assert torch.tpu.empty_cache() is None
    torch.accelerator.empty_cache()
    assert (torch.ones(2, device="tpu") + 1).sum().item() == 4


def test_snapshot_lists_live_storages_and_history_their_lives(tmp_path):
    torch.tpu.memory._record_memory_history()
    try:
        kept = torch.ones(1234, device="tpu")
        address = kept.untyped_storage().data_ptr()
        gone = torch.ones(77, device="tpu").untyped_storage().data_ptr()
        snapshot = torch.tpu.memory._snapshot()
        torch.tpu.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    finally:
        torch.tpu.memory._record_memory_history(None)
    segment = next(s for s in snapshot["segments"] if s["address"] == address)
    assert segment["total_size"] == kept.nbytes and segment["blocks"][0]["state"] == "active_allocated"
    trace = snapshot["device_traces"][0]
    made = next(e for e in trace if e["addr"] == address and e["action"] == "alloc")
    assert any(f["filename"].endswith("test_memory.py") for f in made["frames"])
    assert [e["action"] for e in trace if e["addr"] == gone][:2] == ["alloc", "free_completed"]
    assert pickle.loads((tmp_path / "snapshot.pickle").read_bytes())["device_traces"]
    assert torch.tpu.memory._snapshot()["device_traces"] == [[] for _ in range(torch.tpu.device_count())]


def test_wrong_history_arguments():
    with pytest.raises(ValueError, match="expected 'state', 'all' or None"):
        torch.tpu.memory._record_memory_history("some")
    with pytest.raises(ValueError, match="expected a context"):
        torch.tpu.memory._record_memory_history("all", context="some")


def test_a_fraction_of_the_memory_is_a_limit():
    done = run(
        """
        import torch
        torch.tpu.set_per_process_memory_fraction(0.5)
        total = torch.tpu.mem_get_info()[1]
        print(torch.tpu.get_per_process_memory_fraction(), total == 512 << 20)
        a = torch.zeros(100 << 20, device="tpu")
        try:
            b = a + 1
            print("no error")
        except torch.OutOfMemoryError as error:
            print("live" in str(error) and "limit" in str(error))
        del a
        print((torch.zeros(10, device="tpu") + 1).sum().item(), torch.tpu.memory_stats()["num_ooms"])
        """,
        TORCH_TPU_MEMORY_LIMIT="1GiB",
    )
    assert done.stdout.split() == ["0.5", "True", "True", "10.0", "1"], done.stdout + done.stderr


@pytest.mark.parametrize(("fraction", "error"), [(2.0, ValueError), (-0.1, ValueError), ("half", TypeError)])
def test_wrong_fractions(fraction, error):
    with pytest.raises(error, match="set_per_process_memory_fraction"):
        torch.tpu.set_per_process_memory_fraction(fraction)


def test_pinned_memory():
    before = torch.tpu.host_memory_stats()["active_bytes.current"]
    x = torch.arange(1000.0).pin_memory()
    assert x.is_pinned() and x[10:].is_pinned() and not torch.ones(3).is_pinned()
    assert torch.empty(5, pin_memory=True).is_pinned()
    assert not torch.ones(3, device="tpu").is_pinned()
    assert torch.tpu.host_memory_stats()["active_bytes.current"] > before
    device = x.to("tpu", non_blocking=True)
    x.zero_()
    assert torch.equal(device.cpu(), torch.arange(1000.0))
    del x
    assert torch.tpu.host_memory_stats()["active_bytes.current"] == before
    torch.accelerator.empty_host_cache()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        device.pin_memory()


def test_a_freed_pinned_block_is_used_again():
    address = torch.empty(5000).pin_memory().data_ptr()
    assert torch.empty(5000).pin_memory().data_ptr() == address


def test_data_loader_pins_for_this_device():
    data = torch.utils.data.TensorDataset(torch.arange(16.0))
    for workers in (0, 1):
        loader = torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True, num_workers=workers)
        batches = [batch for (batch,) in loader]
        assert all(batch.is_pinned() for batch in batches)
        assert torch.equal(torch.cat([b.to("tpu") for b in batches]).cpu(), torch.arange(16.0))


def test_storage_resizing_keeps_what_fits():
    x = torch.arange(8.0, device="tpu")
    storage = x.untyped_storage()
    storage.resize_(16)
    assert torch.equal(torch.empty(0, device="tpu").set_(storage, 0, (4,)).cpu(), torch.arange(4.0))
    storage.resize_(1 << 16)
    grown = torch.empty(0, device="tpu").set_(storage, 0, (1 << 14,))
    assert torch.equal(grown[:4].cpu(), torch.arange(4.0))
    grown.fill_(2)
    assert torch.equal(x.cpu(), torch.full((8,), 2.0))


def test_a_freed_parameter_comes_back_at_its_address():
    x = torch.ones(100, device="tpu")
    address, before = x.data_ptr(), torch.tpu.memory_allocated()
    x.untyped_storage().resize_(0)
    assert torch.tpu.memory_allocated() == before - 400 and x.untyped_storage().nbytes() == 0
    x.untyped_storage().resize_(400)
    x.copy_(torch.arange(100.0))
    assert x.data_ptr() == address and torch.equal(x.cpu(), torch.arange(100.0))
