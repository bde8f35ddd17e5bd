"""The blocks that zones held, in little memory."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_operator.console.history import History

KEYS = [("default", name) for name in "abc"]
held = st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 1_000_000))


@given(st.lists(held, max_size=30), st.integers(1, 8))
def test_it_remembers_the_last_samples_of_each_zone_that_is_there(samples, max_samples):
    ticks = itertools.count(100)
    history = History(now=lambda: float(next(ticks)), samples=max_samples)
    for sample in samples:
        history.add(sample)
    kept = samples[-max_samples:]
    assert history.times == [float(100 + number) for number in range(len(samples))][-max_samples:]
    for key in KEYS:
        gone = max((number for number, sample in enumerate(kept) if key not in sample), default=-1)
        since = [None if number <= gone else sample.get(key) for number, sample in enumerate(kept)]
        assert history.of(key) == since


def test_an_unknown_zone_has_no_history():
    history = History()
    history.add({})
    assert history.of(("default", "missing")) == [None]
