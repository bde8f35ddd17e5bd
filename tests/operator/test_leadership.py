"""Several replicas on a real API server: one leads, and whatever happens to it, another continues its work."""

import itertools
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.controlplane import Cluster, ControlPlane
from tests.operator.audit import Request
from tests.operator.gateway import gateway_to
from tests.operator.kube import Kube, eventually
from tests.operator.lease import LEASE_PATH
from tests.operator.replicas import SHORT, Replica, Replicas, replicas_of
from tests.operator.world import World, conditions, world_in

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def plane(control_plane: Cluster, operator_kubeconfig: Path) -> ControlPlane:
    """A control plane with the shipped roles."""
    assert isinstance(control_plane, ControlPlane), "a cluster that was named has no audit log for us"
    return control_plane


@pytest.fixture(scope="module")
def shared_replicas(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicas_of(plane, tmp_path_factory.mktemp("replicas")) as made:
        yield made


@pytest.fixture
def replicas(shared_replicas: Replicas) -> Replicas:
    shared_replicas.begin()
    return shared_replicas


@pytest.fixture
def world(plane: ControlPlane, kube: Kube, namespace: str) -> Iterator[World]:
    """A pool with a zone and an engine."""
    with world_in(plane, kube, namespace) as made:
        made.add_pool()
        made.add_zone("acme", reserved="10%")
        made.add_engine()
        yield made


@contextmanager
def load_on(world: World) -> Iterator[None]:
    """Keeps changing the zone."""
    is_over = threading.Event()

    def change() -> None:
        for percent in itertools.cycle(range(10, 50)):
            if is_over.wait(0.1):
                return
            world.change_zone("acme", reserved=f"{percent}%")

    changing = threading.Thread(target=change)
    changing.start()
    try:
        yield
    finally:
        is_over.set()
        changing.join()


def await_changes(world: World, count: int) -> None:
    """Waits until that many further configs were delivered."""
    config = eventually(world.config)
    goal = config.generation + count
    eventually(lambda: eventually(world.config).generation >= goal)


def transitions_of(kube: Kube) -> int:
    """How often the Lease has changed its holder."""
    lease = kube.get(LEASE_PATH)
    assert lease is not None
    return lease["spec"].get("leaseTransitions", 0)


def writes_while_another_led(replicas: Replicas, replica: Replica) -> list[Request]:
    """Writes that the API server accepted from a replica while another held the Lease, in the server's own order."""
    taken = [request for request in replicas.audit.requests() if request.is_write and request.code < 300]
    late: list[Request] = []
    holder = None
    for request in sorted(taken, key=lambda request: request.received):
        if request.resource == "leases":
            holder = request.user
        elif request.user == replica.user and holder not in (None, replica.user):
            late.append(request)
    return late


_KEY = "/api/v1/namespaces/tenantzone-system/secrets/tenantzone-operator-key"


def test_the_operators_key_survives_its_secret_and_the_leader(replicas: Replicas, world: World, kube: Kube):
    leader, standby = replicas.two(*SHORT)
    world.await_ready("acme")
    before = kube.get(_KEY)
    assert before is not None

    def reads_of_the_key() -> list[Request]:
        found = replicas.audit.requests()
        return [each for each in found if (each.user, each.resource, each.code) == (standby.user, "secrets", 200)]

    eventually(reads_of_the_key)
    kube.call("DELETE", _KEY)
    leader.kill()

    eventually(standby.is_leading)
    assert eventually(lambda: kube.get(_KEY))["data"] == before["data"]
    world.change_zone("acme", reserved="30%")
    world.await_ready("acme")


def test_of_two_one_leads_and_only_that_one_writes(replicas: Replicas, world: World):
    leader, standby = replicas.two()

    world.await_ready("acme")
    world.change_zone("acme", reserved="20%")
    world.await_ready("acme")

    assert replicas.audit.writes(leader.user) != []
    assert replicas.audit.writes(standby.user) == []
    assert not standby.is_leading()
    assert standby.is_ready()
    assert standby.health()["secondsSinceReconcile"] is None


def test_a_deleted_lease_is_taken_again_by_the_leader(replicas: Replicas, world: World, kube: Kube):
    leader, standby = replicas.two()

    kube.call("DELETE", LEASE_PATH)

    eventually(lambda: kube.get(LEASE_PATH))
    eventually(leader.is_leading)
    world.await_ready("acme")
    assert not standby.is_leading()
    assert replicas.audit.writes(standby.user) == []


def test_a_lease_to_which_no_transition_can_be_added_is_taken_all_the_same(replicas: Replicas, kube: Kube):
    leader, standby = replicas.two()

    kube.merge(LEASE_PATH, {"spec": {"holderIdentity": "", "leaseTransitions": 2**31 - 1}})

    eventually(lambda: transitions_of(kube) < 2 and (leader.is_leading() or standby.is_leading()))
    # The previous leader may not have noticed yet: later tests ask which one leads.
    replicas.end()


def test_a_leader_that_is_asked_to_end_hands_over_at_once_and_nothing_is_written_twice(
    replicas: Replicas, world: World, kube: Kube
):
    leader, standby = replicas.two()
    world.await_ready("acme")
    # Both statuses are written at once, and a successor would write what the leader had not.
    eventually(lambda: conditions(world.pool())["Ready"]["status"] == "True")
    (engine,) = world.engines
    transitions = transitions_of(kube)

    assert leader.stop() == 0

    # Far less than the 15 seconds for which the Lease would hold.
    eventually(standby.is_leading, timeout=8)
    polls = engine.polls
    eventually(lambda: engine.polls > polls + 5)
    assert replicas.audit.writes(standby.user) == []
    world.change_zone("acme", reserved="20%")
    world.await_ready("acme")
    assert transitions_of(kube) == transitions + 1


def test_a_leader_that_is_killed_is_followed_within_20_seconds(replicas: Replicas, world: World):
    leader, _ = replicas.two()
    world.await_ready("acme")

    leader.kill()
    generation = world.change_zone("acme", reserved="20%")

    eventually(lambda: world.zone("acme")["status"]["observedGeneration"] == generation, timeout=20)
    world.await_ready("acme")
    assert world.entries() == {"acme": "20%"}


def test_a_leader_that_was_stopped_writes_nothing_after_another_took_over(replicas: Replicas, world: World):
    first, second = replicas.two(*SHORT)
    world.await_ready("acme")

    with load_on(world):
        await_changes(world, 3)
        first.send(signal.SIGSTOP)
        eventually(second.is_leading)
        await_changes(world, 3)
        first.send(signal.SIGCONT)
        eventually(lambda: not first.is_leading())
        await_changes(world, 10)

    world.await_ready("acme")
    late = writes_while_another_led(replicas, first)
    # A write whose bytes were on their way to the kernel when the process was stopped is sent when it continues.
    assert len(late) <= 1
    assert "configmaps" not in [write.resource for write in late], "it names the version that it replaces"
    eventually(first.is_ready)


def test_without_an_api_server_no_operator_leads_and_none_ends(replicas: Replicas, world: World, plane: ControlPlane):
    both = replicas.two(*SHORT)
    world.await_ready("acme")

    plane.stop_apiserver()
    try:
        eventually(lambda: not any(replica.is_leading() for replica in both))
        for replica in both:
            assert replica.is_running
            assert replica.health()["secondsSinceReconcile"] is None, "a restart would not help"
    finally:
        plane.start_apiserver()

    world.change_zone("acme", reserved="30%")
    world.await_ready("acme")
    assert world.entries() == {"acme": "30%"}
    for replica in both:
        eventually(replica.is_ready)


def test_the_api_server_restarts_under_load_and_one_of_two_goes_on(
    replicas: Replicas, world: World, plane: ControlPlane
):
    both = replicas.two(*SHORT)
    zones = [f"zone-{number}" for number in range(20)]
    world.await_ready("acme")
    for zone in zones[:10]:
        world.add_zone(zone, reserved="2%")

    plane.restart_apiserver()
    for zone in zones[10:]:
        eventually(lambda zone=zone: world.add_zone(zone, reserved="2%") or True)

    world.await_ready("acme", *zones)
    assert set(world.entries()) == {"acme", *zones}
    eventually(lambda: sum(replica.is_leading() for replica in both) == 1)


def test_another_name_in_the_lease_delays_what_waits_for_a_leader_and_changes_no_config(
    replicas: Replicas, world: World, kube: Kube
):
    leader, standby = replicas.two(*SHORT)
    world.await_ready("acme")
    before = world.config()

    def is_taken_from_both() -> bool:
        # As long as another client keeps writing it, no replica leads.
        kube.merge(LEASE_PATH, {"spec": {"holderIdentity": "stranger"}})
        return not leader.is_leading() and not standby.is_leading()

    eventually(is_taken_from_both)
    assert world.config() == before
    world.change_zone("acme", reserved="20%")
    world.await_ready("acme")
    eventually(lambda: leader.is_leading() or standby.is_leading())


def test_a_leader_that_is_cut_off_stops_and_stands_by_afterwards(replicas: Replicas, world: World, plane: ControlPlane):
    replicas.end()
    with gateway_to(plane.server) as gateway, load_on(world):
        first = replicas.add("first", *SHORT, server=gateway.url)
        first.await_leading()
        second = replicas.add("second", *SHORT)
        second.await_running()
        await_changes(world, 3)

        gateway.cut()
        eventually(lambda: not first.is_leading())
        eventually(second.is_leading)
        gateway.fix()
        await_changes(world, 5)
        eventually(first.is_ready)

        assert not first.is_leading()
        assert writes_while_another_led(replicas, first) == []
        # It could lead again: its state is current.
        second.kill()
        eventually(first.is_leading)
        await_changes(world, 3)
