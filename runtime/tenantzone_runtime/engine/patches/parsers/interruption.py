"""Interrupts a call that takes too long, without another process.

Python handles signals between two bytecode instructions, and its regular expressions (`re` and `regex`) check for
signals while they match. So the signal of a timer can end an infinite loop and an endless match. Python runs signal
handlers only on the main thread, where vLLM's event loop and engine core run.

Upstream change that would make this module unnecessary: vLLM awaits its parsers and runs them in an executor.
"""

import gc
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

_TICK_SECONDS: Final = 0.001
"""Seconds between signals once a call has reached its time limit. The kernel rounds up to a tick, 4 ms at 250 Hz."""

_LOCKING_PACKAGES: Final = frozenset({"importlib", "logging", "prometheus_client", "threading"})
"""Packages whose code is not interrupted, because it may hold a lock. A later signal interrupts the call."""

Result = TypeVar("Result")


class TimeSpentError(Exception):
    """A call was interrupted, or was not started, because its CPU time limit was reached."""


class _Interrupt(BaseException):
    """Raised within the call. Not a subclass of Exception, which parsers would catch to return the text unparsed."""


_ends_at: float | None = None
"""CPU time of the main thread, in seconds, at which the running call is interrupted. None if no call is running."""


def prepare_interruption() -> None:
    """Install the signal handler. Must be called in the main thread."""
    signal.signal(signal.SIGVTALRM, _interrupt)


def run_for(seconds: float, call: Callable[[], Result]) -> Result:
    """Run a function with a CPU time limit, and return its result.

    On other threads than the main thread, the function can't be interrupted, so it runs to its end.

    Args:
        seconds: the limit of this thread's CPU time. The function may take one tick of the kernel's clock longer.
        call: the function. It must have no side effects, because it may be interrupted anywhere.

    Raises:
        TimeSpentError: the call was interrupted, or ``seconds`` is not positive.
        RuntimeError: another interruptible call is running.
    """
    global _ends_at
    if seconds <= 0:
        raise TimeSpentError
    if threading.current_thread() is not threading.main_thread():
        return call()
    if _ends_at is not None:
        raise RuntimeError("an interruptible call can't run within another interruptible call")
    collects = gc.isenabled()
    try:
        # The call must not be charged for garbage collection, which visits all objects of the process.
        gc.disable()
        try:
            _ends_at = time.thread_time() + seconds
            # The timer counts the user time of all threads. So it may expire early. Then `_interrupt` ignores its
            # signal. It hardly ever expires late, because parsers make few system calls.
            signal.setitimer(signal.ITIMER_VIRTUAL, max(seconds, _TICK_SECONDS), _TICK_SECONDS)
            return call()
        finally:
            _ends_at = None
    except _Interrupt:
        # Reset again, because the interrupt may have come before the `finally` clause took effect.
        _ends_at = None
        raise TimeSpentError from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if collects:
            gc.enable()


def is_running() -> bool:
    """Returns whether an interruptible call is running."""
    return _ends_at is not None


def _interrupt(_number: int, frame: FrameType | None) -> None:
    if _ends_at is not None and time.thread_time() >= _ends_at and not _may_hold_lock(frame):
        raise _Interrupt


def _may_hold_lock(frame: FrameType | None) -> bool:
    """Returns whether the call may hold a process-wide lock, which an exception might not release."""
    while frame is not None and frame.f_code is not run_for.__code__:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _LOCKING_PACKAGES:
            return True
        frame = frame.f_back
    return False
