"""Minutes in Prometheus' notation, unscaled and scaled down."""

import pytest

from hack.monitoring.time_scale import TimeScale


@pytest.mark.parametrize(
    ("scale", "minutes", "duration"),
    [
        (1, 5, "5m"),
        (1, 60, "1h"),
        (1, 90, "90m"),
        (1, 0.25, "15s"),
        (1 / 12, 5, "25s"),
        (1 / 15, 0.25, "1s"),
        (0.1, 0.25, "1500ms"),
    ],
)
def test_a_duration_is_exact(scale: float, minutes: float, duration: str):
    assert TimeScale(scale)(minutes) == duration
