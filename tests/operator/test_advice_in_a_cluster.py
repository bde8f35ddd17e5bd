"""The operator tries what helps, keeps it, undoes it when the pool says so, and leaves TenantZones alone."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.operator.conftest import Operator
from tests.operator.kube import eventually
from tests.operator.world import World

pytestmark = pytest.mark.controlplane

BOUNDS = {"weight": {"min": 1, "max": 2}}
SECONDS = 40.0
"""Three windows of the shortest length."""


def missed(actual_seconds: float) -> dict[str, Any]:
    """An engine's report of a latency target of half a second."""
    target = {"targetSeconds": 0.5, "actualSeconds": actual_seconds, "met": False, "reason": "Neighbours"}
    return {"latency": {"tokenTime": target}}


def row(world: World) -> dict[str, Any]:
    (found,) = world.pool()["status"]["adjustments"]
    return found


def weight(world: World) -> int:
    config = world.config()
    assert config is not None
    return config.zones[0].weight


def plugin(world: World, *arguments: str) -> str:
    environment = os.environ | {"PATH": f"{world.cluster.kubectl_program.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "tenantzone_cli", "advise", *arguments, "--namespace", world.namespace]
    command += ["--kubeconfig", str(world.cluster.kubeconfig)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout


def test_what_helps_is_tried_and_kept_and_goes_with_the_mode(world: World, operator: Operator):
    world.add_pool(advice={"mode": "Auto", "window": "10s", "bounds": BOUNDS})
    world.add_zone("acme", reserved="20%", latency={"tokenTime": "500ms"})
    engine = world.add_engine()
    engine.details["acme"] = missed(2.0)
    world.await_ready("acme")
    generation = world.zone("acme")["metadata"]["generation"]

    def is_tried() -> bool:
        assert row(world)["state"] == "Trial"
        return weight(world) == 2

    eventually(is_tried, timeout=SECONDS)
    assert json.loads(plugin(world, "--once", "-o", "json"))["pools"][0]["adjustments"] == [row(world)]
    engine.details["acme"] = missed(0.55)

    eventually(lambda: row(world)["state"] == "Kept", timeout=SECONDS)
    assert (row(world)["zone"], row(world)["field"], row(world)["value"]) == ("acme", "weight", "2")
    # The window may contain observations from before the engine got better.
    assert re.search(
        r"latency of acme was 4.00 times its target, and is [12]\.\d+ times since", plugin(world, "--once")
    )
    assert world.zone("acme")["metadata"]["generation"] == generation
    assert "weight" not in world.zone("acme")["spec"] or world.zone("acme")["spec"]["weight"] == 1
    world.await_ready("acme")

    # Another leader reads the active values from the status.
    operator.kill()
    operator.start()
    operator.await_leading()
    world.change_zone("acme", priority=3)
    world.await_ready("acme")
    assert weight(world) == 2

    world.kube.merge(world.pool_path, {"spec": {"advice": {"mode": "Recommend"}}})
    eventually(lambda: weight(world) == 1)
    eventually(lambda: "adjustments" not in world.pool()["status"])
    world.await_ready("acme")
