"""Blocks that are kept in a step for whom they are promised."""

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.claims import Claims

STEPS = st.lists(st.tuples(st.sampled_from(["keep", "drop", "clear"]), st.sampled_from("abc"), st.integers(0, 9)))


@given(STEPS)
def test_each_claim_counts_once_and_not_for_its_own_request(steps):
    claims, kept = Claims(), {}
    for what, work, count in steps:
        if what == "keep":
            claims.keep(work, count)
            kept[work] = count
        elif what == "drop":
            claims.drop(work)
            kept.pop(work, None)
        else:
            claims.clear()
            kept.clear()
        assert claims.total == sum(kept.values())
        for asking in "abc":
            assert claims.of_others(asking) == sum(count for work, count in kept.items() if work != asking)


def test_what_was_kept_before_is_kept_no_more():
    claims = Claims()
    claims.keep("a", 5)
    claims.keep("b", 3)
    claims.keep("a", 2)
    assert (claims.total, claims.of_others("a"), claims.of_others("b"), claims.of_others("c")) == (5, 3, 2, 5)
    claims.drop("a")
    claims.drop("never kept")
    assert (claims.total, claims.of_others("a"), claims.of_others("b")) == (3, 3, 0)
    claims.clear()
    assert (claims.total, claims.of_others("b")) == (0, 0)
