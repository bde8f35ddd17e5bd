"""What another thread does in the pauses of background work: reports, scrapes, configs, time."""

import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

from tenantzone_runtime.housekeeping import turns
from tenantzone_runtime.housekeeping.report import copying

DEADLINE_SECONDS = 60


@contextmanager
def in_each_pause(monkeypatch, act, *, at_once=1):
    """Copies `at_once` zones or loans at a time, and changes one. Returns a list with an entry for each pause."""
    pauses, errors = [], []
    watched = threading.current_thread()

    def attempt():
        try:
            act()
        except BaseException as error:
            errors.append(error)

    def pause(seconds):
        # The other thread's own pauses end at once.
        if threading.current_thread() is not watched:
            return
        pauses.append(seconds)
        thread = threading.Thread(target=attempt, daemon=True)
        thread.start()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive(), "the lock is not free in the pause"
        if errors:
            raise errors[0]

    with monkeypatch.context() as patch:
        patch.setattr(copying, "ZONES_AT_ONCE", at_once)
        patch.setattr(copying, "LOANS_AT_ONCE", at_once)
        patch.setattr(turns, "_TURN_SECONDS", 0.0)
        patch.setattr(turns, "time", SimpleNamespace(sleep=pause, perf_counter=time.perf_counter))
        yield pauses
