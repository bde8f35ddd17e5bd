"""What a config's shares amount to on an engine, and what a reload does while zones hold blocks."""

import pytest

from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle, Lending
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.config.configure import zone_specs
from tenantzone_runtime.zones.model.quota import Quota
from tests.zones.core import Core, declare
from tests.zones.registered import GOLD, anybody, arrive


def spec_of(capacity=255, **fields):
    zone = ZoneConfig(name="acme", tenant="acme-id", generation=7, **fields)
    (spec,) = zone_specs(make_config(1, PoolConfig(namespace="n", name="p"), (zone,)), capacity, 10)
    return spec


@pytest.fixture
def core():
    return Core()


def reserved(core):
    """The blocks that each zone has reserved, and those that it awaits."""
    return {tenant: (zone.spec.quota.reserved, zone.spec.awaited) for tenant, zone in core.ledger.zones.items()}


def wake(core):
    """Gives each zone a request, so that none lends."""
    for zone in core.ledger.zones.values():
        core.tenancy.request_arrived(zone, core.now)
    return list(core.ledger.zones.values())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, Quota(0, 255, 0), id="nothing said: no promise, the whole pool"),
        pytest.param({"reserved": "33%"}, Quota(84, 255, 84), id="a reservation is rounded down"),
        pytest.param({"limit": "33%"}, Quota(0, 85, 0), id="a limit is rounded up"),
        pytest.param({"reserved": "33%", "limit": "33%"}, Quota(84, 85, 84), id="so equal shares fit each other"),
        pytest.param({"limit": 1000}, Quota(0, 255, 0), id="a limit beyond the engine is the engine"),
        pytest.param(
            {"reserved": 100, "lending": Lending(lendable="25%")},
            Quota(100, 255, 25),
            id="lendable is a share of the reservation",
        ),
        pytest.param(
            {"reserved": 10, "lending": Lending(lendable="25%")}, Quota(10, 255, 2), id="what is lent is rounded down"
        ),
        pytest.param(
            {"reserved": 100, "lending": Lending(max_loan_seconds=0.0, grace_seconds=0.0)},
            Quota(100, 255, 0),
            id="a loan that would end at once is not granted",
        ),
        pytest.param(
            {"reserved": 100, "lending": Lending(max_loan_seconds=0.05, grace_seconds=0.04)},
            Quota(100, 255, 0),
            id="nor one that may end within a step",
        ),
        pytest.param(
            {"reserved": 100, "lending": Lending(max_loan_seconds=0.0, grace_seconds=1.0)},
            Quota(100, 255, 100),
            id="the time of grace counts",
        ),
        pytest.param(
            {"reserved": 100, "lending": Lending(grace_seconds=0.0)},
            Quota(100, 255, 100),
            id="a loan without a time lasts until its lender needs it",
        ),
        pytest.param(
            {"reserved": "2%", "lending": Lending(lendable=100)},
            Quota(5, 255, 5),
            id="no more is lent than what the reservation comes to here",
        ),
    ],
)
def test_shares(fields, expected):
    assert spec_of(**fields).quota == expected


@pytest.mark.parametrize(("capacity", "expected"), [(1, 0), (3, 0), (4, 1), (100, 25), (1001, 250)])
def test_the_same_percentage_on_engines_of_different_sizes(capacity, expected):
    assert spec_of(capacity, reserved="25%").quota.reserved == expected


@pytest.mark.parametrize("capacity", [1, 7, 99, 100, 101])
def test_percentages_that_add_up_to_a_hundred_fit_every_engine(capacity):
    zones = tuple(declare(f"zone-{share}", reserved=f"{share}%") for share in (33, 21, 17, 29))
    specs = zone_specs(make_config(1, PoolConfig(namespace="n", name="p"), zones), capacity, 10)
    assert sum(spec.quota.reserved for spec in specs) <= capacity


def test_everything_that_a_config_says_of_a_zone_arrives():
    spec = spec_of(
        priority=3,
        weight=5,
        eviction_policy="Clock",
        lending=Lending(borrowers="AnyPriority", max_loan_seconds=60.0, grace_seconds=5.0),
        idle={"after_seconds": 1.0, "evict_after_seconds": 2.0, "forget_after_seconds": 3.0},
        scrub="OnTransfer",
    )
    assert (spec.tenant, spec.name, spec.generation) == ("acme-id", "acme", 7)
    assert (spec.priority, spec.weight, spec.eviction_policy, spec.auto_registered) == (3, 5, "Clock", False)
    assert spec.lending == Lending(borrowers="AnyPriority", max_loan_seconds=60.0, grace_seconds=5.0)
    assert spec.idle == Idle(after_seconds=1.0, evict_after_seconds=2.0, forget_after_seconds=3.0)
    assert (spec.scrub, spec_of().scrub) == (True, False)


