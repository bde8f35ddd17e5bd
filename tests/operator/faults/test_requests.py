"""Requests that fail in every way: everything converges, and nothing is written at rest."""

import asyncio
import time

import pytest

from hack.harness.proxy import BROKEN, HUNG, LOST, TOO_MANY, Faults, Proxy, Refusal
from tests.operator.conftest import Operator
from tests.operator.faults.convergence import assert_converged, change, settle
from tests.operator.kube import eventually
from tests.operator.world import World, conditions

pytestmark = pytest.mark.controlplane


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(writes=Refusal(409), times=2), id="writes conflict"),
        pytest.param(Faults(writes=Refusal(422)), id="writes are refused as invalid"),
        pytest.param(Faults(writes=TOO_MANY, reads=TOO_MANY, watches=TOO_MANY), id="too many requests"),
        pytest.param(Faults(writes=Refusal(500), reads=Refusal(500), times=2), id="errors of the server"),
        pytest.param(Faults(writes=Refusal(503), reads=Refusal(503), watches=Refusal(503)), id="no service"),
        pytest.param(Faults(writes=BROKEN, reads=BROKEN, watches=BROKEN, times=2), id="connections break"),
        pytest.param(Faults(writes=LOST, times=2), id="answers get lost"),
    ],
)
def test_requests_fail(world: World, proxy: Proxy, faults: Faults):
    settle(world)

    proxy.faults = faults
    proxy.break_watches()
    entries = change(world)

    assert_converged(world, proxy, entries)


@pytest.mark.parametrize("only", ["/configmaps/", "/status"])
def test_requests_hang(world: World, proxy: Proxy, only: str):
    settle(world)

    proxy.faults = Faults(writes=HUNG, only=only)
    entries = change(world)

    assert_converged(world, proxy, entries)


def test_it_ends_in_time_although_nothing_answers(world: World, proxy: Proxy, operator: Operator):
    settle(world)

    before = proxy.writes
    proxy.faults = Faults(writes=HUNG, reads=HUNG, times=100)
    entries = change(world)
    eventually(lambda: proxy.writes > before)
    proxy.faults = Faults(writes=HUNG, reads=HUNG, watches=HUNG, times=100)
    proxy.break_watches()
    assert operator.stop() == 0

    proxy.heal()
    operator.start()
    assert_converged(world, proxy, entries)


def test_a_change_does_not_wait_for_the_statuses_of_all_others(world: World, proxy: Proxy):
    names = [f"zone-{number:02}" for number in range(40)]
    world.add_pool()
    world.add_engine()
    for name in names:
        world.add_zone(name)
    world.await_ready(*names)
    updated_when_it_was_written: list[int] = []

    def is_updated(name: str) -> bool:
        accepted = conditions(world.zone(name)).get("Accepted", {})
        return bool(accepted.get("observedGeneration") == 2)

    def passed_on(lines: list[bytes]) -> list[bytes]:
        if any(b'"priority":7' in line for line in lines):
            is_passed_on.set()
        return lines

    async def look(number: int) -> None:
        if number == began + 5:
            world.change_zone(names[-1], priority=7)
        elif number > began + 5:
            # However long the API server takes to report the change: nothing else is done before.
            await asyncio.wait_for(is_passed_on.wait(), timeout=60)
            time.sleep(0.06)  # noqa: ASYNC251 - nothing is passed on meanwhile, so that the operator has time for more
            config = world.config()
            assert config is not None
            if not updated_when_it_was_written and config.zones[-1].priority == 7:
                updated_when_it_was_written.append(sum(map(is_updated, names[:-1])))

    # All at once for the operator, which is not notified of any before the last.
    proxy.faults = Faults(stream=lambda lines: [])
    for name in names[:-1]:
        world.change_zone(name, weight=2)
    began, is_passed_on = proxy.writes, asyncio.Event()
    proxy.heal()
    proxy.faults = Faults(stream=passed_on)
    proxy.after_write = look
    proxy.break_watches()

    world.await_ready(*names)
    proxy.heal()
    assert updated_when_it_was_written, "it was written after everything else"
    assert updated_when_it_was_written[0] < len(names) - 1


def test_a_config_that_can_not_be_written_is_said_so(world: World, proxy: Proxy, operator: Operator):
    settle(world)
    metrics = operator.scrape()

    proxy.faults = Faults(writes=Refusal(403), only="/configmaps/", times=1000)
    entries = change(world)

    message = world.await_condition("acme", "Programmed", "False", "ConfigNotWritten")["message"]
    assert "403 made up by a test" in message
    world.await_condition("new", "Accepted", "True")
    failed = {"name": "tenantzone_operator_reconciles_total", "result": "failed"}
    refused = {
        "name": "tenantzone_operator_api_requests_total",
        **{"verb": "patch", "resource": "configmaps", "code": "403"},
    }
    for labels in (failed, refused):
        # The status is written before the failure is counted.
        before = metrics.value(**labels) or 0
        eventually(lambda labels=labels, before=before: (operator.scrape().value(**labels) or 0) > before)
    proxy.heal()
    assert_converged(world, proxy, entries)


def test_a_status_that_is_refused_for_good_is_one_zones_trouble(world: World, proxy: Proxy, operator: Operator):
    settle(world)
    failed = {"name": "tenantzone_operator_reconciles_total", "result": "failed"}
    before = operator.scrape().value(**failed) or 0

    proxy.faults = Faults(writes=Refusal(422), only="/tenantzones/acme/status", times=1000)
    world.change_zone("acme", reserved="11%")
    for reserved in (4, 5, 6):
        world.change_zone("old", reserved=reserved)
        world.await_ready("old")
    assert world.entries() == {"acme": "11%", "old": 6}
    assert (operator.scrape().value(**failed) or 0) == before, "no caller waits for it"
    proxy.heal()
    assert_converged(world, proxy, {"acme": "11%", "old": 6})


def test_pods_that_can_not_be_listed_are_one_pools_trouble_and_no_engine_less(
    world: World, proxy: Proxy, operator: Operator
):
    settle(world)
    failed = {"name": "tenantzone_operator_reconciles_total", "result": "failed"}
    assert operator.stop() == 0
    proxy.faults = Faults(reads=Refusal(403), only=f"/namespaces/{world.namespace}/pods", times=1000)
    operator.start()
    operator.await_running()
    eventually(lambda: (operator.scrape().value(**failed) or 0) > 2)
    assert (
        f"{world.namespace}/demo: PodsForbiddenError: the pool's pods can't be listed: 403 made up by a test"
        in operator.log
    )
    assert operator.is_ready(), "other pools are served"
    assert operator.is_leading()
    assert conditions(world.zone("acme"))["Ready"]["status"] == "True", "engines that could not be listed are not gone"
    assert world.entries() == {"acme": "10%", "old": 3}
    proxy.heal()
    assert_converged(world, proxy, change(world))


def test_a_selector_that_is_changed_while_nothing_answers_takes_no_engine_away(world: World, proxy: Proxy):
    settle(world)
    seen: set[str] = set()
    proxy.faults = Faults(reads=Refusal(500), only=f"/namespaces/{world.namespace}/pods", times=5)
    expressions = [{"key": "pool", "operator": "In", "values": ["demo"]}]
    world.kube.merge(world.pool_path, {"spec": {"selector": {"matchLabels": None, "matchExpressions": expressions}}})

    def look() -> bool:
        status = world.pool()["status"]
        seen.update(condition["reason"] for condition in status["conditions"])
        return bool(status["observedGeneration"] == 2)

    eventually(look)
    assert "NoEngines" not in seen
    proxy.heal()
    assert_converged(world, proxy, change(world))
