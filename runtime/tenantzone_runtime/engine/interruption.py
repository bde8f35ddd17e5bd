"""Interrupts a call that takes too long, in its own process.

Python looks for signals between the steps of its interpreter, and its regular expressions (`re` and `regex`) look for
them while they match. So a timer's signal ends a loop in Python and a match that never ends. Only the main thread hears
of signals; vLLM's event loop and its engine core run there.
"""

import gc
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

_TICK_SECONDS: Final = 0.001
"""Between two signals once the time of a call may be over. The kernel rounds it up to a tick; 4 ms at 250 Hz."""

_LOCKING_PACKAGES: Final = frozenset({"importlib", "logging", "prometheus_client", "threading"})
"""A call that is in one of them when its time is spent is interrupted at a later tick."""

Result = TypeVar("Result")


class TimeSpentError(Exception):
    """A call was interrupted, or was not begun, because its time was spent."""


class _Interrupt(BaseException):
    """Raised within the call. No Exception, because parsers catch these and return the text as it is."""


_ends_at: float | None = None
"""The main thread's processor time at which the call that runs is interrupted; None: none runs."""


def prepare_interruption() -> None:
    """Install the signal's handler. To be called in the main thread."""
    signal.signal(signal.SIGVTALRM, _interrupt)


def run_for(seconds: float, call: Callable[[], Result]) -> Result:
    """Run a call, for at most a number of seconds of the processor.

    In another thread than the main one a call can't be interrupted: there it runs to its end.

    Args:
        seconds: of this thread's processor time. The call may take one tick of the kernel's clock longer.
        call: without effects outside itself, because it may be interrupted at any place.

    Raises:
        TimeSpentError: the call was interrupted, or there was no time for it.
        RuntimeError: such a call runs already.
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
        # A collection looks at all objects of the process, for which the call is not at fault.
        gc.disable()
        try:
            _ends_at = time.thread_time() + seconds
            # The timer counts the user time of all threads: it may be early, and hardly late, for parsers make few
            # system calls.
            signal.setitimer(signal.ITIMER_VIRTUAL, max(seconds, _TICK_SECONDS), _TICK_SECONDS)
            return call()
        finally:
            _ends_at = None
    except _Interrupt:
        # Again: the interrupt may have come before the line above.
        _ends_at = None
        raise TimeSpentError from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if collects:
            gc.enable()


def is_running() -> bool:
    """Return whether a call runs that may be interrupted."""
    return _ends_at is not None


def _interrupt(_number: int, frame: FrameType | None) -> None:
    if _ends_at is not None and time.thread_time() >= _ends_at and not _may_hold_lock(frame):
        raise _Interrupt


def _may_hold_lock(frame: FrameType | None) -> bool:
    """Whether the call is in code that takes locks of the process, which an exception might not release."""
    while frame is not None and frame.f_code is not run_for.__code__:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _LOCKING_PACKAGES:
            return True
        frame = frame.f_back
    return False
