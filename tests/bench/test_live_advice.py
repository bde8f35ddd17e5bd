"""Live advice on vLLM's real scheduler, in virtual time."""

import re

import pytest

from bench.live_advice import live, scenes

SECONDS, WINDOW = 1500.0, 200.0


@pytest.mark.parametrize("mode", ["Auto", "Recommend"])
def test_a_limit_that_is_too_low_is_raised_in_mode_auto_and_more_is_found(mode):
    told = list(live(scenes(SECONDS)["a limit that is too low"], SECONDS, WINDOW, mode))
    rates = [float(found[1]) for line in told if (found := re.search(r"chat +([\d.]+)%;", line))]
    kept = [line for line in told if "Kept: limit of chat 20% -> " in line]
    assert bool(kept) == (mode == "Auto")
    if mode == "Auto":
        assert rates[-1] > rates[1] + 5
