"""An operator that dies at each point, and an API server that restarts: everything converges."""

import itertools
import threading

import pytest

from hack.controlplane import Cluster, ControlPlane
from hack.harness.proxy import Proxy
from tests.operator.conftest import Operator
from tests.operator.faults.convergence import another_share, assert_converged, change, settle
from tests.operator.kube import eventually
from tests.operator.world import World, conditions

pytestmark = pytest.mark.controlplane


class Killing:
    """Kills the operator after the given number of writes, unless it is done before that."""

    def __init__(self, operator: Operator, *, after: int) -> None:
        self._operator = operator
        self._after = after
        self._turn = threading.Lock()
        self._is_over = False
        self.is_done = False

    async def __call__(self, number: int) -> None:
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
        entries = {"acme": another_share(), f"zone-{killed_at}": 1}
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
    try:
        eventually(lambda: applied[0] > 10)
        control_plane.restart_apiserver()
        reached = applied[0]
        eventually(lambda: applied[0] > reached + 10)
    finally:
        stopping.set()
        loading.join()
    entries = change(world)

    assert_converged(world, proxy, entries)
    config = world.config()
    assert config is not None
    assert config.zones[0].priority == world.zone("acme")["spec"]["priority"]
