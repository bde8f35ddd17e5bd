"""Storages that failed, as loads of chunks that are of use together only try them again."""

from types import SimpleNamespace

from tenantzone_runtime.shared.answers import Location
from tenantzone_runtime.shared.loading import Loading
from tenantzone_runtime.shared.settings import SharedSettings

ZONE = SimpleNamespace(loading=0)
A, B = (Location("id", "FileSystem", storage, []) for storage in "ab")


def loading(**due):
    """Of storages that failed, and may be tried from then on."""
    made = Loading(None, None, None, None, None, SharedSettings())
    for storage, seconds in due.items():
        breaker = made.breakers.of(storage)
        breaker.failed(0.0, "down", at_once=True)
        breaker._closed_from, breaker._pause = seconds, 60.0
    return made


def test_a_hit_in_two_of_them_is_tried_when_both_may_be():
    made = loading(a=10.0, b=35.0)
    chunks = [[A], [B]]
    assert [made.may_load_all(ZONE, chunks, 0, now) for now in (9.0, 20.0, 34.0, 35.0)] == [False, False, False, True]


def test_it_is_tried_with_one_hit_and_not_with_two():
    made = loading(a=10.0, b=10.0)
    made.try_with([[A], [B], [A]], 10.0)
    assert not made.may_load_all(ZONE, [[A]], 0, 69.0)
    assert not made.may_load_all(ZONE, [[B]], 0, 69.0)
    assert made.may_load_all(ZONE, [[A], [B]], 0, 70.0)


def test_none_is_tried_beside_one_that_is_well():
    made = loading(a=10.0)
    made.try_with([[A, B], [B]], 10.0)
    assert made.may_load_all(ZONE, [[A]], 0, 10.0)


def test_of_two_that_failed_one_is_tried_and_read_first():
    made = loading(a=100.0, b=10.0)
    made.try_with([[A, B], [A, B]], 10.0)
    assert sorted([A, B], key=made._misgiving) == [B, A]
    assert not made.breakers.of("a").is_on_trial
