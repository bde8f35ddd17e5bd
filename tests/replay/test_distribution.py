"""Quantiles in little memory, against those of all numbers."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_replay.simulation.distribution import Distribution
from tenantzone_replay.simulation.token_bucket import TokenBucket


@given(st.lists(st.floats(1e-5, 1e5), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_a_quantile_is_at_most_a_hundredth_off(values, part):
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    exact = sorted(values)[math.ceil(part * len(values)) - 1]
    assert math.isclose(distribution.quantile(part), exact, rel_tol=0.0101)


@given(st.lists(st.floats(0, 1e3), max_size=50), st.lists(st.floats(0, 1e3), min_size=1, max_size=50))
def test_merged_is_as_if_counted_together(some, others):
    merged, together = Distribution(), Distribution()
    other = Distribution()
    for value in some:
        merged.add(value)
        together.add(value)
    for value in others:
        other.add(value)
        together.add(value)
    merged.merge(other)
    assert merged.curve() == together.curve()
    assert merged.curve()[-1][1] == 1.0


def test_nothing_has_no_quantile():
    assert Distribution().quantile(0.5) == 0.0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 500)), min_size=1, max_size=40), st.floats(1, 50))
def test_a_bucket_lets_no_more_through_than_its_rate_and_what_was_saved(asked, rate):
    depth, now, passed = 300.0, 0.0, []
    bucket = TokenBucket(rate, depth)
    for gap, tokens in asked:
        now += gap
        at = bucket.passes_at(now, tokens)
        assert at >= now
        passed.append((at, tokens))
    assert passed == sorted(passed, key=lambda each: each[0]), "first come, first through"
    for first, (begin, _) in enumerate(passed):
        for last in range(first, len(passed)):
            # A request larger than the depth passes when the bucket is full; the rest is not charged to the next one.
            tokens = sum(min(tokens, depth) for _, tokens in passed[first : last + 1])
            assert tokens <= depth + rate * (passed[last][0] - begin) + 1e-6
