"""One pool's pods are known correctly, whatever happens to the watch."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from hack.harness.proxy import BROKEN, Faults, Proxy, Refusal, error_event
from tenantzone_operator.kube import informer, pod_watch
from tenantzone_operator.kube.pod_watch import PodsUnknownError
from tests.operator.bad_watches import bad_watches
from tests.operator.watched_pods import OURS, THEIRS, Pods, pool

pytestmark = pytest.mark.controlplane


@bad_watches
async def test_watches_are_bad(pods: Pods, proxy: Proxy, faults: Callable[[], Faults]):
    pods.add("away", "back", "gone", "ready")
    await pods.watch.follow(pool(**OURS))

    proxy.faults = faults()
    proxy.break_watches()
    pods.label("away", THEIRS)
    pods.label("back", THEIRS)
    pods.label("back", OURS)
    pods.delete("gone")
    pods.add("new")
    for number in range(5):
        pods.set_ready("ready", f"10.0.0.{number}")
    # A late event arrives with the next one.
    pods.add("last")
    expected = {"back": "", "last": "", "new": "", "ready": "10.0.0.4"}
    await pods.until(lambda: expected.items() <= pods.known.items())
    proxy.heal()
    proxy.break_watches()

    await pods.until(lambda: pods.known == expected)


@pytest.mark.parametrize("code", [410, 500])
async def test_a_watch_ends_with_an_error(pods: Pods, proxy: Proxy, code: int):
    await pods.watch.follow(pool(**OURS))
    proxy.send_into_watches(error_event(code))
    pods.add("engine-0")
    await pods.until_known({"engine-0"})


async def test_events_of_the_past_change_nothing(pods: Pods, proxy: Proxy):
    pods.add("engine-0", "engine-1")
    await pods.watch.follow(pool(**OURS))
    old = [json.dumps({"type": "MODIFIED", "object": pods.body(name)}).encode() for name in ("engine-0", "engine-1")]
    pods.set_ready("engine-0", "10.0.0.1")
    pods.label("engine-1", THEIRS)
    await pods.until(lambda: pods.known == {"engine-0": "10.0.0.1"})
    changes = pods.changes

    proxy.send_into_watches(*(line + b"\n" for line in old))
    pods.add("last")

    await pods.until(lambda: pods.known == {"engine-0": "10.0.0.1", "last": ""})
    assert pods.changes == changes + 1


async def test_a_watch_that_says_nothing_is_put_right(pods: Pods, proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(informer, "WATCH_SECONDS", (1, 1))
    pods.add("gone")
    await pods.watch.follow(pool(**OURS))
    proxy.faults = Faults(stream=lambda _: [])
    proxy.break_watches()
    pods.delete("gone")
    pods.add("new")
    await pods.until_known({"new"})


async def test_pods_that_can_not_be_listed_are_said_to_be_unknown_and_not_to_be_none(pods: Pods, proxy: Proxy):
    pods.add("engine-0")
    proxy.faults = Faults(reads=Refusal(403), only="/pods", times=1000)
    for _ in range(2):
        with pytest.raises(PodsUnknownError, match="403 made up by a test"):
            await pods.watch.follow(pool(**OURS))
    assert not pods.watch.knows_pods_of(pool(**OURS))
    proxy.heal()
    await pods.until(lambda: pods.watch.knows_pods_of(pool(**OURS)))
    await pods.watch.follow(pool(**OURS))
    assert pods.known.keys() == {"engine-0"}
    assert pods.changes == 1


async def test_pods_that_were_listed_long_ago_are_said_to_be(pods: Pods, proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pod_watch, "STALE_SECONDS", 3.0)
    monkeypatch.setattr(informer, "WATCH_SECONDS", (1, 1))
    pods.add("engine-0")
    await pods.watch.follow(pool(**OURS))
    pods.watch.check_age()
    assert not pods.watch.is_stale

    proxy.faults = Faults(reads=Refusal(500), only="/pods", times=1000)
    await pods.until(lambda: pods.watch.is_stale)
    with pytest.raises(PodsUnknownError, match="500 made up by a test"):
        pods.watch.check_age()
    assert pods.known.keys() == {"engine-0"}, "they are what is known"
    proxy.heal()
    await pods.until(lambda: not pods.watch.is_stale)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(watches=Refusal(410), times=1000), id="refused"),
        pytest.param(Faults(watches=BROKEN, times=1000), id="broken"),
        pytest.param(Faults(stream=lambda _: [b"no JSON\n"]), id="no JSON"),
        pytest.param(Faults(stream=lambda _: [error_event(410)]), id="ended"),
    ],
)
async def test_a_watch_that_never_works_costs_few_listings(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, proxy: Proxy, faults: Faults
):
    listings, list_pods = [], pods.api.list_pods

    def counted(*args: Any) -> Any:
        listings.append(args)
        return list_pods(*args)

    monkeypatch.setattr(pods.api, "list_pods", counted)
    proxy.faults = faults
    began = time.monotonic()
    await pods.watch.follow(pool(**OURS))
    for number in range(20):
        # Each of them is an event, if there is a watch.
        pods.add(f"engine-{number}")
        await asyncio.sleep(0.1)
    await pods.until(lambda: len(pods.known) == 20)
    # After 0.1, 0.2, 0.4 seconds and so on; in the end after 5.
    assert len(listings) <= 8 + (time.monotonic() - began) / informer.LAST_PAUSE_SECONDS
