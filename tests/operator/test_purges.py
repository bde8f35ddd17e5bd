"""What a zone's status says of a purge, from what the engines report."""

from typing import Any

import pytest

from tenantzone_contract.config import PURGE_ANNOTATION
from tenantzone_contract.report import PurgeReport
from tenantzone_operator.kube.resources import Zone, read_zone
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import make_plan
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.notices import zone_notices
from tenantzone_operator.status.statuses import zone_status
from tests.operator.objects import NOW, body, observed, pool, silent, snapshot

LATER = "2026-01-01T00:00:09Z"


def asked(id: str | None = "one", status: Any = None, **spec: Any) -> Zone:
    annotations = {} if id is None else {PURGE_ANNOTATION: id}
    return read_zone(
        body("acme", metadata={"annotations": annotations}, spec={"pool": "demo"} | spec, status=status or {})
    )


def engine(name: str = "engine-0", id: str | None = "one", **counts: int) -> Any:
    purge = None if id is None else PurgeReport(id=id, **{each: counts[each] for each in counts if each != "soiled"})
    return observed(
        snapshot(1, asked()), engine=name, acme={"purge": purge, "unscrubbed_blocks": counts.get("soiled", 0)}
    )


def status_of(zone: Zone, *observations: Any, now: str = NOW) -> dict[str, Any]:
    history = History()
    made = make_plan(pool(), [zone], in_force=None, last_generation=0, size=100, room=ConfigRoom())
    if made.config is not None:
        history.record(made.config, 1000)
    return zone_status(zone, made.verdicts["acme"], observations, history, before=zone.status, now=now)


def condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((found for found in status["conditions"] if found["type"] == "Purged"), {})


def test_it_is_complete_once_each_engine_has_acknowledged():
    first = status_of(asked(), engine("a", evicted=7, withdrawn=2, soiled=5), engine("b", id="zero"))
    assert "completedAt" not in first["purge"]
    assert condition(first)["reason"] == "PurgePending"
    assert condition(first)["message"] == "purge one is acknowledged by 1 of 2 engines; waiting for b"

    second = status_of(asked(status=first), engine("a", evicted=7), engine("b", evicted=1), now=LATER)
    assert second["purge"] == {
        "id": "one",
        "requestedAt": NOW,
        "completedAt": LATER,
        "evicted": 8,
        "withdrawn": 2,
        "unscrubbed": 5,
        "engines": [
            {"pod": "a", "evicted": 7, "withdrawn": 2, "unscrubbed": 5},
            {"pod": "b", "evicted": 1, "withdrawn": 0, "unscrubbed": 0},
        ],
    }
    assert condition(second)["status"] == "True"
    assert [notice.reason for notice in zone_notices(first, second)] == ["Purged"]


def test_what_is_complete_stays_whatever_comes_later():
    complete = status_of(asked(), engine("a", evicted=7))
    assert status_of(asked(status=complete), engine("b", id=None), now=LATER)["purge"] == complete["purge"]
    withdrawn = status_of(asked(id=None, status=complete), engine("b", id=None))
    assert withdrawn["purge"] == complete["purge"]
    assert condition(withdrawn) == {}
    again = status_of(asked("two", status=complete), engine("a", evicted=7))
    assert again["purge"] == {"id": "two", "requestedAt": NOW, "evicted": 0, "withdrawn": 0, "unscrubbed": 0}


def test_an_engine_that_has_acknowledged_keeps_its_counts_when_it_starts_anew_or_falls_silent():
    first = status_of(asked(), engine("a", evicted=7), engine("b", id=None))
    restarted = status_of(asked(status=first), engine("a", evicted=0), silent("b"))
    assert [row["evicted"] for row in restarted["purge"]["engines"]] == [7]
    assert "b, which does not answer" in condition(restarted)["message"]


def test_without_an_engine_it_is_not_complete():
    status = status_of(asked())
    assert "completedAt" not in status["purge"]
    assert condition(status)["message"].endswith("no engine is ready")


def test_an_engine_that_is_too_old_is_named_with_what_it_says():
    refusing = observed(None, engine="old", error="zones[0].purge: Extra inputs are not permitted")
    status = status_of(asked(), refusing)
    assert "completedAt" not in status["purge"]
    assert "old, which refuses the config: zones[0].purge: Extra inputs" in condition(status)["message"]


def test_a_zone_that_is_not_accepted_says_so():
    status = status_of(asked(reserved=200), engine(id="zero"))
    assert "completedAt" not in status["purge"]
    assert "the zone is not accepted: reserved is 200 blocks" in condition(status)["message"]


@pytest.mark.parametrize("id", ["a b", "-a", "x" * 64, "a\n", "ä"])
def test_a_bad_id_is_refused_and_changes_nothing_else(id: str):
    bad = asked(id, reserved=10)
    assert bad.config == asked(None, reserved=10).config
    status = status_of(bad, engine(id=None))
    assert "purge" not in status
    assert condition(status)["reason"] == "PurgeInvalid"
    assert "1 to 63 letters" in condition(status)["message"]
    assert [notice.reason for notice in zone_notices({}, status)] == ["PurgeInvalid"]
    assert next(each for each in status["conditions"] if each["type"] == "Accepted")["status"] == "True"
