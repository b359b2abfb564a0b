"""What users see when the engine fails or is late. test_like_tpu.py runs this on the test plugin."""

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Iterator

import pytest
import torch

INTERNAL, RESOURCE_EXHAUSTED = 13, 8
plugin = ctypes.CDLL(os.environ["TORCH_TPU_PJRT_PLUGIN"])
plugin.torch_tpu_test_plugin_live_buffers.restype = ctypes.c_long
plugin.torch_tpu_test_plugin_executions.restype = ctypes.c_long


def order(faults: str) -> None:
    """Orders `kind:n:count:code`; n = 1 is the next call."""
    assert plugin.torch_tpu_test_plugin_order_faults(faults.encode()) == 1


@pytest.fixture(autouse=True)
def healthy() -> Iterator[None]:
    torch.tpu.init()
    # Where an error is raised by the call itself. What recorded ops do is tests/aten/test_fused*.py's business.
    with torch.tpu.eager_mode("strict"):
        yield
    plugin.torch_tpu_test_plugin_cancel_faults()
    plugin.torch_tpu_test_plugin_hold_events(0)
    with contextlib.suppress(RuntimeError):  # a fault that the test provoked and did not look at
        torch.tpu.synchronize()
    assert (torch.ones(2, device="tpu") + 1).tolist() == [2, 2], "the device is unusable after the test"


@pytest.fixture
def x() -> torch.Tensor:
    x = torch.arange(6.0, device="tpu")
    (x + 2).tolist()  # compiled before the faults
    return x


def test_engine_is_the_test_plugin(x: torch.Tensor) -> None:
    before = plugin.torch_tpu_test_plugin_executions()
    (x + 2).tolist()
    assert plugin.torch_tpu_test_plugin_executions() > before


def test_out_of_memory_is_retried_once(x: torch.Tensor) -> None:
    order(f"execute:1:1:{RESOURCE_EXHAUSTED}")
    assert (x + 2).tolist() == [2, 3, 4, 5, 6, 7]


def test_out_of_memory_twice_raises(x: torch.Tensor) -> None:
    order(f"execute:1:2:{RESOURCE_EXHAUSTED}")
    with pytest.raises(torch.OutOfMemoryError, match="out of memory on tpu:0"):
        x + 2
    assert (x + 2).tolist() == [2, 3, 4, 5, 6, 7]


def test_out_of_memory_of_an_upload() -> None:
    host = torch.arange(5.0)
    order(f"upload:1:8:{RESOURCE_EXHAUSTED}")
    with pytest.raises(torch.OutOfMemoryError):
        host.to("tpu")
    plugin.torch_tpu_test_plugin_cancel_faults()
    assert host.to("tpu").tolist() == host.tolist()


def test_failed_execution_names_the_op(x: torch.Tensor) -> None:
    order(f"execute:1:1:{INTERNAL}")
    with pytest.raises(RuntimeError, match="aten::add.*injected fault"):
        x + 2
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_failed_write_in_place_keeps_the_value(x: torch.Tensor) -> None:
    x.add_(2)
    order(f"execute:1:1:{INTERNAL}")
    with pytest.raises(RuntimeError, match="injected fault"):
        x.add_(2)
    assert x.tolist() == [2, 3, 4, 5, 6, 7]


def test_write_that_consumed_its_tensor_poisons_it(x: torch.Tensor) -> None:
    view = x[2:]
    x.add_(2)
    order(f"execute_after:1:1:{INTERNAL}")
    with pytest.raises(RuntimeError, match="injected fault"):
        x.add_(2)
    for reader in (x, view):
        with pytest.raises(RuntimeError, match="injected fault"):
            reader.tolist()


def test_poisoned_output_raises_where_it_is_read(x: torch.Tensor) -> None:
    order(f"output:1:1:{INTERNAL}")
    bad = x + 2
    worse = bad * 2
    good = x * 2
    with pytest.raises(RuntimeError, match="injected fault"):
        worse.tolist()
    with pytest.raises(RuntimeError, match="injected fault"):
        bad.cpu()
    assert good.tolist() == [0, 2, 4, 6, 8, 10]


