"""What another thread does while a report or a scrape is under way, in the pauses that it makes."""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

from tenantzone_runtime.engine import copying, turns

DEADLINE_SECONDS = 60


@contextmanager
def in_each_pause(monkeypatch, act, *, at_once=1):
    """Copy so many zones or loans at a time. Gives a list that has an entry for each pause."""
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive(), "the lock is not free in the pause"

    with monkeypatch.context() as patch:
        patch.setattr(copying, "ZONES_AT_ONCE", at_once)
        patch.setattr(copying, "LOANS_AT_ONCE", at_once)
        patch.setattr(turns, "time", SimpleNamespace(sleep=pause))
        yield pauses
