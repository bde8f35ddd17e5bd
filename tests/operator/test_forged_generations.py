"""A forged generation, written while no operator led: what a new leader makes of it, change after change."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tenantzone_contract.keys.admin_token import admin_token
from tenantzone_contract.zone_config.config import MAX_GENERATION, RuntimeConfig
from tenantzone_contract.zone_config.config_signature import sign_config
from tenantzone_contract.zone_config.packing import pack_config
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.grants import MAX_READ_GENERATION
from tenantzone_operator.planning.plan import make_plan
from tenantzone_operator.pool import delivery as delivery_module
from tenantzone_operator.pool.delivery import Delivery
from tenantzone_operator.status.acknowledgement import History
from tests.operator.objects import observed, pool, snapshot, zone
from tests.operator.test_delivery import ConfigMaps, delivery_to

CHANGES = 70
"""More than the snapshots that an operator remembers."""
QUIET = zone("quiet", reserved="10%")
BUSY = zone("busy", reserved="1%")
BEFORE = snapshot(7, QUIET, BUSY)

TOKEN = admin_token(32 * b"n", "default", "demo")
FORGED = [MAX_GENERATION - 1, MAX_GENERATION - 5, MAX_GENERATION // 2, MAX_GENERATION // 2 - 1, 7]


async def delivered(delivery: Delivery, history: History, status: dict[str, Any], change: int) -> RuntimeConfig:
    """The config of one more change of the busy zone, delivered as the pool's worker does it."""
    zones = [QUIET, zone("busy", reserved=change, generation=change + 1)]
    last = history.newest.generation if history.newest is not None and change > 1 else status["configGeneration"]
    plan = make_plan(
        pool(status=status), zones, in_force=delivery.in_force, last_generation=last, size=1000, room=ConfigRoom()
    )
    assert plan.config is not None
    await delivery.deliver(pool(status=status), [], plan.config)
    assert history.newest is not None
    return history.newest


@pytest.mark.parametrize("generation", FORGED)
@pytest.mark.parametrize("where", ["config", "status", "both"])
async def test_generations_go_up_and_a_zone_without_a_change_stays_acknowledged(generation: int, where: str):
    in_config, in_status = (generation if where in (named, "both") else 7 for named in ("config", "status"))
    forged = BEFORE.model_copy(update={"generation": in_config})
    status = {"configHash": BEFORE.hash, "configGeneration": in_status}
    delivery, history = delivery_to(ConfigMaps(forged))
    await delivery.recall(pool(status=status))
    before = await delivered(delivery, history, status, 1)

    for change in range(2, CHANGES):
        newest = await delivered(delivery, history, status, change)
        assert before.generation < newest.generation < MAX_GENERATION
        assert history.acknowledged_by(observed(before, blocks=1000), newest.zones[0]), "an engine has it so"
        before = newest


@pytest.mark.parametrize("generation", FORGED)
async def test_what_is_granted_goes_on_above_the_generation_that_the_status_has(generation: int):
    forged = BEFORE.model_copy(update={"generation": generation})
    config_maps = ConfigMaps(forged)
    delivery, history = delivery_to(config_maps)
    confirmed = pool(status={"configHash": BEFORE.hash, "configGeneration": 7})

    await delivery.recall(confirmed)

    assert delivery.in_force is not None
    await delivery.deliver(confirmed, [], delivery.in_force)
    assert history.newest is not None
    assert 7 <= history.newest.generation < MAX_GENERATION - CHANGES
    assert history.newest.hash == BEFORE.hash
    assert config_maps.held is not None
    assert config_maps.held.files == pack_config(history.newest)


@pytest.mark.parametrize("generation", [1, 6])
@pytest.mark.parametrize("is_signed", [False, True])
async def test_what_is_granted_goes_on_above_the_status_if_others_lowered_its_generation(
    generation: int, is_signed: bool
):
    """Engines that demand signatures refuse a lower generation than they have had."""
    files = pack_config(BEFORE.model_copy(update={"generation": generation}))
    if is_signed:
        # As the operator once did: the content was the same then.
        files = replace(files, signature=sign_config(files.signed, [TOKEN], pool().meta.created))
    config_maps = ConfigMaps()
    config_maps.put(files)
    delivery, history = delivery_to(config_maps, TOKEN)
    confirmed = pool(status={"configHash": BEFORE.hash, "configGeneration": 7})

    await delivery.recall(confirmed)

    assert delivery.in_force is not None
    assert await delivery.deliver(confirmed, [], delivery.in_force)
    assert history.newest == BEFORE.model_copy(update={"generation": 8})
    assert delivery.is_confirmed
    assert not await delivery.deliver(confirmed, [], history.newest), "it is at rest"


@pytest.mark.parametrize(("created", "next_generation"), [(None, MAX_READ_GENERATION + 1), ("2020-01-01T00:00:00Z", 9)])
async def test_a_large_generation_counts_only_if_it_was_signed_for_this_pool(created: str | None, next_generation: int):
    files = pack_config(BEFORE.model_copy(update={"generation": MAX_READ_GENERATION}))
    signature = sign_config(files.signed, [TOKEN], created or pool().meta.created)
    config_maps, status = ConfigMaps(), {"configHash": BEFORE.hash, "configGeneration": 7}
    config_maps.put(replace(files, signature=signature))
    delivery, history = delivery_to(config_maps, TOKEN)
    await delivery.recall(pool(status=status))

    newest = await delivered(delivery, history, status, 1)

    assert newest.generation == next_generation


