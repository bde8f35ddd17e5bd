"""However a migration moves, it keeps to its pace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.shared.pace import Pace

RATES = st.floats(1.0, 1e9)
CHUNKS = st.integers(1, 10**8)
MOMENTS = st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 1000)), max_size=30)


@given(RATES, CHUNKS, MOMENTS)
def test_in_no_time_more_is_moved_than_the_rate_and_one_burst(rate, chunk, moments):
    pace, now, moved = Pace(rate, chunk, 0.0), 0.0, []
    for passed, wanted in moments:
        now += passed
        chunks = min(wanted, pace.chunks(now))
        pace.spend(chunks, now)
        moved.append((now, chunks * chunk))
    for number, (begin, _) in enumerate(moved):
        for end_number, (end, _) in enumerate(moved[number:], number):
            total = sum(each for _, each in moved[number : end_number + 1])
            assert total <= (rate * (end - begin) + pace.burst) * (1 + 1e-9)


@given(RATES, CHUNKS, MOMENTS)
def test_who_waits_until_the_next_chunk_may_move_one(rate, chunk, moments):
    pace, now = Pace(rate, chunk, 0.0), 0.0
    for passed, _ in moments:
        now += passed
        pace.spend(pace.chunks(now), now)
        until = pace.next_chunk(now)
        assert until >= now
        # Sums of floats may lack their last digit.
        assert pace.chunks(until * (1 + 1e-9) + 1e-9) >= 1
        now = until


def test_a_chunk_larger_than_a_second_may_move_takes_its_seconds():
    pace = Pace(10.0, 100, 0.0)
    pace.spend(1, 0.0)
    assert pace.chunks(5.0) == 0
    assert pace.next_chunk(5.0) == pytest.approx(10.0)
    assert pace.chunks(10.0) == 1
