"""What fits into a pool's ConfigMap: only what is too much is refused, and the active config stays."""

import random
import string
from typing import Any

import pytest

from tenantzone_contract.zone_config.config import MAX_GENERATION, PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.packing import pack_config
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.planning import config_room
from tenantzone_operator.planning.config_room import Choice, ConfigRoom
from tenantzone_operator.planning.plan import make_plan
from tests.operator.objects import pool, zone

POOL = PoolConfig(namespace="default", name="demo")
LIMIT, RESERVE = 40_000, 4_000
"""Bytes of the ConfigMap in these tests; new zones leave the reserve alone."""
HASH = 100
"""The hash compresses to at most this many bytes."""
rng = random.Random(4)


def noise(length: int) -> str:
    """A name that hardly compresses."""
    return "".join(rng.choices(string.ascii_lowercase + string.digits, k=length))


def entry(name: str, length: int = 40, **fields: object) -> ZoneConfig:
    return ZoneConfig(name=name, tenant=noise(length), generation=1, **fields)  # type: ignore[arg-type]


def longer(entry: ZoneConfig) -> ZoneConfig:
    return entry.model_copy(update={"generation": 2, "weight": rng.randrange(10**59, 10**60)})


def own_terms() -> dict[str, Any]:
    """A spec's fields with values that hardly compress."""
    seconds = [f"{rng.randrange(10**8)}s" for _ in range(3)]
    return {
        "weight": rng.randrange(1, 2**31),
        "priority": rng.randrange(2**31),
        "lending": {"maxLoan": seconds[0], "grace": seconds[1]},
        "idle": {"after": seconds[2]},
    }


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenantzone_contract.zone_config.packing.MAX_PLAIN_BYTES", 10_000)
    monkeypatch.setattr(config_room, "CHANGES_BYTES", LIMIT)
    monkeypatch.setattr(config_room, "NEW_ZONES_BYTES", LIMIT - RESERVE)


def size(entries: list[ZoneConfig], of: PoolConfig = POOL) -> int:
    return pack_config(make_config(1, of, tuple(entries))).most_size