def test_a_zone_that_an_engine_is_too_small_for_reserves_nothing_there_and_awaits_it():
    above_limit, above_all = spec_of(capacity=100, reserved=60, limit="50%"), spec_of(capacity=100, reserved=101)
    assert (above_limit.quota, above_limit.awaited) == (Quota(reserved=0, limit=50, lendable=0), 60)
    assert (above_all.quota, above_all.awaited) == (Quota(reserved=0, limit=100, lendable=0), 101)


def test_reservations_that_fill_an_engine_to_the_last_block_fit_and_who_comes_after_them_awaits_its_own(core):
    core.apply(declare("acme", reserved=60), declare("burst", reserved=40))
    assert reserved(core) == {"acme": (60, 0), "burst": (40, 0)}
    core.apply(declare("acme", reserved=60), declare("burst", reserved=41), declare("calm", reserved=40))
    assert reserved(core) == {"acme": (60, 0), "burst": (0, 41), "calm": (40, 0)}
    core.apply(declare("acme", reserved=59), declare("burst", reserved=41))
    assert reserved(core) == {"acme": (59, 0), "burst": (41, 0)}


def test_what_a_declared_zone_awaits_is_given_by_configs_and_not_when_room_comes(core):
    core.apply(declare("acme", reserved=60), declare("burst", reserved=41), **anybody(GOLD))
    arrive(core, "gold-0")
    assert reserved(core) == {"acme": (60, 0), "burst": (0, 41), "gold-0": (30, 0)}
    core.upkeep(1e6)
    assert reserved(core)["burst"] == (0, 41)
    core.apply(declare("burst", reserved=41), **anybody(GOLD))
    assert reserved(core) == {"burst": (41, 0), "gold-0": (30, 0)}


def test_a_reservation_that_is_raised_counts_at_once(core):
    core.apply(declare("acme", reserved=10), declare("burst"))
    acme, burst = wake(core)
    core.hold(burst, cached=80)
    core.apply(declare("acme", reserved=70), declare("burst"))
    assert core.takeable(acme) == 70
    assert core.takeable(burst) == 30
    core.check()


def test_a_reservation_that_is_lowered_makes_surplus_of_what_was_safe(core):
    core.apply(declare("acme", reserved=70), declare("burst", reserved=30))
    acme, burst = wake(core)
    core.hold(acme, cached=70)
    core.take(burst, 30)
    core.apply(declare("acme", reserved=20), declare("burst", reserved=60))
    assert (acme.held, acme.surplus) == (70, 50)
    assert core.takeable(burst) == 30
    core.check()


def test_two_zones_swap_their_reservations_in_one_reload(core):
    core.apply(declare("acme", reserved=90), declare("burst", reserved=10))
    wake(core)
    core.apply(declare("acme", reserved=10), declare("burst", reserved=90))
    assert core.takeable(core.ledger.zones["burst"]) == 90
    core.check()


def test_a_limit_that_falls_below_what_is_held_evicts_the_cache_at_once_and_nothing_in_use(core):
    core.apply(declare("acme"))
    acme = core.ledger.zones["acme"]
    blocks = core.hold(acme, in_use=30, cached=40)
    assert core.apply(declare("acme", limit=50)) == [("acme", 20)]
    assert list(acme.cached) == blocks[50:]
    assert core.apply(declare("acme", limit=20)) == [("acme", 20)]
    assert (acme.in_use, acme.held, acme.counters.evicted) == (30, 30, {"limit": 40})


def test_a_zone_that_is_removed_gives_up_its_cache_at_once_and_is_gone(core):
    core.apply(declare("acme", reserved=60))
    core.hold(core.ledger.zones["acme"], cached=30)
    assert core.apply() == [("acme", 30)]
    assert core.ledger.zones == {}
    core.check()


def test_a_quiet_zone_that_is_removed_leaves_what_another_lends_as_it_was(core):
    core.apply(declare("acme", reserved=60, after=0.0), declare("calm", reserved=40, after=0.0))
    core.hold(core.ledger.zones["acme"], cached=20)
    core.hold(core.ledger.zones["calm"], cached=30)
    core.upkeep(1.0)
    core.apply(declare("calm", reserved=40, after=0.0))
    assert core.takeable(core.early()) == 100
    core.check()


def test_a_zone_that_is_removed_keeps_what_its_requests_use_until_they_end(core):
    core.apply(declare("acme", reserved=60, limit=70))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, 0.0)
    core.hold(acme, in_use=20, cached=30)
    assert core.apply(declare("burst", reserved=100)) == [("acme", 30)]
    assert (acme.leaving, acme.in_use, acme.spec.quota) == (True, 20, Quota(0, 70, 0))
    assert core.takeable(core.ledger.zones["burst"]) == 80
    core.release(acme, dropped=20)
    assert "acme" in core.ledger.zones
    core.tenancy.request_finished(acme, 1.0)
    assert list(core.ledger.zones) == ["burst"]
    core.check()


