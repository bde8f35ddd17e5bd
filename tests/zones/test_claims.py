"""Blocks that a step keeps for the requests that they are promised to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.schedule.claims import Claims
from tests.zones.core import Core, Request

KINDS = st.sampled_from(["keep", "keep roughly", "drop", "take rough", "clear"])
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 3), st.integers(0, 9)))


@given(STEPS)
def test_each_claim_counts_once_and_not_for_its_own_request(steps):
    core = Core()
    one, other = core.zone("one"), core.zone("other")
    works = [Request(one), Request(one), Request(other), Request(other)]
    claims, kept, rough = Claims(), {}, []
    for what, which, count in steps:
        work = works[which]
        if what.startswith("keep"):
            claims.keep(work, count, is_rough=what == "keep roughly")
            kept[work] = count
            rough = [each for each in rough if each is not work] + ([work] if what == "keep roughly" else [])
        elif what == "drop":
            claims.drop(work)
            kept.pop(work, None)
            rough = [each for each in rough if each is not work]
        elif what == "take rough":
            assert list(claims.take_rough()) == rough
            rough = []
        else:
            claims.clear()
            kept.clear()
            rough = []

        assert claims.total == sum(kept.values())
        for asking in works:
            others = [(each, count) for each, count in kept.items() if each is not asking]
            assert claims.of_siblings(asking) == sum(count for each, count in others if each.zone is asking.zone)
            assert claims.of_others(asking.zone) == sum(count for each, count in others if each.zone is not asking.zone)


@pytest.fixture
def core():
    return Core()


def test_what_was_kept_before_is_kept_no_more(core):
    a, b, c = (Request(core.zone(name)) for name in "abc")
    claims = Claims()
    claims.keep(a, 5)
    claims.keep(b, 3)
    claims.keep(a, 2)
    assert (claims.total, claims.of_others(a.zone), claims.of_others(b.zone), claims.of_others(c.zone)) == (5, 3, 2, 5)
    claims.drop(a)
    claims.drop(c)
    assert (claims.total, claims.of_others(a.zone), claims.of_others(b.zone)) == (3, 3, 0)
    claims.clear()
    assert (claims.total, claims.of_others(b.zone)) == (0, 0)