def filled(to: int) -> list[ZoneConfig]:
    """As many entries as fit into a config of `to` bytes."""
    entries = [entry(f"zone-{number:05}") for number in range(3 * to // 40)]
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(entries[:middle]) <= to else (low, middle - 1)
    return entries[:low]


def test_what_fits_is_left_alone():
    assert ConfigRoom().choose(POOL, filled(LIMIT - RESERVE - 200), None) == Choice(POOL)


def test_of_new_zones_the_first_that_fit_are_taken():
    wanted = filled(LIMIT)

    choice = ConfigRoom().choose(POOL, wanted, None)

    names = [each.name for each in wanted]
    taken = [each for each in wanted if each.name not in choice.left_out]
    assert [each.name for each in taken] == names[: len(taken)], "in the order in which they came"
    assert choice.left_out
    assert LIMIT - RESERVE - 400 < size(taken) <= LIMIT - RESERVE


def test_a_zone_too_many_is_refused_alone_and_others_may_change():
    held = filled(LIMIT - RESERVE)
    in_force = make_config(1, POOL, tuple(held))
    changed = [held[0].model_copy(update={"reserved": 7, "generation": 2}), *held[1:]]
    new = entry("new")

    assert ConfigRoom().choose(POOL, [*changed, new], in_force) == Choice(POOL, frozenset({"new"}))


def test_changes_go_on_beyond_what_new_zones_may_fill_and_then_wait_by_themselves():
    held = filled(LIMIT - RESERVE)
    in_force = make_config(1, POOL, tuple(held))
    grown = list(map(longer, held))

    choice = ConfigRoom().choose(POOL, grown, in_force)

    left = choice.left_out
    kept = [old if old.name in left else new for old, new in zip(held, grown, strict=True)]
    assert 0 < len(left) < len(held)
    assert LIMIT - RESERVE < size(kept) <= LIMIT + HASH
    assert left == {each.name for each in held[-len(left) :]}, "the last in turn wait"


def test_what_becomes_shorter_does_not_wait_for_what_becomes_longer():
    held = filled(LIMIT - HASH)
    in_force = make_config(1, POOL, tuple(held))
    shorter = held[-1].model_copy(update={"idle": held[-1].idle.model_copy(update={"after_seconds": 1.0})})

    left = ConfigRoom().choose(POOL, [*map(longer, held[:-1]), shorter], in_force).left_out

    assert held[-1].name not in left
    assert held[-2].name in left


def test_a_zone_that_goes_makes_room():
    held = filled(LIMIT - RESERVE)
    in_force = make_config(1, POOL, tuple(held))

    assert ConfigRoom().choose(POOL, [*held[2:], entry("new")], in_force) == Choice(POOL)


def test_what_the_zones_share_stays_as_it_is_if_there_is_no_room_for_more():
    levels = [{"name": noise(60), "tenants": [noise(60) for _ in range(60)]} for _ in range(10)]
    large = POOL.model_copy(update={"unknown_tenants": UnknownTenants.model_validate({"levels": levels})})
    held = filled(LIMIT - RESERVE)
    in_force = make_config(1, POOL, tuple(held))
    changed = [held[0].model_copy(update={"reserved": 7}), *held[1:]]

    assert ConfigRoom().choose(large, changed, in_force) == Choice(POOL)


def test_the_same_question_is_answered_once(monkeypatch: pytest.MonkeyPatch):
    room, wanted = ConfigRoom(), filled(LIMIT)
    answer = room.choose(POOL, wanted, None)
    monkeypatch.setattr(config_room, "pack_config", lambda _: pytest.fail("packed again"))

    assert room.choose(POOL, list(wanted), None) is answer


def test_what_a_zone_gives_back_belongs_to_no_zone_while_its_change_has_no_room():
    """Otherwise its neighbour would be granted blocks that the config still gives to the zone."""
    old = [zone(f"zone-{n:04}", age=1 + n % 58, tenant=noise(60), reserved=1) for n in range(1_200)]
    full = make_plan(pool(), old, in_force=None, last_generation=0, size=10_000, room=ConfigRoom())
    held = [each for each in old if full.decisions[each.meta.name].accepted][:-10]
    last = [zone("giving", reserved=9_000), zone("taking", age=59, reserved=0)]
    first = make_plan(pool(), [*held, *last], in_force=None, last_generation=0, size=10_000, room=ConfigRoom())
    assert first.config is not None
    assert all(decision.accepted for decision in first.decisions.values())
    # Others use up all room for changes, so there is none for giving back.
    grown = [zone(each.meta.name, tenant=each.tenant, reserved=1, generation=2, **own_terms()) for each in held]
    less = zone("giving", reserved=100, generation=2, **own_terms())
    more = zone("taking", age=59, reserved=8_000, generation=2)

    made = make_plan(
        pool(), [*grown, less, more], in_force=first.config, last_generation=1, size=10_000, room=ConfigRoom()
    )

    assert made.config is not None
    reserved = {each.name: each.reserved for each in made.config.zones}
    assert sum(int(blocks) for blocks in reserved.values()) <= 10_000
    assert made.decisions["giving"].reason == Reason.CONFIG_TOO_LARGE
    assert (reserved["giving"], made.decisions["taking"].reason) == (9_000, Reason.POOL_OVERCOMMITTED)


def test_a_new_zone_without_room_takes_no_blocks_from_others():
    held = [zone(f"zone-{n:04}", age=n % 50, tenant=noise(60)) for n in range(1_200)]
    first = make_plan(pool(), held, in_force=None, last_generation=0, size=10_000, room=ConfigRoom())
    assert first.config is not None
    kept = [each for each in held if first.decisions[each.meta.name].accepted]
    newer = zone("newer", age=59, tenant=noise(60), reserved=9_000)
    wants = zone(kept[0].meta.name, tenant=kept[0].tenant, reserved=5_000, generation=2)

    made = make_plan(
        pool(), [newer, wants, *kept[1:]], in_force=first.config, last_generation=1, size=10_000, room=ConfigRoom()
    )

    assert made.decisions["newer"].reason == Reason.CONFIG_TOO_LARGE
    assert made.decisions[wants.meta.name].reason == Reason.ACCEPTED


@pytest.mark.parametrize("generation", [MAX_GENERATION - 1, MAX_GENERATION, 10**30])
def test_a_generation_that_can_not_be_counted_on_from_is_not_counted_on_from(generation: int):
    held = zone("acme")
    first = make_plan(pool(), [held], in_force=None, last_generation=generation, size=100, room=ConfigRoom())
    assert first.config is not None
    assert first.config.generation == 1
    edited = first.config.model_copy(update={"generation": generation})
    changed = zone("acme", reserved=1, generation=2)

    made = make_plan(pool(), [changed], in_force=edited, last_generation=5, size=100, room=ConfigRoom())

    assert made.config is not None
    assert made.config.generation == 6


def test_the_plan_says_who_has_no_room_and_keeps_what_was_accepted():
    old = [zone(f"zone-{n:03}", age=n % 60, tenant=noise(60), reserved=1) for n in range(1_200)]
    first = make_plan(pool(), old, in_force=None, last_generation=0, size=10**6, room=ConfigRoom())
    assert first.config is not None
    accepted = {name for name, decision in first.decisions.items() if decision.accepted}
    zones = [*old, zone("late", tenant=noise(60), reserved=1)]

    made = make_plan(pool(), zones, in_force=first.config, last_generation=1, size=10**6, room=ConfigRoom())

    assert made.config is first.config
    assert accepted == {name for name, decision in made.decisions.items() if decision.accepted}
    assert len(accepted) < 1_200
    late = made.decisions["late"]
    assert (late.reason, late.entry) == (Reason.CONFIG_TOO_LARGE, None)
    assert "choose another ZonePool" in late.message


def test_a_change_without_room_keeps_the_generation_in_force_and_says_which():
    held = [zone(f"zone-{n:03}", age=n % 60, tenant=noise(60), reserved=1) for n in range(1_200)]
    first = make_plan(pool(), held, in_force=None, last_generation=0, size=10**6, room=ConfigRoom())
    assert first.config is not None
    grown = [zone(each.meta.name, tenant=each.tenant, reserved=1, generation=2, **own_terms()) for each in held]

    made = make_plan(pool(), grown, in_force=first.config, last_generation=1, size=10**6, room=ConfigRoom())

    waiting = [decision for decision in made.decisions.values() if decision.reason == Reason.CONFIG_TOO_LARGE]
    assert made.config is not None
    assert pack_config(made.config).size <= LIMIT + HASH
    assert {each.name for each in first.config.zones} >= {each.name for each in made.config.zones}
    assert any("Generation 1 stays in force" in decision.message for decision in waiting)


def test_a_pool_that_is_too_large_on_its_own_is_refused_with_its_zones():
    levels = [{"name": noise(60), "tenants": [noise(60) for _ in range(60)]} for _ in range(25)]
    large = pool(unknownTenants={"mode": "AutoRegister", "levels": levels})

    made = make_plan(large, [zone("acme")], in_force=None, last_generation=0, size=100, room=ConfigRoom())

    assert made.config is None
    assert "spec.unknownTenants.levels" in made.pool_left_out
    assert made.decisions["acme"].reason == Reason.CONFIG_TOO_LARGE


def test_a_tenant_that_moves_from_one_zone_to_another_is_never_in_the_config_twice():
    held = [zone(f"zone-{n:04}", tenant=noise(60)) for n in range(1_200)]
    first = make_plan(pool(), held, in_force=None, last_generation=0, size=100, room=ConfigRoom())
    assert first.config is not None
    full = [each for each in held if first.decisions[each.meta.name].accepted]
    swapped = [
        zone(each.meta.name, tenant=other.tenant, generation=2, **own_terms())
        for each, other in zip(full, [*full[1:], full[0]], strict=True)
    ]

    made = make_plan(pool(), swapped, in_force=first.config, last_generation=1, size=100, room=ConfigRoom())

    assert made.config is not None
    assert Reason.CONFIG_TOO_LARGE in {decision.reason for decision in made.decisions.values()}
    assert len({each.tenant for each in made.config.zones}) == len(made.config.zones)
