"""Durations, counted as classic buckets and as a native histogram."""

import functools
import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.model.histogram import BOUNDS, SCHEMA, ZERO_THRESHOLD, Histogram

SECONDS = st.floats(0.0, 1e7)


def histogram(*seconds):
    made = Histogram()
    for each in seconds:
        made.observe(each)
    return made


@given(seconds=SECONDS)
def test_a_duration_is_in_the_classic_bucket_between_whose_bounds_it_is(seconds):
    (bucket,) = [index for index, count in enumerate(histogram(seconds).classic) if count]
    bounds = (-math.inf, *BOUNDS, math.inf)
    assert bounds[bucket] < seconds <= bounds[bucket + 1]


@given(seconds=st.floats(ZERO_THRESHOLD, 1e7, exclude_min=True))
def test_a_duration_is_in_the_native_bucket_between_whose_bounds_it_is(seconds):
    (index,) = histogram(seconds).native
    base = 2.0 ** (2.0**-SCHEMA)
    # The bounds themselves are rounded.
    assert base ** (index - 1) * (1 - 1e-12) <= seconds <= base**index * (1 + 1e-12)


@pytest.mark.parametrize(("seconds", "index"), [(0.5, -8), (1.0, 0), (2.0, 8), (1.0000001, 1), (2**0.125, 1)])
def test_a_bound_belongs_to_the_native_bucket_below_it(seconds, index):
    assert histogram(seconds).native == {index: 1}


@given(seconds=st.lists(SECONDS))
def test_every_duration_is_counted_once_in_each_way(seconds):
    made = histogram(*seconds)
    assert made.count == sum(made.classic) == sum(made.native.values()) + made.zeros == len(seconds)
    # Added one by one: from Python 3.12 on, sum() adds floats with less error.
    assert made.sum == functools.reduce(operator.add, seconds, 0.0)


def test_what_is_as_good_as_no_time_is_zero():
    assert histogram(0.0, ZERO_THRESHOLD / 2, ZERO_THRESHOLD).zeros == 3
    assert histogram(0.0, ZERO_THRESHOLD).native == {}
    assert histogram(math.nextafter(ZERO_THRESHOLD, 1.0)).zeros == 0


def test_a_clock_that_was_set_back_makes_no_negative_duration():
    made = histogram(-5.0)
    assert (made.sum, made.zeros, made.classic[0]) == (0.0, 1, 1)


@given(before=st.lists(SECONDS), after=st.lists(SECONDS), elsewhere=st.lists(SECONDS))
def test_what_one_grows_by_can_be_added_to_another(before, after, elsewhere):
    total, older, newer = histogram(*elsewhere), histogram(*before), histogram(*before, *after)
    total.add_growth(newer, older)
    expected = histogram(*elsewhere, *after)
    assert (total.zeros, total.classic, total.native) == (expected.zeros, expected.classic, expected.native)
    assert total.sum == pytest.approx(expected.sum)


def test_a_copy_does_not_change_with_its_original():
    made = histogram(1.0)
    copy = made.copy()
    made.observe(1.0)
    assert copy == histogram(1.0)
