"""How a request's tokens are processed, by position: each in exactly one way."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.processed_tokens import COUNTERS, ProcessedAs, Progress


def counted(counters):
    return {
        kind: getattr(counters, COUNTERS[kind]) for kind in get_args(ProcessedAs) if getattr(counters, COUNTERS[kind])
    }


def test_what_was_lost_is_recomputed_and_what_comes_after_it_is_computed_first():
    progress, counters = Progress(), Counters()
    progress.begin_stay(hits=10, loaded=20, counters=counters)
    progress.end_stay(50, dropped_drafts=0, counters=counters)
    assert counted(counters) == {"hit": 10, "loaded": 20, "computed_first": 20}
    progress.begin_stay(hits=0, loaded=0, counters=counters)
    progress.computed_to(45, counters)
    progress.end_stay(60, dropped_drafts=3, counters=counters)
    assert counted(counters) == {
        "hit": 10, "loaded": 20, "computed_first": 30, "recomputed": 50, "draft_rejected": 3,
    }  # fmt: skip


def test_what_is_found_further_on_was_never_computed():
    progress, counters = Progress(), Counters()
    progress.begin_stay(hits=0, loaded=0, counters=counters)
    progress.end_stay(10, dropped_drafts=0, counters=counters)
    progress.begin_stay(hits=32, loaded=0, counters=counters)
    progress.end_stay(40, dropped_drafts=0, counters=counters)
    assert counted(counters) == {"hit": 32, "computed_first": 18}


def test_who_does_not_run_has_nothing_to_count():
    progress, counters = Progress(), Counters()
    progress.computed_to(10, counters)
    progress.end_stay(10, dropped_drafts=2, counters=counters)
    assert counted(counters) == {}


def test_how_a_request_got_to_where_it_is_adopted_is_not_counted_and_what_it_loses_later_is():
    progress, counters = Progress(), Counters()
    progress.begin_uncounted(30)
    progress.end_stay(34, dropped_drafts=0, counters=counters)
    progress.begin_stay(hits=0, loaded=0, counters=counters)
    progress.end_stay(40, dropped_drafts=0, counters=counters)
    assert counted(counters) == {"computed_first": 4 + 6, "recomputed": 34}


STAYS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.lists(st.integers(0, 15), max_size=5), st.integers(0, 4)),
    max_size=6,
)


@given(STAYS)
def test_each_token_of_any_life_is_counted_once(stays):
    progress, counters, reached, computed, found, drafts = Progress(), Counters(), set(), 0, 0, 0
    expected = {"computed_first": 0, "recomputed": 0}
    for hits, loaded, steps, dropped in stays:
        progress.begin_stay(hits, loaded, counters)
        position = hits + loaded
        found += position
        reached |= set(range(position))
        for tokens in steps:
            for each in range(position, position + tokens):
                expected["recomputed" if each in reached else "computed_first"] += 1
                reached.add(each)
            position, computed = position + tokens, computed + tokens
            if tokens % 2:
                progress.computed_to(position, counters)
        progress.end_stay(position, dropped, counters)
        drafts += dropped
    assert {kind: getattr(counters, COUNTERS[kind]) for kind in expected} == expected
    assert sum(expected.values()) == computed
    assert (counters.hit_tokens + counters.loaded_tokens, counters.rejected_draft_tokens) == (found, drafts)
