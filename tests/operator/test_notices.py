"""The notices for people, and their frequency."""

import asyncio
from typing import Any

import pytest

from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.status.notices import Notable, Notice, Reclaims, pool_notices, zone_notices
from tenantzone_operator.writing import events
from tenantzone_operator.writing.events import Recorder
from tests.operator.objects import observed, silent, snapshot, zone

NOTICE = Notice(Notable.OVERCOMMITTED, "Refuse", "Warning", "too much")
ACME = snapshot(1, zone("acme"), zone("burst"))


def status(kind: str, reason: str, message: str = "why", generation: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "observedGeneration": generation,
        "conditions": [{"type": kind, "reason": reason, "message": message}],
        **more,
    }


def reasons(notices: list[Notice]) -> list[str]:
    return [notice.reason.value for notice in notices]


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        pytest.param({}, status("Accepted", "PoolOvercommitted"), ["Overcommitted"], id="a new zone does not fit"),
        pytest.param(
            status("Accepted", "PoolOvercommitted", "50 too few"),
            status("Accepted", "PoolOvercommitted", "40 too few"),
            [],
            id="it still does not",
        ),
        pytest.param(
            status("Accepted", "PoolOvercommitted"),
            status("Accepted", "PoolOvercommitted", generation=2),
            ["Overcommitted"],
            id="nor does its next generation",
        ),
        pytest.param({}, status("Accepted", "ConfigTooLarge"), ["ConfigTooLarge"], id="the config has no room for it"),
        *(
            pytest.param({}, status("Accepted", reason), [reason], id=f"it is refused: {reason}")
            for reason in ("Invalid", "TenantConflict", "PoolNotFound", "PoolInvalid")
        ),
        pytest.param(
            status("Accepted", "PoolNotFound"),
            status("Accepted", "PoolInvalid"),
            ["PoolInvalid"],
            id="it is refused for another reason",
        ),
        pytest.param(status("Accepted", "Accepted"), status("Accepted", "Deleting"), [], id="it is being deleted"),
        pytest.param(status("Accepted", "PoolOvercommitted"), status("Accepted", "Accepted"), [], id="now it fits"),
        pytest.param(
            {"state": "Idle", "evictions": 3},
            {"state": "Evicted", "evictions": 9},
            ["ZoneEvicted"],
            id="all is evicted",
        ),
        pytest.param(
            {"state": "Active", "evictions": 3}, {"state": "Evicted", "evictions": 3}, [], id="it never cached anything"
        ),
        pytest.param({}, {"state": "Evicted", "evictions": 3}, [], id="it was so before anybody looked"),
    ],
)
def test_about_a_zone(before: dict[str, Any], after: dict[str, Any], reported: list[str]):
    assert reasons(zone_notices(before, after)) == reported


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        pytest.param({}, status("Programmed", "ConfigRejected"), ["ConfigRejected"], id="an engine refuses"),
        pytest.param({}, status("Programmed", "ConfigUntrusted"), ["ConfigUntrusted"], id="a signature does not hold"),
        pytest.param(
            status("Programmed", "ConfigRejected"),
            status("Programmed", "ConfigRejected", generation=2),
            [],
            id="it says the same again",
        ),
        pytest.param(
            status("Programmed", "ConfigRejected", "a"),
            status("Programmed", "ConfigRejected", "b"),
            ["ConfigRejected"],
            id="it says something else",
        ),
        pytest.param(
            status("Programmed", "ConfigRejected"), status("Programmed", "Acknowledged"), [], id="all is well"
        ),
    ],
)
def test_about_a_pool(before: dict[str, Any], after: dict[str, Any], reported: list[str]):
    assert reasons(pool_notices(before, after)) == reported


def test_reclaimed_blocks_are_reported_once():
    reclaims = Reclaims()

    def look(**acme: int) -> list[str]:
        return list(reclaims.look([observed(ACME, acme={"evictions": acme})]))

    assert look(reclaim=5) == [], "who has just come does not know what is new"
    assert look(reclaim=5, own=9) == []
    assert look(reclaim=5, due=1) == ["acme"]
    assert reclaims.look([silent()]) == {}
    assert look(reclaim=5, due=1) == [], "silence is no news"
    assert look() == [], "the engine was started again"
    assert look(reclaim=1) == ["acme"]


class Written:
    """Keeps what it is to write. Fails first, as often as asked."""

    def __init__(self, *failures: Exception) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self._failures = list(failures)

    async def create_event(self, namespace: str, event: dict[str, Any]) -> None:
        if self._failures:
            raise self._failures.pop()
        self.created.append(event)

    async def patch_event(self, namespace: str, name: str, change: dict[str, Any]) -> None:
        self.patched.append((name, change["series"]))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WRITES_PER_SECOND", 10_000.0)
    monkeypatch.setattr(events, "FIRST_RETRY_SECONDS", 0.0)


async def drain(recorder: Recorder) -> None:
    running = asyncio.create_task(recorder.run())
    await recorder.until_quiet()
    running.cancel()


async def test_what_is_said_again_is_counted():
    written, clock = Written(), Clock()
    recorder = Recorder(written, clock)
    meta = zone("acme").meta

    for _ in range(5):
        recorder.record("TenantZone", meta, NOTICE)
        await drain(recorder)

    (event,) = written.created
    assert event["regarding"]["name"] == "acme"
    assert (event["reason"], event["type"], event["note"]) == ("Overcommitted", "Warning", "too much")
    assert [(name, series["count"]) for name, series in written.patched] == [(event["metadata"]["name"], 2)]

    clock.now += events.SERIES_ENDS_SECONDS
    recorder.refresh()
    await drain(recorder)
    assert [series["count"] for _, series in written.patched] == [2, 5], "in the end the count is right"
    recorder.record("TenantZone", meta, NOTICE)
    await drain(recorder)
    assert len(written.created) == 2, "much later it is news again"


async def test_one_object_has_no_flood_of_events():
    written, clock = Written(), Clock()
    recorder = Recorder(written, clock)
    chatty, quiet = zone("chatty").meta, zone("quiet").meta

    for number in range(events.BURST + 10):
        recorder.record("TenantZone", chatty, Notice(Notable.OVERCOMMITTED, "Refuse", "Warning", f"{number}"))
    recorder.record("TenantZone", quiet, NOTICE)
    await drain(recorder)

    said = [event["regarding"]["name"] for event in written.created]
    assert said.count("chatty") == events.BURST
    assert said.count("quiet") == 1
    clock.now += events.REFILL_SECONDS
    recorder.record("TenantZone", chatty, Notice(Notable.OVERCOMMITTED, "Refuse", "Warning", "later"))
    await drain(recorder)
    assert written.created[-1]["note"] == "later"


@pytest.mark.parametrize(
    ("failure", "is_written"),
    [
        pytest.param(RestError(503, "later"), True, id="a server in trouble is asked again"),
        pytest.param(TimeoutError(), True, id="so is one that does not answer"),
        pytest.param(RestError(403, "no"), False, id="one that refuses is not"),
    ],
)
async def test_events_that_can_not_be_written(failure: Exception, is_written: bool):
    written = Written(failure)
    recorder = Recorder(written)

    recorder.record("TenantZone", zone("acme").meta, NOTICE)
    await drain(recorder)

    assert bool(written.created) is is_written


async def test_a_note_is_cut_where_the_api_server_would_refuse_it():
    written = Written()
    recorder = Recorder(written)

    recorder.record("TenantZone", zone("acme").meta, Notice(Notable.CONFIG_REJECTED, "Program", "Warning", "ä" * 1000))
    await drain(recorder)

    assert written.created[0]["note"] == "ä" * 512
