"""Watches that break, repeat, reorder and delay events: everything converges, and nothing is written at rest."""

import json
from collections.abc import Callable

import pytest

from hack.harness.proxy import Faults, Proxy, Refusal, error_event
from tests.operator.bad_watches import bad_watches
from tests.operator.faults.convergence import assert_converged, change, settle
from tests.operator.kube import eventually
from tests.operator.world import World

pytestmark = pytest.mark.controlplane


@bad_watches
def test_watches_are_bad(world: World, proxy: Proxy, faults: Callable[[], Faults]):
    settle(world)

    proxy.faults = faults()
    proxy.break_watches()
    for number in range(3):
        world.change_zone("acme", priority=number)
    entries = change(world)
    eventually(lambda: world.entries() == entries)
    proxy.heal()
    proxy.break_watches()

    assert_converged(world, proxy, entries)


@pytest.mark.parametrize("code", [410, 500])
def test_a_watch_ends_with_an_error(world: World, proxy: Proxy, code: int):
    settle(world)

    proxy.send_into_watches(error_event(code))
    entries = change(world)

    assert_converged(world, proxy, entries)


def test_a_watch_is_refused_for_a_moment_with_the_only_credentials_that_there_are(world: World, proxy: Proxy):
    settle(world)

    proxy.faults = Faults(watches=Refusal(401))
    proxy.break_watches()
    entries = change(world)

    assert_converged(world, proxy, entries)


def test_events_of_the_past_change_nothing(world: World, proxy: Proxy):
    settle(world)
    old = json.dumps({"type": "MODIFIED", "object": world.zone("old")}).encode() + b"\n"
    before = json.dumps({"type": "MODIFIED", "object": world.zone("acme")}).encode() + b"\n"
    entries = change(world)
    assert_converged(world, proxy, entries)

    proxy.send_into_watches(old, before)

    assert_converged(world, proxy, entries)
