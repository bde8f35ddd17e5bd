"""``kubectl tz purge``: from the command to every engine of the pool and back, through a real API server."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Clinic, Plugin, Start
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.world import World, conditions, world_in

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def world(clinic: Clinic, clinic_kube: Kube) -> Iterator[World]:
    clinic.install_crds()
    clinic.create_namespace("archive")
    with world_in(clinic, clinic_kube, "archive") as made:
        made.add_pool()
        for zone in ("acme", "burst"):
            made.add_zone(zone)
        for engine in ("engine-0", "engine-1"):
            made.add_engine(engine)
        yield made
    clinic.delete_namespace("archive")


@pytest.fixture(scope="module")
def operator(clinic: Clinic, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    running = Operator(clinic.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log")
    running.start()
    running.await_running()
    world.await_ready("acme", "burst")
    yield running
    running.stop()


@pytest.fixture
def cached(operator: Operator, world: World) -> World:
    """Both zones have cached blocks in both engines, and all engines answer."""
    for engine in world.engines:
        engine.cached.update(acme=7, burst=3)
    eventually(lambda: world.zone("acme")["status"].get("cached") == 14)
    return world


def test_what_a_zone_has_cached_goes_in_each_engine(plugin: Plugin, cached: World):
    answer = plugin("tz", "purge", "acme", "-n", cached.namespace)

    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == [
        "ENGINE    EVICTED  WITHDRAWN  TO ZERO",
        "engine-0        7          0        0",
        "engine-1        7          0        0",
        "in all         14          0        0",
    ]
    assert [engine.cached for engine in cached.engines] == [{"burst": 3}] * 2
    zone = cached.zone("acme")
    assert zone["status"]["purge"]["id"] == zone["metadata"]["annotations"]["tenantzone.io/purge"]
    assert conditions(zone)["Purged"]["status"] == "True"
    eventually(lambda: cached.events("Purged"))


def test_two_commands_purge_twice(plugin: Plugin, cached: World):
    for blocks in (14, 0):
        answer = plugin("tz", "purge", "tz/acme", "-n", cached.namespace, "-o", "json")
        assert json.loads(answer.stdout)["evicted"] == blocks


def test_an_engine_that_does_not_answer_is_named_and_the_purge_goes_on(
    plugin: Plugin, cached: World, operator: Operator
):
    silent = cached.engines[1]
    silent.hang_up()
    answer = plugin("tz", "purge", "acme", "-n", cached.namespace, "--timeout", "3")
    assert answer.returncode == 1
    assert "is acknowledged by 1 of 2 engines; waiting for engine-1, which does not answer" in answer.stderr
    assert "not complete after 3 s, but continues" in answer.stderr
    asked = cached.zone("acme")["status"]["purge"]
    assert [row["pod"] for row in asked["engines"]] == ["engine-0"]

    operator.kill()
    silent.come_back()
    operator.start()
    operator.await_running()
    eventually(lambda: "completedAt" in cached.zone("acme")["status"]["purge"])
    purge = cached.zone("acme")["status"]["purge"]
    assert (purge["id"], purge["requestedAt"], purge["evicted"]) == (asked["id"], asked["requestedAt"], 14)


def test_an_engine_that_is_too_old_is_named(plugin: Plugin, cached: World):
    old = cached.engines[0]
    old.refusal = "zones[0].purge: Extra inputs are not permitted"
    answer = plugin("tz", "purge", "acme", "-n", cached.namespace, "--timeout", "3")
    assert answer.returncode == 1
    assert "engine-0, which refuses the config: zones[0].purge: Extra inputs" in answer.stderr
    old.refusal = ""
    old.sync()
    cached.await_ready("acme")


def test_who_does_not_wait_gets_the_id(plugin: Plugin, cached: World):
    answer = plugin("tz", "purge", "burst", "-n", cached.namespace, "--no-wait")
    purge = answer.stdout.strip()
    assert answer.returncode == 0
    eventually(lambda: cached.zone("burst")["status"].get("purge", {}).get("id") == purge)
    eventually(lambda: "completedAt" in cached.zone("burst")["status"]["purge"])


def test_a_command_that_another_one_replaces_says_so(start: Start, plugin: Plugin, cached: World):
    cached.engines[1].hang_up()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start("tz", "purge", "acme", "-n", cached.namespace, **pipes) as first:
        before = cached.zone("acme")["metadata"].get("annotations", {}).get("tenantzone.io/purge")
        eventually(lambda: cached.zone("acme")["metadata"]["annotations"]["tenantzone.io/purge"] != before)
        plugin("tz", "purge", "acme", "-n", cached.namespace, "--no-wait")
        _, errors = first.communicate(timeout=60)
    cached.engines[1].come_back()
    assert first.returncode == 1
    assert "another purge of archive/acme has replaced" in errors
    eventually(lambda: "completedAt" in cached.zone("acme")["status"]["purge"])


def test_a_zone_that_is_not_there_or_not_in_force_is_not_purged(plugin: Plugin, cached: World):
    missing = plugin("tz", "purge", "missing", "-n", cached.namespace)
    assert missing.returncode == 1
    assert 'tenantzones.tenantzone.io "missing" not found' in missing.stderr
    cached.add_zone("greedy", reserved=1000)
    cached.await_condition("greedy", "Accepted", "False")
    refused = plugin("tz", "purge", "greedy", "-n", cached.namespace)
    assert refused.returncode == 1
    assert "zone archive/greedy is not accepted, so it can't be purged: reserved is 1000 blocks" in refused.stderr
    assert "annotations" not in cached.zone("greedy")["metadata"]
    cached.delete_zone("greedy")


def test_a_bad_id_is_a_condition_and_an_event(cached: World):
    cached.kube.merge(cached.zone_path("burst"), {"metadata": {"annotations": {"tenantzone.io/purge": "no id"}}})
    cached.await_condition("burst", "Purged", "False", "PurgeInvalid")
    eventually(lambda: cached.events("PurgeInvalid"))
    assert [engine.cached["burst"] for engine in cached.engines] == [3, 3]
    cached.await_ready("burst")


def test_an_id_that_is_removed_and_set_again_is_carried_out_again(cached: World):
    def annotate(id: str | None) -> None:
        cached.kube.merge(cached.zone_path("acme"), {"metadata": {"annotations": {"tenantzone.io/purge": id}}})

    def purged() -> tuple[str, bool]:
        record = cached.zone("acme")["status"]["purge"]
        return record["id"], "completedAt" in record

    annotate("nightly")
    eventually(lambda: purged() == ("nightly", True))
    for engine in cached.engines:
        engine.cached["acme"] = 5
    annotate(None)
    eventually(lambda: "Purged" not in conditions(cached.zone("acme")))
    annotate("nightly")
    eventually(lambda: purged() == ("nightly#2", True))
    assert cached.zone("acme")["status"]["purge"]["evicted"] == 10
    assert [engine.cached for engine in cached.engines] == [{"burst": 3}] * 2
