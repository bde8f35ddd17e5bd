"""Failed storages, as retried by loads of chunks that are useful only together."""

from types import SimpleNamespace

from tenantzone_runtime.shared.manager.answers import CacheLocations, Location
from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.transfers.loading import Loading

ZONE = SimpleNamespace(loading=0)
A, B = (Location("id", "FileSystem", storage, []) for storage in "ab")


def loading(has_idle=True, **due):
    """A loading part with failed storages, which may be retried from `due` on."""
    threads = SimpleNamespace(may_read_at_once=lambda storage: has_idle)
    made = Loading(None, None, threads, None, None, SharedSettings())
    for storage, seconds in due.items():
        breaker = made.breakers.of(storage)
        breaker.failed(0.0, "down", at_once=True)
        breaker._closed_from, breaker._pause = seconds, 60.0
    return made


def tried(made, chunks, now):
    """The storages that are tried for a hit of the chunks."""
    query = Query(())
    query.found = {bytes([number]): locations for number, locations in enumerate(chunks)}
    made.try_with(query, list(query.found), now)
    return query.tried


def test_a_hit_in_two_of_them_is_tried_when_both_may_be():
    made = loading(a=10.0, b=35.0)
    chunks = [[A], [B]]
    assert [made.may_load_all(ZONE, chunks, 0, now) for now in (9.0, 20.0, 34.0, 35.0)] == [False, False, False, True]


def test_it_is_tried_with_one_hit_and_not_with_two():
    made = loading(a=10.0, b=10.0)
    assert tried(made, [[A], [B], [A]], 10.0) == {"a", "b"}
    assert not made.may_load_all(ZONE, [[A]], 0, 69.0)
    assert not made.may_load_all(ZONE, [[B]], 0, 69.0)
    assert made.may_load_all(ZONE, [[A], [B]], 0, 70.0)


def test_none_is_tried_next_to_one_that_is_well():
    made = loading(a=10.0)
    assert tried(made, [[A, B], [B]], 10.0) == set()
    assert made.may_load_all(ZONE, [[A]], 0, 10.0)


def test_of_two_that_failed_one_is_tried():
    made = loading(a=100.0, b=10.0)
    assert tried(made, [[A, B], [A, B]], 10.0) == {"b"}
    assert tried(made, [[A, B]], 69.0) == set()
    assert tried(made, [[A, B]], 100.0) == {"a"}, "the other one is not this one's"


def test_none_is_tried_all_of_whose_threads_still_wait_for_it():
    made = loading(has_idle=False, a=10.0)
    assert not made.may_load_all(ZONE, [[A]], 0, 70.0)
    assert tried(made, [[A]], 70.0) == set()
    assert made.may_load_all(ZONE, [[B]], 0, 70.0), "of one that is well, there are more"


def test_a_question_that_is_skipped_says_nothing():
    query, space = Query([b"a"] * 8), SimpleNamespace()
    query.begin(space, 10.0, 1.0)
    query.answer([], CacheLocations([], 4, 1.0))
    assert query.lacks(space, 8)
    query.skip(20.0)
    assert not query.lacks(space, 8)
