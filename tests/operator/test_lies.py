"""Each engine that lies costs only its own row: all of them at once, on a real API server."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane import Cluster
from hack.harness.lies import LIES
from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.config import RuntimeConfig
from tests.operator.conftest import Operator
from tests.operator.fleet import SimulatedEngine
from tests.operator.kube import Kube, eventually
from tests.operator.world import World, conditions, world_in

pytestmark = pytest.mark.controlplane

EVERY_LIE = pytest.mark.parametrize("lie", LIES)
LOOK_SECONDS = 1.0


def named(lie: str) -> str:
    """The name of the lying engine's pool, and of its zone."""
    return f"lie-{list(LIES).index(lie)}"


class Scene:
    """A pool for each lie, with a zone, an honest engine and one that lies later; and a pool of another namespace."""

    def __init__(self, liars: World, honest: World) -> None:
        self.liars, self.honest = liars, honest
        self.engines: dict[str, SimulatedEngine] = {}
        """The lying engines, by lie."""
        self.configs: dict[str, RuntimeConfig] = {}
        """The previous configs, by lie."""

    def set_up(self) -> None:
        self.honest.add_pool()
        self.honest.add_zone("acme", reserved=10)
        self.honest.add_engine()
        for lie in LIES:
            name = named(lie)
            self.liars.add_pool(name)
            self.liars.add_zone(name, pool=name, reserved=10, limit="50%")
            self.liars.add_engine(f"{name}-honest", pool=name, look_seconds=LOOK_SECONDS)
            self.engines[lie] = self.liars.add_engine(f"{name}-liar", pool=name, look_seconds=LOOK_SECONDS)
        self.honest.await_ready("acme")
        self.liars.await_ready(*map(named, LIES))
        self.configs = {lie: self.config(lie) for lie in LIES}

    def config(self, lie: str) -> RuntimeConfig:
        found = self.liars.config(named(lie))
        assert found is not None
        return found

    def rows(self, lie: str) -> dict[str, dict[str, Any]]:
        """Rows in the status of the liar's zone: ``honest`` and ``liar``."""
        rows = self.liars.zone(named(lie))["status"]["engines"]
        return {row["pod"].rpartition("-")[2]: row for row in rows}


@pytest.fixture(scope="module")
def scene(control_plane: Cluster, kube: Kube, operator: Operator) -> Iterator[Scene]:
    names = [f"{name}-{secrets.token_hex(4)}" for name in ("liars", "honest")]
    for name in names:
        control_plane.create_namespace(name)
    try:
        with world_in(control_plane, kube, names[0]) as liars, world_in(control_plane, kube, names[1]) as honest:
            made = Scene(liars, honest)
            made.set_up()
            yield made
            liars.delete_everything()
    finally:
        # A later operator would handle what is left.
        for name in names:
            control_plane.delete_namespace(name)
    assert "the status of" not in operator.log, "one can't be written"


@pytest.fixture(scope="module")
def lying(scene: Scene) -> Scene:
    """All lie at the same time."""
    for lie, engine in scene.engines.items():
        engine.lie = LIES[lie]
    return scene


@pytest.fixture(scope="module")
def honest_again(lying: Scene) -> Scene:
    for engine in lying.engines.values():
        engine.lie = None
    return lying


def test_other_pools_go_on_as_ever(lying: Scene):
    for reserved in range(11, 31):
        lying.honest.change_zone("acme", reserved=reserved)
        lying.honest.await_condition("acme", "Programmed", "True")
        lying.honest.await_ready("acme")
        assert lying.honest.entries() == {"acme": reserved}


@EVERY_LIE
def test_a_liar_costs_its_own_row(lying: Scene, lie: str):
    reason = LIES[lie].programmed

    def is_said() -> bool:
        found = conditions(lying.liars.zone(named(lie)))["Programmed"]
        assert found["reason"] == reason, found
        assert reason == "Acknowledged" or "liar" in found["message"], found
        return True

    eventually(is_said)
    rows = lying.rows(lie)
    assert (rows["honest"]["acknowledged"], rows["honest"]["reserved"]) == (True, 10)
    assert "message" not in rows["honest"]
    if reason in ("EngineUnreachable", "ConfigRejected", "ConfigUntrusted"):
        assert rows["liar"]["message"]
    if reason == "EngineUnreachable":
        assert "reserved" not in rows["liar"], "an old number would pass for a new one"
    if reason not in ("Acknowledged", "ConfigRejected", "ConfigUntrusted"):
        assert not rows["liar"]["acknowledged"]


@EVERY_LIE
def test_what_was_accepted_stays(lying: Scene, lie: str):
    found = conditions(lying.liars.zone(named(lie)))["Accepted"]
    assert (found["status"], found["reason"]) == ("True", "Accepted")
    assert_same_config(lying, lie)


def test_an_engine_that_says_that_it_is_small_is_named(lying: Scene):
    row = lying.rows("a size of 1")["liar"]
    assert not row["acknowledged"]
    assert "blocks that the zone reserves" in row["message"]
    assert conditions(lying.liars.zone(named("a size of 1")))["Degraded"]["status"] == "True"


def test_nothing_that_is_shown_has_control_characters(lying: Scene):
    assert lying.liars.events("ConfigRejected")
    shown = [lying.liars.zone(named(lie)) for lie in LIES] + [lying.liars.pool(named(lie)) for lie in LIES]
    for text in texts([shown, lying.liars.events()]):
        assert printable(text) == text


@EVERY_LIE
def test_the_zone_is_ready_again_when_the_lie_ends(honest_again: Scene, lie: str):
    honest_again.liars.await_ready(named(lie))

    def is_as_before() -> bool:
        rows = honest_again.rows(lie)
        return all(row["acknowledged"] and row["reserved"] == 10 and "message" not in row for row in rows.values())

    eventually(is_as_before)
    assert "Degraded" not in conditions(honest_again.liars.zone(named(lie)))
    assert_same_config(honest_again, lie)


def assert_same_config(scene: Scene, lie: str) -> None:
    """Only an engine that says that it knows a newer config causes another generation."""
    before = scene.configs[lie]
    if LIES[lie].programmed == "ConfigUntrusted":
        # The condition may be written before the operator has published another generation.
        eventually(lambda: scene.config(lie).generation > before.generation)
        before = before.model_copy(update={"generation": scene.config(lie).generation})
    assert scene.config(lie) == before


def texts(value: Any) -> Iterator[str]:
    """All strings in a value."""
    match value:
        case str():
            yield value
        case dict():
            for key, found in value.items():
                yield from texts([key, found])
        case list():
            for found in value:
                yield from texts(found)
