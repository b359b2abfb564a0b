"""Streams and events, by their torch.tpu and their torch names."""

import pytest
import torch


def test_stream_identity():
    first, second = torch.tpu.Stream(), torch.tpu.Stream(priority=-1)
    assert first != second and first.stream_id != second.stream_id
    assert first.device == torch.device("tpu", 0)
    again = torch.tpu.Stream(stream_id=first.stream_id, device_index=0, device_type=first.device_type)
    assert again == first and hash(again) == hash(first) and {first: 1}[again] == 1
    assert torch.Stream("tpu").stream_id != 0
    assert "torch.tpu.Stream" in repr(first)


def test_current_stream_is_one_thing_everywhere():
    stream = torch.tpu.Stream()
    for context in (torch.tpu.stream(stream), stream):
        with context:
            assert torch.tpu.current_stream() == torch.accelerator.current_stream() == stream
        assert torch.tpu.current_stream() == torch.tpu.default_stream()
    with torch.tpu.stream(None):
        assert torch.tpu.current_stream() == torch.tpu.default_stream()
    torch.tpu.set_stream(stream)
    assert torch.accelerator.current_stream() == stream
    torch.tpu.set_stream(torch.tpu.default_stream())
    torch.tpu.set_stream(None)
    assert torch.tpu.current_stream().stream_id == 0


def test_stream_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), torch.tpu.stream(torch.tpu.Stream()):
        raise ZeroDivisionError
    assert torch.tpu.current_stream() == torch.tpu.default_stream()


def test_current_stream_is_per_thread():
    import threading

    seen = []
    with torch.tpu.stream(torch.tpu.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_stream().stream_id))
        thread.start()
        thread.join()
    assert seen == [0]


def test_events_record_wait_and_time():
    stream = torch.tpu.Stream()
    never = torch.tpu.Event()
    assert never.query()
    never.synchronize()
    never.wait(stream)
    recorded = stream.record_event()
    assert isinstance(recorded, torch.tpu.Event) and isinstance(recorded, torch.Event)
    own = torch.tpu.Event()
    assert stream.record_event(own) is own
    stream.wait_event(own)
    stream.wait_stream(torch.tpu.current_stream())
    stream.synchronize()
    assert stream.query() and own.query()
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    start.record()
    x = torch.rand(300, 300, device="tpu")
    for _ in range(5):
        x = x @ x
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000


def test_generic_event_works():
    start, end = torch.Event("tpu", enable_timing=True), torch.Event("tpu", enable_timing=True)
    start.record()
    end.record(torch.tpu.current_stream())
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_timing_needs_events_made_for_it():
    start, end = torch.tpu.Event(), torch.tpu.Event()
    start.record()
    end.record()
    with pytest.raises(RuntimeError, match="enable_timing"):
        start.elapsed_time(end)


def test_sharing_events_is_refused():
    with pytest.raises(NotImplementedError, match="between processes"):
        torch.tpu.Event(interprocess=True)


def test_record_stream_is_accepted():
    x = torch.ones(3, device="tpu")
    x.record_stream(torch.tpu.Stream())
    assert x.sum().item() == 3


@pytest.mark.parametrize("call", [torch.tpu.graph, torch.tpu.graph_pool_handle, torch.tpu.make_graphed_callables])
def test_graph_capture_is_refused(call):
    with pytest.raises(NotImplementedError, match=r"graph capture is not supported on the tpu device"):
        call()
    with pytest.raises(NotImplementedError, match=r"graph capture is not supported on the tpu device"):
        torch.accelerator.Graph()
    assert torch.tpu.is_current_stream_capturing() is False


def test_backward_runs_on_the_stream_of_its_forward():
    stream = torch.tpu.Stream()
    x = torch.ones(4, device="tpu", requires_grad=True)
    with torch.tpu.stream(stream):
        (x * x).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((4,), 2.0))
