"""The virtual clock is the one that the runtime reads, whenever its modules are loaded."""

import importlib
import sys
import time

from tenantzone_replay.simulation.clock import UNIX_TIME, VirtualClock

EARLY, LATE = "tenantzone_runtime.housekeeping.reloading", "tenantzone_runtime.engine.grammars.grammar_work"


def test_modules_read_the_clock_whether_they_are_loaded_before_it_is_in_force_or_later(monkeypatch):
    early, late = importlib.import_module(EARLY), importlib.import_module(LATE)
    monkeypatch.setitem(sys.modules, LATE, late)
    monkeypatch.delitem(sys.modules, LATE)
    clock = VirtualClock(7.0)
    with clock.in_force():
        loaded_later = importlib.import_module(LATE)
        assert loaded_later is not late
        for module in (early, loaded_later):
            assert (module.time.monotonic(), module.time.time()) == (7.0, UNIX_TIME + 7.0)
    assert all(module.time is time for module in (early, loaded_later))


def test_nothing_of_the_clock_remains_once_it_is_no_longer_in_force():
    before = list(sys.meta_path)
    with VirtualClock().in_force():
        pass
    assert sys.meta_path == before