@pytest.mark.parametrize("distance", [1, 2, 3])
async def test_each_leader_goes_on_above_what_the_one_before_it_signed(distance: int):
    forged = BEFORE.model_copy(update={"generation": MAX_GENERATION // 2 - distance})
    config_maps, status = ConfigMaps(forged), {"configHash": BEFORE.hash, "configGeneration": 7}
    generations = []
    for change in range(1, 8):
        delivery, history = delivery_to(config_maps, TOKEN)
        await delivery.recall(pool(status=status))
        newest = await delivered(delivery, history, status, change)
        status = {"configHash": newest.hash, "configGeneration": newest.generation}
        generations.append(newest.generation)

    assert generations == [forged.generation + change for change in range(1, 8)]


@pytest.mark.parametrize("distance", [1, 2, 3])
async def test_a_forgery_just_below_the_maximum_drives_no_repair_beyond_it(distance: int):
    config_maps = ConfigMaps(BEFORE)
    delivery, _ = delivery_to(config_maps)
    await delivery.recall(pool(status={"configHash": BEFORE.hash}))
    for _ in range(5):
        config_maps.put(pack_config(snapshot(1, BUSY).model_copy(update={"generation": MAX_GENERATION - distance})))
        await delivery.recall(pool())
        await delivery.deliver(pool(), [], BEFORE)
        assert delivery.in_force is not None
        assert delivery.in_force.generation < MAX_GENERATION - 3


async def lowered(*engines: Observation, created: str = "2026-01-01T00:00:00Z") -> tuple[Delivery, Pool, int]:
    """The generation that is delivered after an operator has started with config 7 of a pool with these engines."""
    demo = pool(status={"configHash": BEFORE.hash, "configGeneration": 7})
    demo = replace(demo, meta=replace(demo.meta, created=created))
    delivery, history = delivery_to(ConfigMaps(BEFORE), TOKEN)
    await delivery.recall(demo)
    delivery.exceed_engines(demo, engines)
    await delivery.deliver(demo, [], BEFORE)
    assert history.newest is not None
    return delivery, demo, history.newest.generation


def refusing(known: int) -> Observation:
    return observed(snapshot(3, QUIET), error="no", untrusted=True, newest_generation=known)


@pytest.mark.parametrize(
    ("engines", "generation"),
    [
        pytest.param([refusing(40)], 41, id="an engine has a newer one"),
        pytest.param([refusing(40), refusing(12), refusing(3)], 41, id="the newest of several"),
        pytest.param([observed(snapshot(40, QUIET), error="no", untrusted=True)], 7, id="refused for another reason"),
        pytest.param([refusing(7)], 7, id="it refuses an older one than ours"),
        pytest.param([refusing(MAX_GENERATION - 2)], 7, id="more than an operator can have written"),
        pytest.param([refusing(MAX_GENERATION - 2), refusing(40)], 41, id="a liar hides no honest engine"),
    ],
)
async def test_the_next_generation_is_above_what_engines_know(engines: list[Observation], generation: int):
    assert (await lowered(*engines))[2] == generation


async def test_a_new_pool_has_had_few_generations():
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    assert (await lowered(refusing(50), created=created))[2] == 51
    assert (await lowered(refusing(10**12), created=created))[2] == 7


async def test_an_engine_that_always_claims_more_causes_few_configs(monkeypatch: pytest.MonkeyPatch):
    now = 1e6
    monkeypatch.setattr(delivery_module, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    delivery, demo, generation = await lowered(refusing(40))
    pauses, last = [], now
    while now < 1e6 + 24 * 3600:
        now += 10
        delivery.exceed_engines(demo, [refusing(generation + 1)])
        assert delivery.in_force is not None
        if await delivery.deliver(demo, [], delivery.in_force):
            pauses.append(now - last)
            last, generation = now, delivery.in_force.generation

    assert pauses[:8] == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    now += 3610
    delivery.exceed_engines(demo, [refusing(generation + 1)])
    assert await delivery.deliver(demo, [], BEFORE), "after an hour of rest it is as at first"
    now += 60
    delivery.exceed_engines(demo, [refusing(generation + 10)])
    assert await delivery.deliver(demo, [], BEFORE)


async def test_a_write_that_fails_is_repeated_with_the_generation_that_engines_require():
    config_maps = ConfigMaps(BEFORE)
    delivery, history = delivery_to(config_maps, TOKEN)
    demo = pool(status={"configHash": BEFORE.hash, "configGeneration": 7})
    await delivery.recall(demo)
    delivery.exceed_engines(demo, [refusing(40)])
    before = config_maps.held
    config_maps.loses_answers = True
    with pytest.raises(TimeoutError):
        await delivery.deliver(demo, [], BEFORE)
    config_maps.held, config_maps.loses_answers = before, False

    await delivery.recall(demo)
    delivery.exceed_engines(demo, [refusing(40)])
    await delivery.deliver(demo, [], BEFORE)

    assert history.newest is not None
    assert history.newest.generation == 41
