"""A network and an API server that fail in every way: afterwards all is as it should be, and nothing is written."""

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.controlplane import Cluster, ControlPlane
from hack.harness.lies import LIES
from hack.harness.proxy import BROKEN, HUNG, LOST, Faults, Proxy, Refusal, error_event, proxied_for_operator
from tests.operator.bad_watches import Cut, Late, bad_watches, repeated
from tests.operator.conftest import Operator
from tests.operator.kube import eventually
from tests.operator.world import World, conditions

pytestmark = pytest.mark.controlplane

_numbers = itertools.count(11)


@pytest.fixture(scope="module")
def proxy(operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied_for_operator(operator_kubeconfig, tmp_path_factory.mktemp("proxy")) as made:
        yield made


@pytest.fixture(scope="module")
def operator(proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Takes the proxy for the API server."""
    running = Operator(proxy.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log")
    running.start()
    running.await_running()
    yield running
    assert running.stop() == 0
    # kopf shows where its watches broke; nothing of ours may.
    assert "tenantzone_operator. [ERROR" not in running.log, running.log


@pytest.fixture(autouse=True)
def healed(proxy: Proxy) -> Iterator[None]:
    proxy.heal()
    yield
    proxy.heal()


def settle(world: World) -> dict[str, int | str]:
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    world.add_zone("old", reserved=3)
    world.add_engine()
    world.await_ready("acme", "old")
    return {"acme": "10%", "old": 3}


def change(world: World) -> dict[str, int | str]:
    """One of each: a changed zone, a new one, one less. Returns what the config should have."""
    reserved = f"{next(_numbers)}%"
    world.change_zone("acme", reserved=reserved)
    world.add_zone("new", reserved=5)
    world.delete_zone("old")
    return {"acme": reserved, "new": 5}


def assert_converged(world: World, proxy: Proxy, entries: dict[str, int | str]) -> None:
    eventually(lambda: world.entries() == entries)
    world.await_ready(*entries)
    config = world.config()
    assert config is not None

    def pool_knows() -> bool:
        pool = world.pool()
        return (
            pool["status"]["configGeneration"] == config.generation
            and pool["status"]["zonesAccepted"] == len(entries)
            and conditions(pool)["Ready"]["status"] == "True"
        )

    eventually(pool_knows)
    for engine in world.engines:
        assert {zone.name for zone in engine.report().zones} == set(entries)
    world.await_polls(1)
    before = proxy.writes
    world.await_polls(2)
    assert proxy.writes == before, "it writes although nothing happens"


_TOO_MANY = Refusal(429, (("Retry-After", "1"),))


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(writes=Refusal(409), times=2), id="writes conflict"),
        pytest.param(Faults(writes=Refusal(422)), id="writes are refused as invalid"),
        pytest.param(Faults(writes=_TOO_MANY, reads=_TOO_MANY, watches=_TOO_MANY), id="too many requests"),
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
    told_when_it_was_written: list[int] = []

    def is_told(name: str) -> bool:
        accepted = conditions(world.zone(name)).get("Accepted", {})
        return bool(accepted.get("observedGeneration") == 2)

    def look(number: int) -> None:
        time.sleep(0.06)
        if number == began + 5:
            world.change_zone(names[-1], priority=7)
        elif number > began + 5 and not told_when_it_was_written:
            config = world.config()
            assert config is not None
            if config.zones[-1].priority == 7:
                told_when_it_was_written.append(sum(map(is_told, names[:-1])))

    # All at once for the operator, which is not told of any before the last.
    proxy.faults = Faults(stream=lambda lines: [])
    for name in names[:-1]:
        world.change_zone(name, weight=2)
    began = proxy.writes
    proxy.heal()
    proxy.after_write = look
    proxy.break_watches()

    world.await_ready(*names)
    assert told_when_it_was_written, "it was written after everything else"
    assert told_when_it_was_written[0] < len(names) - 1


def test_a_config_that_can_not_be_written_is_said_so(world: World, proxy: Proxy, operator: Operator):
    settle(world)
    metrics = operator.scrape()

    proxy.faults = Faults(writes=Refusal(403), only="/configmaps/", times=1000)
    entries = change(world)

    message = world.await_condition("acme", "Programmed", "False", "ConfigNotWritten")["message"]
    assert "403 made up by a test" in message
    world.await_condition("new", "Accepted", "True")
    failed = {"tenantzone_operator_reconciles_total": {"result": "failed"}}
    refused = {"tenantzone_operator_api_requests_total": {"verb": "patch", "resource": "configmaps", "code": "403"}}
    for name, labels in (failed | refused).items():
        assert (operator.scrape().value(name, **labels) or 0) > (metrics.value(name, **labels) or 0)
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
    assert (operator.scrape().value(**failed) or 0) == before, "nobody waits for it"
    proxy.heal()
    assert_converged(world, proxy, {"acme": "11%", "old": 6})


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


def test_events_of_the_past_change_nothing(world: World, proxy: Proxy):
    settle(world)
    old = json.dumps({"type": "MODIFIED", "object": world.zone("old")}).encode() + b"\n"
    before = json.dumps({"type": "MODIFIED", "object": world.zone("acme")}).encode() + b"\n"
    entries = change(world)
    assert_converged(world, proxy, entries)

    proxy.send_into_watches(old, before)

    assert_converged(world, proxy, entries)


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
    assert f"{world.namespace}/demo: PodsUnknownError: its pods can't be listed: 403 made up by a test" in operator.log
    assert operator.is_ready(), "other pools are served"
    assert operator.is_leading()
    assert conditions(world.zone("acme"))["Ready"]["status"] == "True", (
        "engines that nobody could look for are not gone"
    )
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


class Killing:
    """Kills the operator after one given write, unless it is over before that."""

    def __init__(self, operator: Operator, *, after: int) -> None:
        self._operator = operator
        self._after = after
        self._turn = threading.Lock()
        self._is_over = False
        self.is_done = False

    def __call__(self, number: int) -> None:
        with self._turn:
            if number == self._after and not self._is_over:
                self._operator.kill()
                self.is_done = True

    def is_done_by_now(self) -> bool:
        """Whether it was killed; from now on it is not."""
        with self._turn:
            self._is_over = True
            return self.is_done


def test_killed_after_each_single_write(world: World, proxy: Proxy, operator: Operator):
    """Before it learns that the write took effect. In each round it gets one write further."""
    entries = settle(world)
    for killed_at in itertools.count(1):
        before = world.config()
        assert before is not None
        killing = Killing(operator, after=proxy.writes + killed_at)
        proxy.after_write = killing
        entries = {"acme": f"{next(_numbers)}%", f"zone-{killed_at}": 1}
        world.change_zone("acme", reserved=entries["acme"])
        world.add_zone(f"zone-{killed_at}", reserved=1)
        world.delete_zone("old" if killed_at == 1 else f"zone-{killed_at - 1}")
        eventually(lambda: killing.is_done or is_done(world, entries))  # noqa: B023
        if not killing.is_done_by_now():
            break
        operator.start()
        eventually(lambda: is_done(world, entries))  # noqa: B023
        after = world.config()
        assert after is not None
        assert after.generation > before.generation
    assert killed_at > 4, "it was not killed as often as it writes"
    assert_converged(world, proxy, entries)


def is_done(world: World, entries: dict[str, int | str]) -> bool:
    found = [world.zone(name) for name in entries]
    return world.entries() == entries and all(
        conditions(zone)["Ready"]["status"] == "True"
        and zone["status"]["observedGeneration"] == zone["metadata"]["generation"]
        for zone in found
    )


BAD_NETWORKS: list[Callable[[], Faults]] = [
    Faults,
    lambda: Faults(writes=Refusal(409), times=2),
    lambda: Faults(writes=_TOO_MANY, reads=_TOO_MANY, watches=_TOO_MANY),
    lambda: Faults(writes=Refusal(503), reads=Refusal(500), watches=Refusal(503), times=2),
    lambda: Faults(writes=BROKEN, reads=BROKEN, watches=BROKEN),
    lambda: Faults(writes=LOST, times=2, drop_every=2),
    lambda: Faults(drop_every=1, stream=Cut()),
    lambda: Faults(stream=Late()),
    lambda: Faults(stream=repeated),
]


@pytest.mark.parametrize("seed", range(2))
def test_engines_begin_and_cease_to_lie_while_the_network_is_bad(
    world: World, proxy: Proxy, operator: Operator, seed: int
):
    chance = random.Random(seed)
    entries = settle(world)
    liars = [world.add_engine(name) for name in ("engine-1", "engine-2")]
    world.await_ready(*entries)

    for _ in range(5):
        proxy.heal()
        proxy.faults = chance.choice(BAD_NETWORKS)()
        for liar in liars:
            liar.lie = chance.choice([None, *LIES.values()])
        if chance.random() < 0.5:
            proxy.break_watches()
        if chance.random() < 0.2:
            operator.kill()
            operator.start()
        entries.update(acme=f"{next(_numbers)}%", old=chance.randint(1, 9))
        for name, reserved in entries.items():
            world.change_zone(name, reserved=reserved)
        eventually(lambda: world.entries() == entries)
    proxy.heal()
    proxy.break_watches()
    for liar in liars:
        liar.lie = None

    assert_converged(world, proxy, entries)


def test_the_api_server_restarts_under_load(world: World, proxy: Proxy, control_plane: Cluster):
    assert isinstance(control_plane, ControlPlane), "a cluster that was named is not ours to restart"
    settle(world)
    applied, stopping = [0], threading.Event()

    def load() -> None:
        while not stopping.is_set():
            try:
                world.change_zone("acme", priority=applied[0] + 1)
            except OSError:
                continue
            applied[0] += 1

    loading = threading.Thread(target=load)
    loading.start()
    eventually(lambda: applied[0] > 10)
    control_plane.restart_apiserver()
    reached = applied[0]
    eventually(lambda: applied[0] > reached + 10)
    stopping.set()
    loading.join()
    entries = change(world)

    assert_converged(world, proxy, entries)
    config = world.config()
    assert config is not None
    assert config.zones[0].priority == world.zone("acme")["spec"]["priority"]
