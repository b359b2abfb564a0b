"""Streams and events. The engine orders work by data, so a stream is a label for what was submitted under it: it can be
asked, waited for and timed, and no result ever depends on it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from torch_tpu import _C

from ._devices import Device, index_of

if TYPE_CHECKING:
    from typing_extensions import Self

_CAPTURE = "graph capture is not supported on the tpu device; use torch.compile"


class Stream(torch.Stream):
    """A stream of a device (None: the current one); a lower ``priority`` is more urgent, as a hint only."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Self:
        if kwargs:  # stream_id, device_index, device_type: names an existing stream
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, torch.device("tpu", index_of(device)), priority=priority)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records an event here (a new one if None) and returns it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def wait_event(self, event: torch.Event) -> None:
        """Work submitted here later counts as complete only once the event is."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Like :meth:`wait_event` for everything submitted to ``stream`` so far."""
        self.wait_event(stream.record_event())

    def __repr__(self) -> str:
        return f"<torch.tpu.Stream device={self.device} id={self.stream_id}>"


class Event(torch.Event):
    """A point in a stream. ``blocking`` is accepted and changes nothing; ``interprocess`` is refused."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Self:
        if interprocess:
            raise NotImplementedError("torch.tpu.Event: events cannot be shared between processes")
        return super().__new__(cls, "tpu", enable_timing=enable_timing, blocking=blocking)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Records the event on a stream (None: the current one)."""
        super().record(current_stream() if stream is None else stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Makes a stream (None: the current one) wait for the event."""
        super().wait(current_stream() if stream is None else stream)

    def elapsed_time(self, other: torch.Event) -> float:
        """Milliseconds from this event to ``other``; both must be recorded with timing and complete (ValueError)."""
        return _C.elapsed_time(self.event_id, other.event_id)

    def __repr__(self) -> str:
        return f"<torch.tpu.Event at {self.event_id:#x}>" if self.event_id else "<torch.tpu.Event not recorded>"


def _existing(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: Device = None) -> Stream:
    """The calling thread's stream on a device."""
    return _existing(torch._C._accelerator_getStream(index_of(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream that is current before any other is chosen."""
    index = index_of(device)
    kind = torch._C._accelerator_getStream(index).device_type
    return Stream(stream_id=0, device_index=index, device_type=kind)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes a stream (and its device) current; None changes nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


class StreamContext:
    """Context manager: a stream (and its device) for a block; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: list[torch.Stream] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        device = _C.current_device()
        # The stream that was current on the stream's device, then the one on the device that was current.
        self._before = [current_stream(self.stream.device_index), current_stream(device)]
        set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for stream in self._before:
            set_stream(stream)
        self._before = []


def stream(stream: torch.Stream | None) -> StreamContext:
    """``with torch.tpu.stream(s):`` submits to ``s``."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """Always False: there is no graph capture."""
    return False


class graph:
    """Refused: raises NotImplementedError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"torch.tpu.graph: {_CAPTURE}")


def graph_pool_handle() -> NoReturn:
    """Refused: raises NotImplementedError."""
    raise NotImplementedError(f"torch.tpu.graph_pool_handle: {_CAPTURE}")


def make_graphed_callables(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused: raises NotImplementedError."""
    raise NotImplementedError(f"torch.tpu.make_graphed_callables: {_CAPTURE}")
