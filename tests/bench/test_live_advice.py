"""Live advice on vLLM's real scheduler, in virtual time."""

import pytest

from bench.replay.live_advice import live, scenes

SECONDS, WINDOW = 800.0, 180.0


@pytest.mark.parametrize("mode", ["Auto", "Recommend"])
def test_a_limit_that_is_too_low_is_raised_in_mode_auto_only(mode):
    reported = list(live(scenes(SECONDS)["a limit that is too low"], SECONDS, WINDOW, mode))
    assert len([line for line in reported if "rest" in line]) >= 2, "hit rates are printed"
    changes = [line.split(" s  ")[1].partition(":")[0] for line in reported if "limit of chat 20% -> 25%" in line]
    assert changes == (["Trial", "Kept"] if mode == "Auto" else [])
