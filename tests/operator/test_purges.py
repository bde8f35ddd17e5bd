"""A zone's status about a purge, from the engines' reports."""

from dataclasses import replace
from typing import Any

import pytest

from tenantzone_contract.reports.zone_report import PurgeReport
from tenantzone_contract.zone_config.config import PURGE_ANNOTATION, ZoneConfig
from tenantzone_operator.kube.resources import Zone, read_zone
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import make_plan
from tenantzone_operator.planning.repeated_purges import with_repeated_purges
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
    purge = None if id is None else PurgeReport(id=id, **{each: counts[each] for each in counts if each != "dirty"})
    return observed(
        snapshot(1, asked()), engine=name, acme={"purge": purge, "unscrubbed_blocks": counts.get("dirty", 0)}
    )


def status_of(zone: Zone, *observations: Any, now: str = NOW) -> dict[str, Any]:
    history = History()
    made = make_plan(pool(), [zone], in_force=None, last_generation=0, size=100, room=ConfigRoom())
    if made.config is not None:
        history.record(made.config, 1000)
    return zone_status(zone, made.decisions["acme"], observations, history, before=zone.status, now=now)


def condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((found for found in status["conditions"] if found["type"] == "Purged"), {})


def test_it_is_complete_once_each_engine_has_acknowledged():
    first = status_of(asked(), engine("a", evicted=7, withdrawn=2, dirty=5), engine("b", id="zero"))
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


def carried_out(annotation: str | None, in_force: str | None, last: dict[str, str] | None) -> str:
    """The id in the config, for a zone with this annotation, an active entry with this id, and this record."""
    zone = asked(annotation, status={} if last is None else {"purge": last})
    before = (
        None
        if in_force is None
        else snapshot(1, replace(zone, config=zone.config.model_copy(update={"purge": in_force})))
    )
    (found,) = with_repeated_purges([zone], before)
    return found.config.purge


DONE = {"completedAt": NOW}


@pytest.mark.parametrize(
    ("annotation", "in_force", "last", "wanted"),
    [
        (None, "one", {"id": "one", **DONE}, ""),
        ("one", "", None, "one"),
        ("one", "one", {"id": "one", **DONE}, "one"),
        ("two", "one", {"id": "one", **DONE}, "two"),
        # It was removed, and is set again.
        ("one", "", {"id": "one", **DONE}, "one#2"),
        ("one", "one#2", {"id": "one", **DONE}, "one#2"),
        ("one", "", {"id": "one#2", **DONE}, "one#3"),
        ("one", "two", {"id": "one", **DONE}, "one#2"),
        # It was not carried out before it was removed, or the config can't be written.
        ("one", "", {"id": "one"}, "one"),
        ("one", "", {"id": "one#2"}, "one#2"),
        # The config is lost, or the zone is not in it.
        ("one", None, {"id": "one#2", **DONE}, "one#2"),
        # Another party wrote the status.
        ("one", "", {"id": f"one#{10**60}", **DONE}, "one#2"),
        ("one", "", {"id": "one#x", **DONE}, "one#2"),
        ("one", "one", {"id": "one#7", **DONE}, "one"),
    ],
)
def test_an_id_that_was_removed_and_is_set_again_is_another_purge(annotation, in_force, last, wanted):
    assert carried_out(annotation, in_force, last) == wanted
    ZoneConfig.model_validate(asked().config.model_dump() | {"purge": wanted})


def test_the_longest_id_can_be_set_again():
    longest = "x" * 63
    again = carried_out(longest, "", {"id": f"{longest}#{10**8 - 1}", **DONE})
    assert again == f"{longest}#{10**8}"
    ZoneConfig.model_validate(asked().config.model_dump() | {"purge": again})


@pytest.mark.parametrize("id", ["a#2", "a b", "-a", "x" * 64, "a\n", "ä"])
def test_a_bad_id_is_refused_and_changes_nothing_else(id: str):
    bad = asked(id, reserved=10)
    assert bad.config == asked(None, reserved=10).config
    status = status_of(bad, engine(id=None))
    assert "purge" not in status
    assert condition(status)["reason"] == "PurgeInvalid"
    assert "1 to 63 letters" in condition(status)["message"]
    assert [notice.reason for notice in zone_notices({}, status)] == ["PurgeInvalid"]
    assert next(each for each in status["conditions"] if each["type"] == "Accepted")["status"] == "True"
