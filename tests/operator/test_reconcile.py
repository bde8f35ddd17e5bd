"""From what a user applies to what engines acknowledge, on a real API server."""

import pytest

from tenantzone_contract.zone_config.packing import files_of
from tests.operator.conftest import Operator
from tests.operator.kube import eventually
from tests.operator.objects import registered
from tests.operator.world import POOL, World, conditions

pytestmark = pytest.mark.controlplane


def test_a_zone_is_accepted_delivered_and_acknowledged(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="40%", priority=10)
    engine = world.add_engine(blocks=256)

    done = world.kubectl("wait", "--for=condition=Ready", "tz/acme", "--timeout=30s")

    assert "condition met" in done.stdout
    zone = world.zone("acme")
    assert {kind: condition["status"] for kind, condition in conditions(zone).items()} == {
        "Accepted": "True",
        "Programmed": "True",
        "Ready": "True",
    }
    (row,) = zone["status"]["engines"]
    assert row["pod"] == engine.name
    assert row["acknowledged"] is True
    assert (row["reserved"], row["limit"]) == (102, 256)
    assert zone["status"]["observedGeneration"] == zone["metadata"]["generation"]
    assert "finalizers" not in zone["metadata"], "nothing has to be cleaned up"
    assert "annotations" not in zone["metadata"]


def test_the_pool_says_what_its_engines_have(world: World):
    world.add_pool()
    world.add_zone("acme")
    world.add_engine("engine-0", blocks=256)
    world.add_engine("engine-1", blocks=128)

    def look():
        status = world.pool().get("status", {})
        return status if status.get("enginesAcknowledged") == 2 else None

    status = eventually(look)
    config = world.config()
    assert config is not None
    assert status["capacityBlocks"] == 256
    assert (status["configGeneration"], status["configHash"]) == (config.generation, config.hash)
    assert (status["zonesAccepted"], status["zonesRejected"]) == (1, 0)