def test_a_recorded_op_that_fails_is_told_where_its_result_is_read(x: torch.Tensor) -> None:
    with torch.tpu.eager_mode("fused"):
        (x * 3).tolist()
        order(f"execute:1:1:{INTERNAL}")
        bad = x + 2
        worse = bad * 3
        good = x * 3
        for reader in (worse, bad):
            with pytest.raises(
                RuntimeError, match=r"aten::add\.Tensor: .*injected fault.*first called at .*fault_cases\.py:\d+"
            ):
                reader.tolist()
        assert good.tolist() == [0, 3, 6, 9, 12, 15]
        torch.tpu.synchronize()  # it has been told
        order(f"execute:1:1:{INTERNAL}")
        unread = x + 2
        with pytest.raises(RuntimeError, match=r"aten::add\.Tensor: .*injected fault"):
            torch.tpu.synchronize()
        torch.tpu.synchronize()
        del unread
        assert (x + 2).tolist() == [2, 3, 4, 5, 6, 7]


def test_a_recorded_op_that_is_out_of_memory_names_itself(x: torch.Tensor) -> None:
    with torch.tpu.eager_mode("fused"):
        order(f"execute:1:2:{RESOURCE_EXHAUSTED}")
        y = x + 2
        with pytest.raises(torch.OutOfMemoryError, match=r"aten::add\.Tensor: out of memory on tpu:0.*first called at"):
            y.tolist()
        assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_failed_compile_is_tried_again() -> None:
    x = torch.arange(7.0, device="tpu")
    order(f"compile:1:1:{INTERNAL}")
    with pytest.raises(RuntimeError, match="injected fault"):
        x.sinh().tan().reshape(7, 1).expand(7, 3).sum(1)
    assert x.cosh().tolist() == pytest.approx(x.cpu().cosh().tolist())


def test_backward_survives_a_fault() -> None:
    w = torch.ones(4, device="tpu", requires_grad=True)
    (w * w).sum().backward()
    w.grad = None
    loss = (w * w).sum()
    order(f"execute:1:1:{INTERNAL}")
    with pytest.raises(RuntimeError, match="injected fault"):
        loss.backward()
    w.grad = None
    (w * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [2, 2, 2, 2]


def test_synchronize_waits_for_dropped_outputs(x: torch.Tensor) -> None:
    big = torch.ones(64, 64, device="tpu")
    big @ big
    torch.tpu.synchronize()
    stream = torch.tpu.current_stream()
    assert stream.query()
    plugin.torch_tpu_test_plugin_hold_events(1)
    big @ big  # dropped at once
    event = torch.tpu.Event()
    event.record()
    assert not stream.query() and not event.query()
    done = threading.Event()

    def wait() -> None:
        torch.tpu.synchronize()
        done.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not done.wait(0.2), "synchronize() did not wait"
    plugin.torch_tpu_test_plugin_hold_events(0)
    assert done.wait(30)
    waiter.join()
    assert stream.query() and event.query()
    event.synchronize()


def test_late_download_is_waited_for(x: torch.Tensor) -> None:
    for i in range(20):
        assert (x + i).tolist() == [float(i + k) for k in range(6)]


def test_source_may_be_overwritten_after_a_non_blocking_copy() -> None:
    host = torch.arange(1000.0)
    for _ in range(10):
        device = host.to("tpu", non_blocking=True)
        host.fill_(-1)
        assert device.tolist() == list(range(1000))
        host.copy_(torch.arange(1000.0))


def test_training_equals_cpu() -> None:
    losses = {}
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
        data = torch.randn(16, 5)
        model, data = model.to(device), data.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        losses[device] = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses["tpu"] == pytest.approx(losses["cpu"], rel=1e-4)


def test_buffers_do_not_leak(x: torch.Tensor) -> None:
    def count() -> int:
        gc.collect()
        torch.tpu.synchronize()
        return plugin.torch_tpu_test_plugin_live_buffers()

    for _ in range(3):
        (x * 2 + 1).sum().item()
    before = count()
    for _ in range(50):
        (x * 2 + 1).sum().item()
    assert count() <= before
