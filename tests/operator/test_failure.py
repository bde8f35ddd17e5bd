"""Whatever dies and comes back, everything converges without help, and nothing is written at rest."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.controlplane import Cluster, ControlPlane
from tests.operator.conftest import Operator
from tests.operator.kube import eventually
from tests.operator.world import World, conditions

pytestmark = pytest.mark.controlplane

_WRITE = re.compile(
    r'^apiserver_request_total\{.*resource="(?:tenantzones|zonepools|configmaps|pods)".*'
    r'verb="(?:APPLY|PATCH|POST|PUT|DELETE)"\} (\d+)',
    re.MULTILINE,
)


def writes_seen_by_the_api_server(world: World) -> int:
    return sum(map(int, _WRITE.findall(world.kube.text("/metrics"))))


def settle(world: World) -> None:
    """Makes a pool with two zones and an engine, and waits until the operator is done with it."""
    world.add_pool()
    world.add_zone("acme", reserved="40%")
    world.add_zone("burst", limit="60%")
    world.add_engine()
    world.await_ready("acme", "burst")
    eventually(lambda: conditions(world.pool())["Ready"]["status"] == "True")


def test_at_rest_nothing_is_written(world: World):
    settle(world)
    world.await_polls(3)
    before = writes_seen_by_the_api_server(world)

    world.await_polls(6)

    assert writes_seen_by_the_api_server(world) == before


def test_a_restart_writes_nothing_either(world: World, operator: Operator):
    settle(world)
    world.await_polls(3)
    operator.kill()
    before = writes_seen_by_the_api_server(world)

    operator.start()
    operator.await_running()
    world.await_polls(6)

    assert writes_seen_by_the_api_server(world) == before


@pytest.mark.parametrize(
    "reached",
    [
        pytest.param(lambda world, before: True, id="at once"),
        pytest.param(lambda world, before: world.config() != before, id="when the ConfigMap is written"),
        pytest.param(
            lambda world, before: world.zone("acme")["status"]["observedGeneration"] == 2, id="when the status is"
        ),
    ],
)
def test_killed_in_the_middle_of_a_change_it_finishes_after_a_restart(
    world: World, operator: Operator, reached: Callable[[World, object], bool]
):
    settle(world)
    before = world.config()
    assert before is not None

    world.change_zone("acme", reserved="50%")
    eventually(lambda: reached(world, before))
    operator.kill()
    operator.start()

    world.await_ready("acme", "burst")
    config = world.config()
    assert config is not None
    assert config.generation == before.generation + 1
    assert world.entries() == {"acme": "50%", "burst": 0}


def test_what_was_deleted_while_it_was_down_is_gone_after_a_restart(world: World, operator: Operator):
    settle(world)
    operator.kill()

    world.delete_zone("burst")
    operator.start()

    eventually(lambda: world.entries() == {"acme": "40%"})
    world.await_ready("acme")


def test_a_config_that_was_deleted_is_written_again_and_counts_on(world: World, operator: Operator):
    settle(world)
    before = world.config()
    assert before is not None
    operator.kill()

    world.kube.call("DELETE", world.config_path)
    operator.start()

    config = eventually(world.config)
    assert config.zones == before.zones
    assert config.generation == before.generation + 1
    eventually(lambda: world.pool()["status"]["configGeneration"] == config.generation)
    world.await_ready("acme", "burst")


def test_the_api_server_restarts_under_it(world: World, control_plane: Cluster):
    assert isinstance(control_plane, ControlPlane), "a cluster that was named is not ours to restart"
    settle(world)

    control_plane.restart_apiserver()

    world.change_zone("acme", reserved="50%")
    world.add_zone("late", reserved="10%")
    world.await_ready("acme", "burst", "late")
    assert world.entries() == {"acme": "50%", "burst": 0, "late": "10%"}


def test_engines_that_change_while_the_api_server_is_away_are_seen_afterwards(world: World, control_plane: Cluster):
    assert isinstance(control_plane, ControlPlane), "a cluster that was named is not ours to restart"
    settle(world)
    (engine,) = world.engines
    control_plane.stop_apiserver()

    engine.hang_up()
    control_plane.start_apiserver()

    world.await_condition("acme", "Ready", "Unknown", "EngineUnreachable")
    engine.come_back()
    world.await_ready("acme", "burst")


def test_it_runs_as_a_user_whom_the_machine_does_not_know(world: World, operator: Operator, tmp_path: Path):
    """As clusters do that give each namespace its own range of user ids."""
    (tmp_path / "sitecustomize.py").write_text(
        "import getpass\n\ndef unknown():\n    raise KeyError('uid not found')\n\ngetpass.getuser = unknown\n"
    )
    assert operator.stop() == 0

    operator.start(PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    operator.await_running()

    settle(world)


_JUMPING_CLOCK = """
import datetime, itertools, time

jumps = itertools.cycle([0, 86400, -86400, 3600, -7])
seconds, nanoseconds, now = time.time, time.time_ns, datetime.datetime.now


class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return now(tz) + datetime.timedelta(seconds=next(jumps))


datetime.datetime = Jumping
time.time = lambda: seconds() + next(jumps)
time.time_ns = lambda: nanoseconds() + next(jumps) * 10**9
"""


def test_its_clock_jumps_by_days_with_each_look_at_it(world: World, operator: Operator, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(_JUMPING_CLOCK)
    assert operator.stop() == 0
    operator.start(PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    operator.await_running()

    settle(world)
    world.change_zone("acme", reserved="41%")
    world.delete_zone("burst")
    world.add_zone("late", reserved="80%")
    world.await_ready("acme")
    world.await_condition("late", "Accepted", "False", "PoolOvercommitted")
    eventually(lambda: world.entries() == {"acme": "41%"})
    world.await_polls(3)
    before = writes_seen_by_the_api_server(world)
    world.await_polls(6)

    assert writes_seen_by_the_api_server(world) == before
    assert operator.stop() == 0
    operator.start()
    operator.await_running()


def test_asked_to_end_it_ends_at_once_and_cleanly(world: World, operator: Operator):
    settle(world)

    assert operator.stop() == 0

    operator.start()
    operator.await_running()
    world.await_ready("acme")
