"""What the device does behind an op: programs compiled and run, CPU fallbacks, and the switches that govern them."""

from types import TracebackType
from typing import Any

from torch_tpu import _C


def compile_count() -> int:
    """Programs that an op waited for while the engine compiled them. Those served from disk do not count, nor those
    compiled in the background (``stats()["background_compiles"]``)."""
    return _C.totals()["compiles"]


def execute_count() -> int:
    """Programs launched so far."""
    return _C.totals()["executions"]


def fallback_count() -> int:
    """Op calls that ran on the CPU although their tensors were on the device."""
    return _C.totals()["fallbacks"]


def stats() -> dict[str, Any]:
    """Running totals of the process: op calls, programs compiled, launched and served from memory or disk, fallbacks
    (``fallbacks_by_op``), transfers and donations."""
    return {**_C.totals(), "fallbacks_by_op": _C.fallbacks_by_op()}


def compile_log() -> list[dict[str, Any]]:
    """Every program compiled or loaded from disk, oldest first: ``op``, ``detail`` (its arguments), ``why``, ``site``
    (the user's line), ``seconds``, ``from_disk``, ``background`` (nobody waited for it), ``when``, ``key``,
    ``text_bytes``."""
    return _C.compile_log()


def synchronize_compiles() -> None:
    """Waits until every background compile that is due has finished: nothing else ever waits for one. For benchmarks
    and tests."""
    _C.synchronize_compiles()


def explain_regions(limit: int = 20) -> str:
    """A table of the regions that were recorded (by list ops and in the fused eager mode), the busiest first.

    Columns: how often the region came by, how often it ran op by op and as one program, its results that somebody outside
    needs and their bytes, the host time that its program has saved (by the means of both kinds of runs), why it ran (most
    often), and what becomes of it; below, its ops, and what makes it another one than the last region of the same ops."""
    rows = _C.region_reports()[:limit]
    if not rows:
        return "nothing has been recorded yet"
    head = f"{'runs':>8} {'by op':>8} {'as one':>8} {'results':>8} {'bytes':>12} {'saved':>10}  run by / state"
    lines = [head]
    for row in rows:
        counts = f"{row['runs']:>8} {row['strict']:>8} {row['joint']:>8} {row['results']:>8} {row['bytes']:>12}"
        lines.append(f"{counts} {row['seconds_saved'] * 1000:>7.1f} ms  {row['cut']} / {row['state']}")
        lines.append(f"{'':10}{row['ops']}")
        if row["why"]:
            lines.append(f"{'':10}{row['why']}")
    return "\n".join(lines)


def explain_last_compile() -> str:
    """One sentence about the newest entry of :func:`compile_log`."""
    log = _C.compile_log()
    if not log:
        return "nothing has been compiled yet"
    last = log[-1]
    how = "loaded from disk" if last["from_disk"] else "compiled"
    text = f"{last['op']}{' ' + last['detail'] if last['detail'] else ''} was {how} in {last['seconds'] * 1000:.1f} ms"
    if last["site"]:
        text += f" for {last['site']}"
    return f"{text}: {last['why']}" if last["why"] else text


class _Switch:
    """A setting that is changed by the call, and put back at the end of a ``with`` block."""

    _before: Any

    def _restore(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()


class fallback(_Switch):
    """What happens to an op without a program of its own: ``"warn"`` (run on the CPU, warn once per op), ``"quiet"`` or
    ``"error"`` (NotImplementedError). For the whole process; as a context manager, for a block.

    Raises ValueError for another word.
    """

    def __init__(self, mode: str) -> None:
        self._before = _C.fallback_policy()
        _C.set_fallback_policy(mode)

    def _restore(self) -> None:
        _C.set_fallback_policy(self._before)


class eager_mode(_Switch):
    """How ops run: ``"fused"`` (the default: ops are recorded, and sequences of ops that keep returning run as one
    program), ``"strict"`` (each is submitted when it is called) or ``"debug"`` (each is waited for and checks its
    indices, so an error names the line that made it; like ``TPU_LAUNCH_BLOCKING=1``). Results are the same in every mode.
    For the whole process; as a context manager, for a block.

    Raises ValueError for another word.
    """

    def __init__(self, mode: str) -> None:
        self._before = _C.eager_mode()
        _C.set_eager_mode(mode)

    def _restore(self) -> None:
        _C.set_eager_mode(self._before)


class debug_mode(eager_mode):
    """``eager_mode("debug")``; with False, ``eager_mode("fused")`` where it is on now."""

    def __init__(self, mode: bool = True) -> None:
        now = _C.eager_mode()
        super().__init__("debug" if mode else "fused" if now == "debug" else now)


class index_check(_Switch):
    """When an index out of range is reported: ``"off"``, ``"late"`` (next host read or synchronisation) or ``"call"``.
    For the whole process; as a context manager, for a block. Raises ValueError for another word."""

    def __init__(self, mode: str) -> None:
        self._before = _C.index_check()
        _C.set_index_check(mode)

    def _restore(self) -> None:
        _C.set_index_check(self._before)


_SYNC_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens when an op makes the host wait for the device: nothing (``"default"``, 0), a warning (``"warn"``, 1)
    or RuntimeError (``"error"``, 2), both naming the user's line. Raises ValueError for anything else."""
    if isinstance(debug_mode, int):
        if not 0 <= debug_mode < len(_SYNC_MODES):
            raise ValueError(f"torch.tpu.set_sync_debug_mode: expected 0, 1 or 2, got <{debug_mode}>")
        debug_mode = _SYNC_MODES[debug_mode]
    _C.set_sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """The mode as a number: 0, 1 or 2."""
    return _SYNC_MODES.index(_C.sync_debug_mode())
