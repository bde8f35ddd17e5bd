"""A migration always keeps to its rate limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.shared.rate_limit import RateLimit

RATES = st.floats(1.0, 1e9)
CHUNKS = st.integers(1, 10**8)
MOMENTS = st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 1000)), max_size=30)


@given(RATES, CHUNKS, MOMENTS)
def test_in_no_time_more_is_moved_than_the_rate_and_one_burst(rate, chunk, moments):
    rate_limit, now, moved = RateLimit(rate, chunk, 0.0), 0.0, []
    for passed, wanted in moments:
        now += passed
        chunks = min(wanted, rate_limit.chunks(now))
        rate_limit.spend(chunks, now)
        moved.append((now, chunks * chunk))
    for number, (begin, _) in enumerate(moved):
        for end_number, (end, _) in enumerate(moved[number:], number):
            total = sum(each for _, each in moved[number : end_number + 1])
            assert total <= (rate * (end - begin) + rate_limit.burst) * (1 + 1e-9)


@given(RATES, CHUNKS, MOMENTS)
def test_who_waits_until_the_next_chunk_may_move_one(rate, chunk, moments):
    rate_limit, now = RateLimit(rate, chunk, 0.0), 0.0
    for passed, _ in moments:
        now += passed
        rate_limit.spend(rate_limit.chunks(now), now)
        until = rate_limit.next_chunk(now)
        assert until >= now
        # Sums of floats may lack their last digit.
        assert rate_limit.chunks(until * (1 + 1e-9) + 1e-9) >= 1
        now = until


def test_a_chunk_larger_than_a_second_may_move_takes_its_seconds():
    rate_limit = RateLimit(10.0, 100, 0.0)
    rate_limit.spend(1, 0.0)
    assert rate_limit.chunks(5.0) == 0
    assert rate_limit.next_chunk(5.0) == pytest.approx(10.0)
    assert rate_limit.chunks(10.0) == 1
