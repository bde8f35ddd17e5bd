"""The operator's log."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantzone_operator.logs import About, KopfJsonFormatter
from tests.operator.conftest import Operator
from tests.operator.kube import eventually
from tests.operator.world import POOL, World

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def operator(operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator that writes JSON."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    running = Operator(operator_kubeconfig, log, "--no-leader-elect", "--log-format", "json")
    running.start()
    running.await_running()
    yield running
    assert running.stop() == 0


def lines(operator: Operator) -> list[dict[str, Any]]:
    whole, _, _ = operator.log.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def await_line(operator: Operator, **about: object) -> dict[str, Any]:
    """The first line with all given fields."""
    return eventually(lambda: next(iter(line for line in lines(operator) if about.items() <= line.items()), None))


def test_each_line_says_what_it_is_about(world: World, operator: Operator):
    world.add_pool()
    world.add_zone("acme", reserved="60%", tenant="acme-corp")
    engine = world.add_engine()
    world.await_ready("acme")
    config = world.config()
    assert config is not None
    pool = {"pool": POOL, "pool_namespace": world.namespace}

    line = await_line(operator, **pool, generation=config.generation)
    assert line["message"].endswith(f"config {config.generation}, 1 zones")
    assert (line["level"], line["logger"]) == ("INFO", "tenantzone_operator.pool.worker")
    assert line["timestamp"].endswith("Z")

    world.add_zone("greedy", reserved="60%")
    world.await_condition("greedy", "Accepted", "False", "PoolOvercommitted")
    line = await_line(operator, **pool, zone="greedy", tenant="greedy", level="WARNING")
    assert "60 blocks" in line["message"]

    engine.hang_up()
    await_line(operator, **pool, pod=engine.name, level="INFO")


def test_no_credential_is_in_the_log(world: World, operator: Operator, operator_kubeconfig: Path):
    (user,) = yaml.safe_load(operator_kubeconfig.read_text())["users"]
    secrets = [value for value in user["user"].values() if isinstance(value, str)]
    assert secrets
    world.add_pool()
    world.add_zone("acme")
    await_line(operator, pool_namespace=world.namespace)
    assert not [secret for secret in secrets if secret in operator.log]


def test_kopfs_own_lines_name_the_object_that_they_are_about():
    reference = {"kind": "TenantZone", "name": "acme", "namespace": "models", "uid": "1", "apiVersion": "v1"}
    record = logging.makeLogRecord({"msg": "failed", "name": "kopf.objects", "k8s_ref": reference})
    line = json.loads(KopfJsonFormatter().format(record))
    assert (line["zone"], line["pool_namespace"]) == ("acme", "models")


def test_a_line_is_about_what_its_logger_is_and_what_it_says_itself(caplog: pytest.LogCaptureFixture):
    about_acme = About(logging.getLogger("tests.logs"), {"zone": "acme", "generation": 3})
    about_acme.warning("one")
    about_acme.warning("two", extra={"generation": 4, "pod": "engine-0"})
    reported = [json.loads(KopfJsonFormatter().format(record)) for record in caplog.records]
    assert [(line["zone"], line["generation"], line.get("pod")) for line in reported] == [
        ("acme", 3, None),
        ("acme", 4, "engine-0"),
    ]
