"""torch.tpu and what PyTorch itself says about the device."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch


def run(script: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs a Python script in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def test_import_torch_is_enough_and_opens_nothing():
    result = run(
        """
        import sys, threading, torch
        assert torch.ones(3).sum().item() == 3
        print(torch.tpu.is_available(), torch.tpu.is_initialized(), threading.active_count(), "torch._dynamo" in sys.modules)
        """
    )
    assert result.stdout.split() == ["True", "False", "1", "False"], result.stderr
    assert result.stderr == ""


def test_embedded_engine_can_be_turned_off():
    result = run(
        """
        import torch
        print(torch.tpu.is_available(), torch.tpu.device_count())
        try:
            torch.ones(1, device="tpu")
        except RuntimeError as error:
            print(error)
        """,
        TORCH_TPU_EMBEDDED="0",
    )
    lines = result.stdout.splitlines()
    assert (
        lines[0] == "False 0" and len(lines) == 2 and "TORCH_TPU_EMBEDDED=0 turns the embedded engine off" in lines[1]
    ), result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("TORCH_TPU_NUM_DEVICES", "many"), ("TORCH_TPU_MEMORY_LIMIT", "lots"), ("TORCH_TPU_FALLBACK", "maybe")],
)
def test_a_bad_environment_value_gets_one_clear_line(name, value):
    result = run('import torch\ntorch.ones(1, device="tpu")', **{name: value})
    assert result.returncode != 0
    first = result.stderr.splitlines()[0]
    assert first.startswith(f"torch_tpu is not loaded: {name}: ") and value in first, result.stderr


def test_several_devices():
    result = run(
        """
        import torch
        a = torch.ones(3, device="tpu:1")
        b = a.to("tpu:0") + 1
        with torch.tpu.device(1):
            c = torch.zeros(2, device="tpu")
        print(torch.tpu.device_count(), b.device, c.device, b.sum().item())
        try:
            a + b
        except RuntimeError as error:
            print(error)
        """,
        TORCH_TPU_NUM_DEVICES="2",
    )
    assert result.stdout.startswith("2 tpu:0 tpu:1 6.0\n"), result.stderr
    assert "Expected all tensors to be on the same device" in result.stdout


def test_accelerator_answers_tpu():
    assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "tpu"
    assert torch.accelerator.device_count() == torch.tpu.device_count() >= 1
    assert torch.get_device_module("tpu") is torch.tpu
    torch.accelerator.synchronize()
    properties = torch.tpu.get_device_properties(0)
    assert properties.name.startswith("TPU") and properties.total_memory > 0 and properties.engine


def test_streams_and_events():
    stream = torch.tpu.Stream()
    assert isinstance(stream, torch.Stream) and stream != torch.tpu.current_stream()
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() == stream
        start.record()
        x = torch.ones(1000, device="tpu") * 2
        end.record()
    torch.tpu.current_stream().wait_stream(stream)
    end.synchronize()
    assert end.query() and stream.query() and start.elapsed_time(end) >= 0
    assert x.sum().item() == 2000
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(torch.tpu.Event(enable_timing=True))


def test_memory_statistics_add_up():
    torch.ones(1 << 20, device="tpu")  # its number stays on the device
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    x = torch.ones(1 << 20, device="tpu")
    assert torch.tpu.memory_allocated() - before == 4 << 20
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated()
    del x
    assert torch.tpu.memory_allocated() == before
    assert torch.tpu.max_memory_allocated() >= before + (4 << 20)
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total


def test_seeds_and_states():
    torch.manual_seed(3)
    a = torch.rand(8, device="tpu")
    torch.manual_seed(3)
    assert torch.equal(a, torch.rand(8, device="tpu"))
    state = torch.tpu.get_rng_state()
    assert state.dtype is torch.uint8 and state.numel() == 16
    b = torch.randn(8, device="tpu")
    torch.tpu.set_rng_state(state)
    assert torch.equal(b, torch.randn(8, device="tpu"))
    generator = torch.Generator("tpu").manual_seed(1)
    c = torch.rand(4, device="tpu", generator=generator)
    assert torch.equal(c, torch.rand(4, device="tpu", generator=torch.Generator("tpu").manual_seed(1)))


def test_autocast_and_grad_scaler():
    layer = torch.nn.Linear(4, 2).tpu()
    with torch.autocast("tpu"):
        assert layer(torch.ones(1, 4, device="tpu")).dtype is torch.bfloat16
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("tpu", init_scale=4.0)
    before = layer.weight.detach().cpu().clone()
    scaler.scale(layer(torch.ones(1, 4, device="tpu")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.allclose(layer.weight.detach().cpu(), before - 0.1)
    optimizer.zero_grad()
    scaler.scale(layer(torch.full((1, 4), float("inf"), device="tpu")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.isfinite(layer.weight.detach().cpu()).all() and scaler.get_scale() == 2.0


def test_fallback_control():
    x = torch.randn(4, 4, device="tpu")
    with torch.tpu.fallback("error"), pytest.raises(NotImplementedError, match="CPU fallback is forbidden"):
        torch.linalg.eigvals(x)
    before = torch.tpu.fallback_count()
    with torch.tpu.fallback("quiet"):
        assert torch.linalg.eigvals(x).device.type == "tpu"
    assert torch.tpu.fallback_count() == before + 1


def test_sync_debug_mode_names_the_line():
    x = torch.ones(2, device="tpu")
    torch.tpu.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match=r"synchronizing tpu operation at .*test_device\.py"):
            x.sum().item()
    finally:
        torch.tpu.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    "f",
    [lambda x: x.to_sparse(), lambda x: x.share_memory_(), lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)],
)
def test_refusals_are_one_sentence(f):
    with pytest.raises(NotImplementedError, match="tpu device") as caught:
        f(torch.ones(2, device="tpu"))
    assert "\n" not in str(caught.value).strip()


def test_compile_log_says_what_and_why():
    torch.ones(7, 11, 13, device="tpu").sub_(1.5)
    record = torch.tpu.compile_log()[-1]
    assert record["op"].startswith("aten::") and record["key"] and "test_device.py" in record["site"]
    assert "aten::" in str(torch.tpu.explain_last_compile())
    torch.ones(7, 11, 17, device="tpu").sub_(1.5)
    record = next(r for r in reversed(torch.tpu.compile_log()) if r["op"].startswith("aten::sub_"))
    assert record["why"] == "argument 0 is float32[7, 11, 17], was float32[7, 11, 13]"


def test_dlpack_shares_memory():
    x = torch.arange(4.0, device="tpu")
    y = torch.from_dlpack(x)
    assert y.device == x.device and torch.equal(y.cpu(), x.cpu())


def test_cache_command(tmp_path):
    environment = {"TORCH_TPU_CACHE_DIR": str(tmp_path)}
    run('import torch\ntorch.ones(3, device="tpu").add_(1).cpu()', **environment)
    listed = subprocess.run(
        [sys.executable, "-m", "torch_tpu.cache", "list"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert "aten::" in listed.stdout, listed.stderr
    cleared = subprocess.run(
        [sys.executable, "-m", "torch_tpu.cache", "clear"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert cleared.returncode == 0 and not list(tmp_path.glob("*.program")), cleared.stderr
