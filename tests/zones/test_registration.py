"""Zones of tenants that no config declares: what they are given, and when they have what their level reserves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.zones.config.registration import spec_for
from tenantzone_runtime.zones.model.quota import Quota
from tests.zones.core import Core, declare, releasing
from tests.zones.registered import GOLD, SMALL, anybody, arrive, level, reserved

CAPACITY = 100


@pytest.fixture
def core():
    return Core(CAPACITY)


def given_by(*levels, tenant="guest", capacity=255, room=255, **template):
    return spec_for(anybody(*levels, **template)["unknown_tenants"], tenant, capacity, room)


def test_the_template_gives_a_tenant_a_limit_and_times_and_no_promise():
    spec = given_by(limit="33%", priority=-2, after=1.0, evict_after=2.0, forget_after=3.0)
    assert (spec.tenant, spec.name, spec.generation, spec.priority) == ("guest", "guest", 0, -2)
    assert (spec.quota, spec.auto_registered, spec.weight) == (Quota(0, 85, 0), True, 1)
    assert (spec.level, spec.awaited) == ("", 0)
    assert spec.idle == Idle(after_seconds=1.0, evict_after_seconds=2.0, forget_after_seconds=3.0)
    assert given_by().quota == Quota(0, 255, 0)
    assert given_by(limit=999).quota == Quota(0, 255, 0)


def test_a_level_gives_a_tenant_all_but_the_times_which_are_the_templates():
    gold = level("gold", reserved="33%", limit="50%", weight=3, priority=5)
    spec = given_by(gold, tenant="gold-7", limit=10, priority=-2, after=1.0, release=releasing((25, 5.0)))
    assert (spec.tenant, spec.name, spec.generation, spec.auto_registered) == ("gold-7", "gold-7", 0, True)
    assert (spec.quota, spec.weight, spec.priority) == (Quota(84, 128, 84), 3, 5)
    assert (spec.level, spec.awaited) == ("gold", 0)
    assert (spec.idle.after_seconds, spec.idle.release.share, spec.idle.release.every_seconds) == (1.0, "25%", 5.0)


@pytest.mark.parametrize(
    ("tenant", "expected"),
    [
        pytest.param("gold-7", "first", id="the first level that has it"),
        pytest.param("gold-", "first", id="nothing behind the beginning"),
        pytest.param("gold", "second", id="a name"),
        pytest.param("golden", "", id="not a name that only begins so"),
        pytest.param("my-gold-7", "", id="not one that has it inside"),
        pytest.param("Gold-7", "", id="upper case is another name"),
        pytest.param("silver", "third", id="one of two names"),
        pytest.param("bronze", "third", id="the other"),
    ],
)
def test_the_level_of_a_tenant(tenant, expected):
    levels = (
        level("first", tenants=["gold-*"]),
        level("second", tenants=["gold-7", "gold"]),
        level("third", tenants=["silver", "bronze"]),
    )
    assert given_by(*levels, tenant=tenant).level == expected


def test_a_star_alone_is_for_all():
    assert given_by(level("first", tenants=["acme"]), level("rest", tenants=["*"]), tenant="guest").level == "rest"


@pytest.mark.parametrize(("room", "expected"), [(84, (84, 0)), (83, (0, 84)), (0, (0, 84)), (255, (84, 0))])
def test_a_reservation_is_taken_whole_or_not_at_all(room, expected):
    spec = given_by(level("gold", reserved="33%", weight=3), tenant="gold-7", room=room)
    assert (spec.quota.reserved, spec.awaited) == expected
    assert (spec.quota.lendable, spec.weight) == (expected[0], 3)


def test_where_a_number_and_a_percentage_contradict_each_other_the_limit_counts():
    assert given_by(level("gold", reserved=60, limit="10%"), tenant="gold-7").quota == Quota(26, 26, 26)


def test_what_a_level_reserves_is_a_promise_like_any_other(core):
    core.apply(declare("burst"), **anybody(GOLD))
    gold = arrive(core, "gold-1")
    burst = core.ledger.zones["burst"]
    core.tenancy.request_arrived(burst, 0.0)
    core.hold(burst, cached=80)
    assert core.takeable(burst) == 70
    assert core.takeable(gold) == 30
    assert gold.account.weight == 3
    core.check()


def test_who_comes_when_no_room_is_left_is_registered_without_a_reservation(core):
    core.apply(declare("acme", reserved=50), **anybody(GOLD, SMALL))
    for tenant in ("gold-1", "gold-2", "small-1"):
        arrive(core, tenant)
    assert reserved(core) == {"gold-1": (30, 0), "gold-2": (0, 30), "small-1": (10, 0)}
    core.check()


def test_who_awaits_a_reservation_gets_it_when_another_one_is_forgotten_the_oldest_first(core):
    core.apply(declare("acme", reserved=60), **anybody(GOLD, SMALL, forget_after=100.0))
    for now, tenant in enumerate(("gold-1", "gold-2", "gold-3", "small-1")):
        arrive(core, tenant, now)
        core.tenancy.request_arrived(core.ledger.zones[tenant], now)
    assert reserved(core) == {"gold-1": (30, 0), "gold-2": (0, 30), "gold-3": (0, 30), "small-1": (10, 0)}
    core.tenancy.request_finished(core.ledger.zones["gold-1"], 10.0)
    core.upkeep(109.9)
    assert reserved(core)["gold-2"] == (0, 30)
    core.events("lifecycle")
    core.upkeep(110.0)
    assert reserved(core) == {"gold-2": (30, 0), "gold-3": (0, 30), "small-1": (10, 0)}
    assert [(note.zone, note.change) for note in core.events("lifecycle")] == [
        ("gold-1", "forgotten"),
        ("gold-2", "changed"),
    ]
    core.check()


def test_who_awaits_less_than_the_one_before_gets_what_the_other_can_not_have(core):
    core.apply(declare("acme", reserved=60), **anybody(level("huge", reserved=50), GOLD, SMALL, forget_after=100.0))
    for tenant in ("small-1", "small-2", "small-3"):
        arrive(core, tenant, 0.0)
    for tenant in ("huge-1", "gold-1"):
        core.tenancy.request_arrived(arrive(core, tenant, 1.0), 1.0)
    core.upkeep(100.0)
    assert reserved(core) == {"huge-1": (0, 50), "gold-1": (30, 0)}


def test_a_zone_that_leaves_without_a_reservation_gives_none_to_others(core):
    core.apply(declare("acme", reserved=75), **anybody(GOLD, forget_after=100.0))
    arrive(core, "guest", 0.0)
    gold = arrive(core, "gold-1", 50.0)
    before = gold.spec
    core.upkeep(100.0)
    assert list(core.ledger.zones) == ["acme", "gold-1"]
    assert gold.spec is before


def test_declared_reservations_go_before_registered_ones_and_the_youngest_lose_theirs(core):
    core.apply(**anybody(GOLD, SMALL))
    for tenant in ("gold-1", "gold-2", "gold-3", "small-1"):
        arrive(core, tenant)
    assert reserved(core) == {"gold-1": (30, 0), "gold-2": (30, 0), "gold-3": (30, 0), "small-1": (10, 0)}
    core.apply(declare("acme", reserved=31), **anybody(GOLD, SMALL))
    assert reserved(core) == {"gold-1": (30, 0), "gold-2": (30, 0), "gold-3": (0, 30), "small-1": (0, 10)}
    core.apply(declare("acme", reserved=100), **anybody(GOLD, SMALL))
    assert {held for held, _ in reserved(core).values()} == {0}
    core.check()


def test_who_has_a_reservation_keeps_it_before_an_older_one_that_awaits_one(core):
    core.apply(declare("acme", reserved=80), **anybody(GOLD, SMALL))
    for tenant in ("gold-1", "small-1", "small-2"):
        arrive(core, tenant)
    core.apply(declare("acme", reserved=65), **anybody(GOLD, SMALL))
    assert reserved(core) == {"gold-1": (0, 30), "small-1": (10, 0), "small-2": (10, 0)}
    core.apply(declare("acme", reserved=50), **anybody(GOLD, SMALL))
    assert reserved(core) == {"gold-1": (30, 0), "small-1": (10, 0), "small-2": (10, 0)}


def test_a_reload_that_says_the_same_changes_no_registered_zone(core):
    core.apply(declare("acme", reserved=60), **anybody(GOLD))
    for tenant in ("gold-1", "gold-2"):
        arrive(core, tenant)
    core.events("lifecycle")
    core.apply(declare("acme", reserved=60), **anybody(GOLD))
    assert core.events("lifecycle") == []


def test_a_tenantzone_takes_a_registered_zone_over_with_its_reservation(core):
    core.apply(**anybody(GOLD))
    first = arrive(core, "gold-1")
    core.hold(first, cached=20)
    core.apply(declare("gold-1", reserved=90), **anybody(GOLD))
    assert core.ledger.zones == {"gold-1": first}
    assert (first.spec.quota.reserved, first.spec.auto_registered, first.spec.level, first.held) == (90, False, "", 20)


def test_levels_follow_the_config_and_go_with_it(core):
    core.apply(**anybody(GOLD))
    zone = arrive(core, "gold-1")
    core.hold(zone, cached=50)
    assert core.apply(**anybody(level("gold", reserved=20, limit=40))) == [("gold-1", 10)]
    assert (zone.spec.quota, zone.spec.weight) == (Quota(20, 40, 20), 1)
    core.apply(**anybody(limit=70))
    assert (zone.spec.quota, zone.spec.level, zone.spec.awaited) == (Quota(0, 70, 0), "", 0)


def test_a_zone_that_is_leaving_is_promised_nothing_and_awaits_nothing(core):
    core.apply(declare("acme", reserved=50), **anybody(GOLD, forget_after=50.0))
    first, second = arrive(core, "gold-1"), arrive(core, "gold-2")
    for zone in (first, second):
        core.tenancy.request_arrived(zone, 0.0)
        core.take(zone, 5)
    assert reserved(core) == {"gold-1": (30, 0), "gold-2": (0, 30)}
    core.apply(declare("acme", reserved=100))
    assert (first.leaving, second.leaving) == (True, True)
    assert reserved(core) == {"gold-1": (0, 0), "gold-2": (0, 0)}
    assert core.ledger.totals.promised == 100


def test_a_leaving_zone_whose_tenant_comes_back_has_what_its_level_reserves_if_it_fits(core):
    core.apply(declare("gold-1", reserved=60))
    zone = core.ledger.zones["gold-1"]
    core.tenancy.request_arrived(zone, 0.0)
    core.take(zone, 20)
    core.apply(declare("acme", reserved=70), **anybody(GOLD))
    assert arrive(core, "gold-1") is zone
    assert (zone.leaving, zone.spec.quota.reserved, zone.in_use) == (False, 30, 20)


# Random registrations and reloads: promises fit, and registered zones do not affect declared ones.

TENANTS = [f"{name}-{number}" for name in ("gold", "small", "huge", "guest") for number in range(3)]


@st.composite
def reloads(draw):
    shares = draw(st.lists(st.integers(0, 60), max_size=3))
    declared = [declare(tenant, reserved=share) for tenant, share in zip(TENANTS[::3], shares, strict=False)]
    levels = [
        level(name, reserved=draw(st.one_of(st.integers(0, 120), st.sampled_from(["10%", "35%", "100%"]))))
        for name in draw(st.permutations(["gold", "small", "huge"]))[: draw(st.integers(0, 3))]
    ]
    return declared, anybody(*levels, forget_after=draw(st.sampled_from([None, 5.0, 20.0])))


steps = st.one_of(
    reloads(), st.sampled_from(TENANTS), st.sampled_from(TENANTS), st.sampled_from([1.0, 5.0, 10.0]).map(float)
)


def do(core, step):
    """Does a reload, a request that comes and ends at once, or lets time pass."""
    if isinstance(step, str):
        zone = arrive(core, step)
        if zone is not None:
            core.tenancy.request_arrived(zone, core.now)
            core.tenancy.request_finished(zone, core.now)
    elif isinstance(step, float):
        core.upkeep(core.now + step)
    else:
        declared, pool = step
        core.apply(*declared, **pool)


@given(st.lists(steps, min_size=1, max_size=40))
def test_whichever_zone_comes_and_whatever_is_declared_what_is_promised_fits(history):
    core = Core(CAPACITY)
    core.apply(**anybody(GOLD, SMALL))
    for step in history:
        had = {tenant: amounts for tenant, amounts in reserved(core).items() if amounts[0]}
        do(core, step)
        core.check()
        assert core.ledger.totals.promised <= CAPACITY
        room = CAPACITY - core.ledger.totals.promised
        for tenant, (amount, awaited) in reserved(core).items():
            assert not (amount and awaited), "whole or not at all"
            assert not 0 < awaited <= room, f"{tenant} awaits what would fit"
        if isinstance(step, str):
            assert had.items() <= reserved(core).items(), "a zone lost a reservation to a newcomer"


def test_what_a_forgotten_zone_leaves_is_given_even_if_another_has_come_meanwhile(core):
    """Time passes in a pause: one zone takes what is free, the next one awaits what the forgotten zone leaves."""
    levels = [level("gold", reserved=20), level("plenty", reserved=30)]
    core.apply(
        declare("acme", reserved=50), declare("other", after=1.0), **anybody(*levels, after=1.0, forget_after=5.0)
    )
    arrive(core, "gold-1", now=0.0)
    parts = core.tenancy.upkeep_in_parts(6.0, lambda: core.free)
    next(parts)
    assert "gold-1" in core.ledger.zones
    arrive(core, "plenty-1")
    late = arrive(core, "gold-2")
    assert late.spec.awaited == 20
    for _ in parts:
        pass
    assert "gold-1" not in core.ledger.zones
    assert reserved(core) == {"plenty-1": (30, 0), "gold-2": (20, 0)}
