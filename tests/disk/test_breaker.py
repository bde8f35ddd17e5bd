"""The circuit breaker: when it opens, how long it waits, and what closes it."""

import logging

from tenantzone_runtime.disk.breaker import Breaker
from tenantzone_runtime.shared.storage.storage_breakers import StorageBreakers


def test_it_opens_after_five_failures_in_a_row_and_no_sooner():
    breaker = Breaker()
    for _ in range(4):
        breaker.failed(0.0)
    breaker.succeeded()
    for _ in range(4):
        breaker.failed(0.0)
    assert not breaker.is_open
    assert breaker.allows(0.0)
    breaker.failed(0.0)
    assert breaker.is_open
    assert not breaker.allows(0.5)


def test_a_failure_that_held_a_request_up_opens_it_at_once():
    breaker = Breaker()
    breaker.failed(0.0, at_once=True)
    assert not breaker.allows(0.9)


def test_one_is_tried_after_each_pause_and_pauses_double_to_eight_seconds():
    breaker, now, pauses = Breaker(), 0.0, []
    breaker.failed(now, at_once=True)
    for _ in range(8):
        began = now
        while not breaker.allows(now):
            now += 0.5
        assert not breaker.allows(now), "one, and not two"
        pauses.append(now - began)
        breaker.failed(now)
    assert pauses == [1, 2, 4, 8, 8, 8, 8, 8]
    assert breaker.openings == 9


def test_who_only_looks_whether_one_may_be_tried_tries_none():
    breaker = Breaker()
    breaker.failed(0.0, at_once=True)
    assert [breaker.is_due(now) for now in (0.9, 1.0, 1.0)] == [False, True, True]
    assert breaker.allows(1.0)
    assert not breaker.is_due(1.0)


def test_what_was_under_way_when_it_opened_makes_no_pause_longer():
    """A prompt has many chunks in progress at once, and a failing disk fails all of them."""
    breaker = Breaker()
    for _ in range(64):
        breaker.failed(0.0)
    assert breaker.openings == 1
    assert breaker.allows(1.0)
    for _ in range(64):
        breaker.failed(1.1, at_once=True)
    assert breaker.openings == 2
    assert not breaker.allows(3.0)
    assert breaker.allows(3.1)


def test_a_try_without_a_reported_end_is_repeated_after_a_pause():
    breaker = Breaker()
    breaker.failed(0.0, at_once=True)
    assert breaker.allows(1.0)
    assert not breaker.allows(1.9)
    assert breaker.allows(2.0)


def test_a_success_closes_it():
    breaker = Breaker()
    breaker.failed(0.0, at_once=True)
    assert breaker.allows(1.0)
    breaker.succeeded()
    assert not breaker.is_open
    assert breaker.allows(1.0)
    assert breaker.allows(1.0)


def test_what_fails_after_it_opened_and_began_before_makes_no_pause_longer():
    breaker = Breaker()
    for _ in range(8):
        breaker.failed(0.0)
    assert breaker.allows(1.0)
    breaker.failed(1.0)
    assert not breaker.allows(2.9)
    assert breaker.allows(3.0)


def test_a_storage_that_works_again_is_named(caplog):
    caplog.set_level(logging.INFO, "tenantzone_runtime")
    storages = StorageBreakers("reads", 1.0)
    storages.note("files", "down", at_once=True)
    storages.note("files", "")
    failed, works = caplog.messages
    assert failed == "The shared tier: reads of storage files fail: down"
    assert works == "The shared tier: reads of storage files work again"