def test_a_patch_changes_the_config_and_is_acknowledged(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    engine = world.add_engine()
    world.await_ready("acme")
    before = world.config()

    generation = world.change_zone("acme", reserved="20%")

    world.await_ready("acme")
    after = world.config()
    assert before is not None
    assert after is not None
    assert after.generation == before.generation + 1
    assert [(entry.reserved, entry.generation) for entry in after.zones] == [("20%", generation)]
    assert [zone.reserved for zone in engine.report().zones] == [20]


def test_a_neighbours_change_leaves_a_zone_programmed(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    world.add_zone("burst")
    world.add_engine()
    world.await_ready("acme", "burst")
    since = conditions(world.zone("acme"))["Programmed"]
    version = world.zone("acme")["metadata"]["resourceVersion"]

    world.change_zone("burst", reserved="5%")

    world.await_ready("burst")
    assert conditions(world.zone("acme"))["Programmed"] == since
    assert world.zone("acme")["metadata"]["resourceVersion"] == version


def test_what_a_zone_holds_shows_up(world: World):
    world.add_pool()
    world.add_zone("acme")
    first, second = world.add_engine("engine-0"), world.add_engine("engine-1")
    world.await_ready("acme")

    first.cached["acme"], second.cached["acme"] = 7, 5

    eventually(lambda: world.zone("acme")["status"].get("held") == 12)
    status = world.zone("acme")["status"]
    assert status["state"] == "Idle"
    assert [row["held"] for row in status["engines"]] == [7, 5]


def test_a_zone_that_does_not_fit_reports_by_how_much(world: World):
    world.add_pool()
    world.add_engine(blocks=100)
    world.add_zone("acme", reserved="40%")
    world.await_ready("acme")

    world.add_zone("greedy", reserved="80%")

    message = world.await_condition("greedy", "Accepted", "False", "PoolOvercommitted")["message"]
    assert "80 blocks" in message
    assert "20 too few" in message
    assert world.entries() == {"acme": "40%"}
    world.delete_zone("acme")
    world.await_ready("greedy")


def test_a_patch_that_does_not_fit_leaves_what_was_accepted(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="40%")
    world.add_zone("burst", reserved="30%")
    world.add_engine()
    world.await_ready("acme", "burst")

    world.change_zone("acme", reserved="90%")

    message = world.await_condition("acme", "Accepted", "False", "PoolOvercommitted")["message"]
    assert "Generation 1 stays in force" in message
    assert world.entries() == {"acme": "40%", "burst": "30%"}
    assert conditions(world.zone("burst"))["Ready"]["status"] == "True"


def test_of_two_zones_with_one_tenant_the_older_has_it(world: World):
    world.add_pool()
    world.add_engine()
    world.add_zone("first", tenant="shared")
    world.await_ready("first")
    world.add_zone("second", tenant="shared")

    assert "first" in world.await_condition("second", "Accepted", "False", "TenantConflict")["message"]
    world.delete_zone("first")
    world.await_ready("second")


def test_a_zone_whose_pool_is_missing_heals_when_it_appears(world: World):
    world.add_zone("acme")
    world.add_engine()
    assert POOL in world.await_condition("acme", "Accepted", "False", "PoolNotFound")["message"]

    world.add_pool()

    world.await_ready("acme")


def test_without_engines_a_zone_is_accepted_and_not_programmed(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="40%")

    world.await_condition("acme", "Programmed", "False", "NoEngines")

    assert conditions(world.zone("acme"))["Accepted"]["status"] == "True"


def test_fields_that_nothing_acts_on_are_named(world: World):
    world.add_pool(identity={"apiKeys": {"secretSelector": {"matchLabels": {"app": "keys"}}}})
    world.add_zone("acme", scrub="OnTransfer")
    world.add_engine()
    world.await_ready("acme")

    eventually(lambda: "identity.apiKeys.secretSelector" in conditions(world.pool())["NotEnforced"]["message"])
    assert "NotEnforced" not in conditions(world.zone("acme"))
    world.kube.merge(world.pool_path, {"spec": {"identity": None}})
    eventually(lambda: "NotEnforced" not in conditions(world.pool()))


def test_a_pool_says_how_tenants_are_known_and_whether_engines_do_it(world: World):
    world.add_pool(identity={"jwt": {"issuer": "https://issuer", "audiences": ["models"]}})
    world.add_zone("acme")
    engine = world.add_engine()
    world.await_ready("acme")

    def says(status: str, words: str) -> bool:
        found = conditions(world.pool())["IdentityEnforced"]
        return found["status"] == status and words in found["message"]

    eventually(lambda: says("True", "JWT: tokens of https://issuer; acknowledged by 1 engine"))
    config = world.config()
    assert config is not None
    assert config.pool.identity is not None
    assert config.pool.identity.jwt is not None
    assert config.pool.identity.jwt.audiences == ("models",)
    engine.identity_problem = "jwks.json is not in the folder"
    eventually(lambda: says("False", "engine-0 serves no request: jwks.json is not in the folder"))
    engine.identity_problem = ""
    world.kube.merge(world.pool_path, {"spec": {"identity": None}})
    eventually(lambda: says("True", "APIKeys"))


def test_zones_that_an_engine_registered_automatically_have_no_status(world: World):
    world.add_pool(unknownTenants={"mode": "AutoRegister", "template": {"idle": {"forgetAfter": "24h"}}})
    world.add_zone("acme", tenant="customer-7", reserved="10%")
    engine = world.add_engine()
    engine.registered = (registered("acme", cached=9), registered("stray", cached=9))
    engine.cached["acme"] = 5
    world.await_ready("acme")

    eventually(lambda: world.zone("acme")["status"]["held"] == 5)
    eventually(lambda: world.pool()["status"]["zonesAccepted"] == 1)
    config = world.config()
    assert config is not None
    assert [entry.tenant for entry in config.zones] == ["customer-7"]
    assert config.pool.unknown_tenants.mode == "AutoRegister"
    assert config.pool.unknown_tenants.template.idle.forget_after_seconds == 86400.0


def test_a_config_that_was_edited_by_hand_is_repaired(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    engine = world.add_engine()
    world.await_ready("acme")

    world.kube.merge(world.config_path, {"data": {"config.json": "{"}, "metadata": {"labels": {"mine": "kept"}}})
    engine.sync()

    eventually(lambda: world.entries() == {"acme": "10%"})
    engine.sync()
    world.await_ready("acme")
    found = world.kube.get(world.config_path)
    assert found is not None
    assert found["metadata"]["labels"]["mine"] == "kept"


def test_a_zone_that_is_deleted_leaves_the_config(world: World):
    world.add_pool()
    world.add_zone("acme")
    world.add_zone("burst")
    engine = world.add_engine()
    world.await_ready("acme", "burst")

    world.delete_zone("burst")

    eventually(lambda: world.entries().keys() == {"acme"})
    eventually(lambda: [zone.name for zone in engine.report().zones] == ["acme"])


def test_the_pool_says_what_is_left_and_how_large_its_config_is(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="40%")
    world.add_zone("burst", reserved=30)
    world.add_engine("engine-0", blocks=256)
    world.add_engine("engine-1", blocks=128)
    world.await_ready("acme", "burst")

    def look():
        status = world.pool()["status"]
        return status if status.get("enginesAcknowledged") == 2 and status["zonesAccepted"] == 2 else None

    status = eventually(look)
    found = world.kube.get(world.config_path)
    assert found is not None
    assert (status["capacityBlocks"], status["reservedBlocks"], status["allocatableBlocks"]) == (256, 132, 124)
    assert status["configBytes"] == files_of(found).size
    assert status["configBytesPerZone"] == status["configBytes"] // 2
    head, row = (line.split()[:8] for line in world.kubectl("get", "zp", "-o", "wide").stdout.splitlines())
    assert head == ["NAME", "CAPACITY", "ALLOCATABLE", "ENGINES", "ACKNOWLEDGED", "ZONES", "REJECTED", "READY"]
    assert row == ["demo", "256", "124", "2", "2", "2", "0", "True"]


def test_lent_and_borrowed_blocks_add_up_over_the_engines(world: World):
    world.add_pool()
    world.add_zone("acme")
    for name, lent in (("engine-0", 3), ("engine-1", 4)):
        world.add_engine(name).details["acme"] = {"lent": lent, "borrowed": 2 * lent}
    world.await_ready("acme")

    eventually(lambda: world.zone("acme")["status"].get("lent") == 7)
    status = world.zone("acme")["status"]
    assert status["borrowed"] == 14
    assert [row["lent"] for row in status["engines"]] == [3, 4]


def test_what_others_write_survives_and_makes_no_work(world: World, operator: Operator):
    world.add_pool()
    world.add_zone("acme")
    world.add_zone("burst")
    engine = world.add_engine()
    world.await_ready("acme", "burst")

    foreign = {
        "apiVersion": "tenantzone.io/v1alpha1",
        "kind": "TenantZone",
        "metadata": {"name": "acme", "labels": {"team": "blue"}, "annotations": {"note": "mine"}},
        "status": {
            "conditions": [
                {
                    "type": "Billed",
                    "status": "True",
                    "reason": "Paid",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        },
    }
    path = f"{world.zone_path('acme')}/status?fieldManager=billing"
    world.kube.call("PATCH", path, foreign, "application/apply-patch+yaml")
    world.kube.merge(world.zone_path("acme"), {"metadata": foreign["metadata"]})
    world.change_zone("acme", reserved="10%")
    world.await_ready("acme")

    zone = world.zone("acme")
    assert conditions(zone)["Billed"]["reason"] == "Paid"
    assert zone["metadata"]["labels"] == {"team": "blue"}
    assert zone["metadata"]["annotations"] == {"note": "mine"}

    before, turns = operator.health()["writes"], 8
    for blocks in range(1, turns + 1):
        # Makes the operator look at the whole pool again.
        engine.cached["burst"] = blocks
        eventually(lambda: world.zone("burst")["status"].get("held") == blocks)  # noqa: B023
    # Earlier changes may be written meanwhile, and late ones of a busy engine.
    assert operator.health()["writes"] - before < 2 * turns, "acme's status is written again and again"


def test_a_waiting_zone_says_so_to_tools_that_wait(world: World):
    """`kstatus` takes Stalled for a failure, and any status other than Ready for progress."""
    world.add_pool()
    world.add_engine()
    world.add_zone("acme", reserved="40%")
    world.add_zone("greedy", reserved="80%")
    world.await_condition("greedy", "Stalled", "True", "PoolOvercommitted")
    world.await_ready("acme")

    assert "Stalled" not in conditions(world.zone("acme"))
    world.change_zone("greedy", reserved="20%")
    world.await_ready("greedy")
    assert "Stalled" not in conditions(world.zone("greedy"))


def test_health_shows_the_age_of_the_last_reconcile(operator: Operator):
    assert operator.health()["secondsSinceReconcile"] < 180


def test_the_shipped_role_suffices(operator: Operator):
    assert '" cannot ' not in operator.log
