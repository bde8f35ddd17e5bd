"""Whatever is written into a status, values stay within the bounds, and the status can be written."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tenantzone_operator.advice.adjustment import Field
from tenantzone_operator.advice.advisor import REST_WINDOWS
from tenantzone_operator.advice.overlay import Overlay
from tests.operator.advice.life import KEPT, Life, auto, slow_unless_heavy, two_zones


@pytest.mark.parametrize(
    "rows",
    [
        "no list",
        [{}],
        [None, 3],
        [{"zone": "acme", "field": "reserved", "value": "90%", "state": "Kept", "since": "2026-01-01T00:00:00Z"}],
        [{"zone": "acme", "field": "weight", "spec": "1", "value": "99", "state": "Kept",
          "since": "2026-01-01T00:00:00Z"}],
        [{"zone": "acme", "field": "limit", "value": "90%", "state": "Kept", "since": "2026-01-01T00:00:00Z"}],
        [{"zone": "acme", "field": "limit", "value": "1000", "state": "Kept", "since": "2026-01-01T00:00:00Z"}],
        [{"zone": "acme", "field": "weight", "spec": "1", "value": "2", "state": "Won", "since": "yesterday"}],
    ],
)  # fmt: skip
def test_what_another_client_writes_into_a_status_is_in_force_only_within_the_bounds(rows: Any):
    zones = two_zones()
    overlaid = Overlay().over(auto(status={"adjustments": rows}), zones)
    assert [each.config for each in overlaid.zones] == [each.config for each in zones]


@pytest.mark.parametrize(
    "forged",
    [
        {"since": "0001-01-01T00:00:00+23:59"},
        {"since": "0001-01-01T00:00:00Z"},
        {"since": "9999-12-31T23:59:59Z"},
        {"since": "9999-12-31T23:59:59-23:59"},
        {"undone": 2**31 - 1},
        {"undone": -(2**31)},
        {"value": "9" * 400},
        {"previous": "9" * 400, "state": "Undone"},
    ],
    ids=["before the year 1", "in the year 1", "far ahead", "after the last year", "undone for ever", "undone below 0",
         "a huge weight", "a huge weight before"],
)  # fmt: skip
def test_whatever_stands_in_a_row_the_status_can_be_written(forged: dict[str, Any]):
    life = Life(auto(), two_zones(), lambda _: {}, status={"adjustments": [KEPT | forged]})
    for _ in range(3):
        now = datetime.fromtimestamp(1_700_000_000.0 + life.seconds, UTC)
        for row in life.status.get("adjustments", []):
            assert re.fullmatch(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["since"])
            assert datetime.fromisoformat(row["since"]) <= now
            assert 0 <= row.get("undone", 0) < 2**31 - 1
        life.step()


def test_a_clock_that_was_ahead_makes_nothing_rest_for_longer():
    row = KEPT | {"state": "Undone", "undone": 1, "since": "2033-11-14T22:13:20Z"}
    life = Life(auto(), two_zones(), slow_unless_heavy, status={"adjustments": [row]})
    life.pass_windows(REST_WINDOWS + 2)
    assert life.has("acme", Field.WEIGHT) == "2"


def test_a_zone_that_is_as_its_spec_says_is_the_very_same_object():
    status = {"adjustments": [{"zone": "acme", "field": "weight", "spec": "1", "value": "2", "state": "Kept",
                               "since": "2026-01-01T00:00:00Z"}]}  # fmt: skip
    overlay, zones, of = Overlay(), two_zones(), auto(status=status)
    first, second = overlay.over(of, zones), overlay.over(of, zones)
    assert second.zones[1] is zones[1]
    assert second.zones[0] is first.zones[0]
    assert second.zones[0].config is not None
    assert second.zones[0].config.weight == 2
