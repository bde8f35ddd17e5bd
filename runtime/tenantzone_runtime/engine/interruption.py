"""Interrupts a call that takes too long, in its own process.

Python checks for signals between interpreter steps, and its regular expressions (`re` and `regex`) check for them while
they match. So a timer's signal ends a loop in Python and a match that never ends. Only the main thread receives
signals; vLLM's event loop and its engine core run there.
"""

import gc
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

_TICK_SECONDS: Final = 0.001
"""Seconds between two signals once the time of a call may be over. The kernel rounds up to a tick: 4 ms at 250 Hz."""

_LOCKING_PACKAGES: Final = frozenset({"importlib", "logging", "prometheus_client", "threading"})
"""A call that is inside such a package when its time is spent is interrupted at a later tick."""

Result = TypeVar("Result")


class TimeSpentError(Exception):
    """A call was interrupted, or was not begun, because its time was spent."""


class _Interrupt(BaseException):
    """Raised within the call. Not an Exception, because parsers catch those and return the text unparsed."""


_ends_at: float | None = None
"""The main thread's processor time at which the running call is interrupted; None if none runs."""


def prepare_interruption() -> None:
    """Install the signal handler. Must be called in the main thread."""
    signal.signal(signal.SIGVTALRM, _interrupt)


def run_for(seconds: float, call: Callable[[], Result]) -> Result:
    """Run a call for at most a number of processor seconds.

    Outside the main thread a call can't be interrupted: it runs to its end.

    Args:
        seconds: this thread's processor time. The call may take one tick of the kernel's clock longer.
        call: must have no effects outside itself, because it may be interrupted anywhere.

    Raises:
        TimeSpentError: the call was interrupted, or there was no time for it.
        RuntimeError: another such call is running.
    """
    global _ends_at
    if seconds <= 0:
        raise TimeSpentError
    if threading.current_thread() is not threading.main_thread():
        return call()
    if _ends_at is not None:
        raise RuntimeError("a call that may be interrupted can't run within another one")
    collects = gc.isenabled()
    try:
        # A collection visits all objects of the process; its time is not the call's fault.
        gc.disable()
        try:
            _ends_at = time.thread_time() + seconds
            # The timer counts the user time of all threads: it may be early, but hardly late, because parsers make few
            # system calls.
            signal.setitimer(signal.ITIMER_VIRTUAL, max(seconds, _TICK_SECONDS), _TICK_SECONDS)
            return call()
        finally:
            _ends_at = None
    except _Interrupt:
        # Repeated, because the interrupt may have come before the line above.
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
    """Returns whether the call is in code that holds process-wide locks, which an exception might not release."""
    while frame is not None and frame.f_code is not run_for.__code__:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _LOCKING_PACKAGES:
            return True
        frame = frame.f_back
    return False
