"""The predicted duration of a step, fitted to measurements."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_replay.engine.measured import Measured, Sample, errors, fitted, read_measured, work_of
from tenantzone_replay.traces.load import TraceError


def samples(true, noise=0.0):
    rng = random.Random(1)
    found = [
        Sample(work_of([(tokens, tokens)]), true.seconds(work_of([(tokens, tokens)])) + true.first_token, True)
        for tokens in (16, 32, 64, 128, 256, 512, 1024)
    ]
    for at_once in (1, 2, 4, 8, 16, 32):
        for context in (30, 500):
            work = work_of([(1, context)] * at_once)
            found.append(Sample(work, true.seconds(work), False))
    return [
        Sample(each.work, each.seconds * rng.uniform(1 - noise, 1 + noise), each.with_first_token) for each in found
    ]


TRUE = Measured("tiny", 2e-3, 1e-4, 2e-5, 3e-9, 1e-7, 4e-3, 100, 16)


def test_what_was_measured_without_noise_is_found_again():
    found = fitted(samples(TRUE), "tiny", 100, 16)
    assert max(errors(found, samples(TRUE))) < 1e-6
    assert (found.step, found.first_token) == (pytest.approx(TRUE.step), pytest.approx(TRUE.first_token))


def test_with_noise_it_is_off_by_no_more_than_that():
    assert max(errors(fitted(samples(TRUE, 0.1), "tiny", 100, 16), samples(TRUE))) < 0.1


costs = st.floats(0, 1e-2)


@given(costs=st.tuples(costs, costs, costs, costs, costs, costs), noise=st.floats(0, 0.5))
def test_no_cost_is_ever_negative(costs, noise):
    true = Measured("any", 1e-4 + costs[0], *costs[1:], 100, 16)
    found = fitted(samples(true, noise), "any", 100, 16)
    assert min(found.step, found.request, found.token, found.pair, found.read, found.first_token) >= 0


def test_it_is_read_as_it_was_written(tmp_path):
    TRUE.write(tmp_path / "engine.json")
    assert read_measured(tmp_path / "engine.json") == TRUE
    assert TRUE.blocks(32) == 50


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "was not written by fit"),
        ("[" * 200_000, "was not written by fit"),
        ('{"format": 9}', "measure the engine again"),
    ],
)
def test_what_is_no_profile_is_said(tmp_path, text, says):
    (tmp_path / "engine.json").write_text(text)
    with pytest.raises(TraceError, match=says):
        read_measured(tmp_path / "engine.json")


def test_too_few_samples_are_an_error():
    with pytest.raises(TraceError, match="too few"):
        fitted(samples(TRUE)[:3], "tiny", 100, 16)
