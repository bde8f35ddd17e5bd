"""An upgrade by one release and back: nothing is lost on the way, and nothing is written at rest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane import Cluster, ControlPlane
from tests.operator.audit import AuditLog
from tests.operator.conftest import SERVICE_ACCOUNT, Operator
from tests.operator.kube import Kube, eventually
from tests.operator.lease import NAME, NAMESPACE
from tests.operator.previous import NAME as PREVIOUS
from tests.operator.previous import is_known, unpack_previous
from tests.operator.replicas import SHORT
from tests.operator.world import World, conditions, world_in

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.skipif(not is_known(), reason="no history of the previous release here: git fetch --unshallow"),
]


ELECTION = ("--leader-elect-namespace", NAMESPACE, *SHORT)


class PreviousOperator(Operator):
    def __init__(self, kubeconfig: Path, log: Path, python_path: str) -> None:
        super().__init__(kubeconfig, log, *ELECTION)
        self._python_path = python_path

    def start(self, **environment: str) -> None:
        super().start(PYTHONPATH=self._python_path, **environment)


class Releases:
    def __init__(self, plane: ControlPlane, kubeconfig: Path, folder: Path) -> None:
        python_path = unpack_previous(folder / "previous")
        self.previous = PreviousOperator(kubeconfig, folder / "previous.log", python_path)
        self.present = Operator(kubeconfig, folder / "present.log", *ELECTION)
        self._audit_log = plane.audit_log

    def await_rest(self, world: World) -> None:
        """Waits until nothing is written any more, while engines are polled again and again."""

        def nothing_is_written() -> bool:
            audit = AuditLog(self._audit_log)
            world.await_polls(6)
            return audit.writes(SERVICE_ACCOUNT) == []

        eventually(nothing_is_written)


@pytest.fixture(params=[pytest.param(None, id=PREVIOUS)])
def releases(control_plane: Cluster, operator_kubeconfig: Path, tmp_path: Path) -> Iterator[Releases]:
    assert isinstance(control_plane, ControlPlane), "a cluster that was named has no audit log for us"
    control_plane.kubectl("delete", "lease", NAME, "--namespace", NAMESPACE, "--ignore-not-found")
    made = Releases(control_plane, operator_kubeconfig, tmp_path)
    yield made
    for operator in (made.previous, made.present):
        if operator.is_running:
            operator.kill()
        assert "Traceback" not in operator.log, operator.log


@pytest.fixture
def world(control_plane: Cluster, kube: Kube, namespace: str) -> Iterator[World]:
    with world_in(control_plane, kube, namespace) as made:
        made.add_pool()
        made.add_engine()
        made.add_zone("acme", reserved="40%")
        made.add_zone("burst", limit="60%")
        yield made


def await_settled(world: World) -> None:
    """Each zone, and the pool, has a status for its current generation."""
    world.await_ready("acme", "burst")
    world.await_condition("greedy", "Accepted", "False", "PoolOvercommitted")
    eventually(lambda: conditions(world.pool())["Ready"]["status"] == "True")
    generation = eventually(world.config).generation
    eventually(lambda: world.pool()["status"]["configGeneration"] == generation)


def test_up_and_down_and_up_again_one_release(releases: Releases, world: World):
    previous, present = releases.previous, releases.present
    previous.start()
    world.await_ready("acme", "burst")
    world.add_zone("greedy", reserved="80%")
    await_settled(world)
    assert previous.stop() == 0
    before = eventually(world.config)

    for operator, percent in ((present, 41), (previous, 42), (present, 43)):
        operator.start()
        operator.await_running()
        operator.await_leading()
        await_settled(world)
        assert eventually(world.config).zones == before.zones
        releases.await_rest(world)

        world.change_zone("acme", reserved=f"{percent}%")
        await_settled(world)
        releases.await_rest(world)
        before = eventually(world.config)
        assert {zone.name: zone.reserved for zone in before.zones} == {"acme": f"{percent}%", "burst": 0}
        assert operator.stop() == 0
