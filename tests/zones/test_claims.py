"""Blocks that are kept in a step for whom they are promised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.claims import Claims
from tests.zones.zoo import Request, Zoo

STEPS = st.lists(st.tuples(st.sampled_from(["keep", "drop", "clear"]), st.integers(0, 3), st.integers(0, 9)))


@given(STEPS, st.integers(0, 12), st.integers(0, 12))
def test_each_claim_counts_once_and_not_for_its_own_request(steps, reserved, cached):
    zoo = Zoo()
    one, other = zoo.zone("one", reserved=reserved, cached=cached), zoo.zone("other")
    works = [Request(one), Request(one), Request(other), Request(other)]
    claims, kept = Claims(), {}
    for what, which, count in steps:
        work = works[which]
        if what == "keep":
            claims.keep(work, count)
            kept[work] = count
        elif what == "drop":
            claims.drop(work)
            kept.pop(work, None)
        else:
            claims.clear()
            kept.clear()

        def of(zone, but=None):
            return sum(count for work, count in kept.items() if work.zone is zone and work is not but)

        # What one caches within its reservation nobody else can have anyway.
        from_others = {one: max(0, of(one) - min(cached, reserved)), other: of(other)}
        assert claims.total == sum(from_others.values())
        for asking in works:
            theirs = from_others[other if asking.zone is one else one]
            assert claims.of_others(asking) == theirs + of(asking.zone, but=asking)


@pytest.fixture
def zoo():
    return Zoo()


def test_what_was_kept_before_is_kept_no_more(zoo):
    a, b, c = (Request(zoo.zone(name)) for name in "abc")
    claims = Claims()
    claims.keep(a, 5)
    claims.keep(b, 3)
    claims.keep(a, 2)
    assert (claims.total, claims.of_others(a), claims.of_others(b), claims.of_others(c)) == (5, 3, 2, 5)
    claims.drop(a)
    claims.drop(c)
    assert (claims.total, claims.of_others(a), claims.of_others(b)) == (3, 3, 0)
    claims.clear()
    assert (claims.total, claims.of_others(b)) == (0, 0)


def test_what_a_zone_has_cached_within_its_reservation_is_not_kept_from_others(zoo):
    owner = zoo.zone("owner", reserved=20, cached=30)
    mine, sibling, other = Request(owner), Request(owner), Request(zoo.zone("other"))
    claims = Claims()
    claims.keep(mine, 15)
    assert (claims.of_others(other), claims.of_others(sibling)) == (0, 15)
    claims.keep(sibling, 10)
    assert (claims.of_others(other), claims.of_others(sibling), claims.of_others(mine)) == (5, 15, 10)
