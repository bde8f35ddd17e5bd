"""Which zones have their own series, and what the overflow counts."""

import pytest

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tests.zones.core import declare

REGISTERING = UnknownTenants(
    mode="AutoRegister", template=UnknownTenantTemplate(idle={"after_seconds": 1, "forget_after_seconds": 10})
)


@pytest.fixture
def overflow(core):
    apply(core)
    core.ledger.overflow.max_apart = 1
    return core.ledger.overflow


def apply(core, *zones):
    pool = PoolConfig(namespace="n", name="p", unknown_tenants=REGISTERING)
    core.tenancy.apply(make_config(1, pool, zones), core.now)


def register(core, *tenants):
    return [core.tenancy.zone_for(tenant, core.now) for tenant in tenants]


def count(zone, tokens):
    zone.counters.prompt_tokens += tokens
    zone.counters.block_seconds += tokens / 10
    zone.counters.queue_time.observe(float(tokens))
    zone.counters.request_ended("stop")


def counted(overflow):
    counters = total(overflow)
    return counters.prompt_tokens, counters.queue_time.count, counters.requests.get("stop", 0)


def total(overflow):
    for zone in overflow.members:
        overflow.count(zone)
    return overflow.total()


def test_registered_zones_beyond_the_cap_are_members(core, overflow):
    first, second, third = register(core, "first", "second", "third")
    assert [zone in overflow for zone in (first, second, third)] == [False, True, True]
    assert list(overflow.members) == [second, third]


def test_declared_zones_are_never_members(core, overflow):
    apply(core, declare("one"), declare("two"), declare("three"))
    assert (list(overflow.members), overflow.is_in_use) == ([], False)


def test_members_are_added_up(core, overflow):
    _, second, third = register(core, "first", "second", "third")
    count(second, 5)
    count(third, 7)
    assert counted(overflow) == (12, 2, 2)
    assert counted(overflow) == (12, 2, 2), "looking changes nothing"
    count(third, 1)
    assert counted(overflow) == (13, 3, 3)


def test_a_member_stays_one_when_a_place_becomes_free(core, overflow):
    first, second = register(core, "first", "second")
    core.tenancy.request_arrived(second, 0.0)
    core.upkeep(10.0)
    assert first.spec.tenant not in core.ledger.zones
    core.tenancy.request_finished(second, 10.0)
    apply(core, declare("another"))
    assert second in overflow
    (third,) = register(core, "third")
    assert third not in overflow, "the place is for the next one to come"


def test_what_a_forgotten_member_counted_stays(core, overflow):
    _, second = register(core, "first", "second")
    count(second, 5)
    core.upkeep(10.0)
    assert second.spec.tenant not in core.ledger.zones
    assert not list(overflow.members)
    assert counted(overflow) == (5, 1, 1)
    assert overflow.is_in_use, "its series go on"


def test_a_member_that_the_config_declares_gets_series_of_its_own_and_leaves_behind_what_it_counted(core, overflow):
    _, second = register(core, "first", "second")
    count(second, 5)
    apply(core, declare("second"))
    assert second not in overflow
    count(second, 100)
    assert counted(overflow) == (5, 1, 1)


def test_a_zone_that_becomes_a_member_later_brings_nothing_with_it(core, overflow):
    register(core, "first")
    apply(core, declare("known"))
    known = core.ledger.zones["known"]
    core.tenancy.request_arrived(known, 0.0)
    count(known, 100)
    apply(core)
    assert register(core, "known") == [known], "while a request of it runs, it is the same zone"
    assert known in overflow
    assert counted(overflow) == (0, 0, 0)
    count(known, 5)
    assert counted(overflow) == (5, 1, 1)


def test_a_zone_that_is_declared_no_more_keeps_its_series_if_there_is_a_place(core, overflow):
    apply(core, declare("known"))
    core.tenancy.request_arrived(core.ledger.zones["known"], 0.0)
    apply(core)
    (known,) = register(core, "known")
    assert known not in overflow
    (next_one,) = register(core, "next")
    assert next_one in overflow


def test_a_zone_that_bears_the_overflows_names_is_a_member_so_that_no_series_is_there_twice(core, overflow):
    apply(core, declare("overflow"))
    zone = core.ledger.zones["overflow"]
    assert zone in overflow
    count(zone, 5)
    assert counted(overflow) == (5, 1, 1)


def test_rounding_makes_no_counter_of_the_overflow_decrease(core, overflow):
    _, *members = register(core, "first", *(f"member-{number}" for number in range(20)))
    seen = 0.0
    for round in range(10):
        for number, zone in enumerate(members):
            zone.counters.block_seconds += 0.1 + number / 7 + round * 1e9
            now_there = total(overflow).block_seconds
            assert now_there >= seen
            seen = now_there
    for zone in members:
        overflow.remove(zone)
        assert total(overflow).block_seconds >= seen
        seen = total(overflow).block_seconds