def test_a_zone_that_is_declared_again_before_its_requests_end_is_the_same_zone(core):
    core.apply(declare("acme", reserved=60))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, 0.0)
    core.take(acme, 20)
    core.apply()
    core.apply(declare("acme", reserved=60))
    assert core.ledger.zones == {"acme": acme}
    assert (acme.leaving, acme.spec.quota.reserved, acme.in_use) == (False, 60, 20)
    core.release(acme, kept=20)
    core.tenancy.request_finished(acme, 1.0)
    assert acme.held == 20


def test_a_zone_without_a_promise_is_declared_again_as_well(core):
    core.apply(declare("acme"))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, 0.0)
    core.apply()
    core.apply(declare("acme"))
    assert not acme.leaving
    assert core.tenancy.zone_for("acme", 1.0) is acme


def test_a_removal_that_is_reported_twice_is_one_removal(core):
    core.apply(declare("acme", reserved=60))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, 0.0)
    core.apply()
    core.apply()
    assert [note.change for note in core.events("lifecycle") if note.change == "leaving"] == ["leaving"]
    assert acme.leaving


def test_auto_registered_zones_outlive_a_reload_and_follow_the_new_template(core):
    core.apply(unknown_tenants=UnknownTenants(mode="AutoRegister", template=UnknownTenantTemplate(limit=50)))
    guest = core.tenancy.zone_for("guest", 0.0)
    core.hold(guest, cached=40)
    template = UnknownTenantTemplate(limit=30, priority=4)
    assert core.apply(unknown_tenants=UnknownTenants(mode="AutoRegister", template=template)) == [("guest", 10)]
    assert (guest.spec.quota.limit, guest.spec.priority) == (30, 4)


def test_when_unknown_tenants_are_refused_from_now_on_auto_registered_zones_leave(core):
    core.apply(unknown_tenants=UnknownTenants(mode="AutoRegister"))
    guest = core.tenancy.zone_for("guest", 0.0)
    core.hold(guest, cached=40)
    assert core.apply() == [("guest", 40)]
    assert core.ledger.zones == {}
    assert [note.change for note in core.events("lifecycle")][-1] == "forgotten"


def test_an_auto_registered_tenant_that_is_declared_keeps_its_cache(core):
    core.apply(unknown_tenants=UnknownTenants(mode="AutoRegister"))
    guest = core.tenancy.zone_for("guest", 0.0)
    core.hold(guest, cached=40)
    assert core.apply(declare("guest", reserved=50)) == []
    assert core.ledger.zones == {"guest": guest}
    assert (guest.spec.auto_registered, guest.held) == (False, 40)


def test_a_leaving_zones_tenant_comes_back_as_auto_registered(core):
    core.apply(declare("acme", reserved=60))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, 0.0)
    core.take(acme, 20)
    core.apply(unknown_tenants=UnknownTenants(mode="AutoRegister"))
    assert acme.leaving
    assert core.tenancy.zone_for("acme", 1.0) is acme
    assert (acme.leaving, acme.spec.auto_registered, acme.in_use) == (False, True, 20)


def test_a_changed_weight_reaches_the_fair_queue(core):
    core.apply(declare("acme", weight=2))
    acme = core.ledger.zones["acme"]
    assert acme.account.weight == 2
    core.apply(declare("acme", weight=5))
    assert acme.account.weight == 5


def test_a_changed_priority_changes_whose_turn_it_is_to_pay(core):
    core.apply(declare("acme", priority=1, after=0.0), declare("burst", priority=2, after=0.0))
    for zone in core.ledger.zones.values():
        core.hold(zone, cached=40)
    core.upkeep(1.0)
    assert core.ledger.totals.victims.quiet(None)[0].spec.tenant == "acme"
    core.apply(declare("acme", priority=3, after=0.0), declare("burst", priority=2, after=0.0))
    assert core.ledger.totals.victims.quiet(None)[0].spec.tenant == "burst"
    core.check()


def test_a_reload_that_says_the_same_changes_nothing(core):
    core.apply(declare("acme", reserved=60))
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=30)
    core.events("lifecycle")
    assert core.apply(declare("acme", reserved=60)) == []
    assert core.events("lifecycle") == []
    assert acme.held == 30


def test_what_failed_half_way_is_done_when_it_is_applied_again(core, monkeypatch):
    core.apply(declare("acme"), declare("burst"))
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=60)
    config = make_config(9, PoolConfig(namespace="n", name="p"), (declare("acme", limit=20), declare("extra")))
    core.events("lifecycle")

    def fail(*arguments):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(configure, "trim_to_limit", fail)
        with pytest.raises(MemoryError):
            core.tenancy.apply(config, core.now)
    assert acme.held == 60
    assert core.events("config_applied") == []
    assert core.settle_evictions(core.tenancy.apply(config, core.now)) == [("acme", 40)]
    assert set(core.ledger.zones) == {"acme", "extra"}
    (applied,) = core.events("config_applied")
    assert (applied.generation, applied.zones) == (9, 2)
    core.check()
