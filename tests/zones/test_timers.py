"""When time alone changes a zone."""

import pytest

from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.zones.blocks import states
from tests.zones.core import Core, declare, releasing


@pytest.fixture
def core():
    return Core()


def serve(core, zone, *, begin, end, cached=0):
    """Runs a request of the zone from `begin` to `end` that leaves blocks cached."""
    core.tenancy.request_arrived(zone, begin)
    core.hold(zone, cached=cached)
    core.tenancy.request_finished(zone, end)


def open_to_anybody(*, release=None, **idle):
    times = {f"{name}_seconds": value for name, value in idle.items()}
    template = UnknownTenantTemplate(limit=50, idle=Idle(**times, release=releasing(release)))
    return {"unknown_tenants": UnknownTenants(mode="AutoRegister", template=template)}


def test_a_zone_is_quiet_when_its_window_is_over_and_not_before(core):
    core.apply(declare("acme", reserved=40, after=60.0))
    acme = core.ledger.zones["acme"]
    serve(core, acme, begin=1.0, end=10.0)
    core.upkeep(69.9)
    assert not acme.quiet
    core.upkeep(70.0)
    assert acme.quiet


def test_a_zone_is_quiet_from_birth_until_its_first_request(core):
    core.apply(declare("acme", reserved=40, after=60.0), now=5.0)
    acme = core.ledger.zones["acme"]
    assert acme.quiet
    core.apply(declare("acme", reserved=40, after=600.0), now=6.0)
    core.upkeep(6.0)
    assert acme.quiet, "of no window was anything used"
    core.tenancy.request_arrived(acme, 7.0)
    assert not acme.quiet


def test_while_a_request_is_there_no_time_makes_a_zone_quiet(core):
    core.apply(declare("acme", after=60.0, evict_after=120.0))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, 1.0)
    core.hold(acme, cached=5)
    assert core.upkeep(1e6) == []
    assert not acme.quiet
    core.tenancy.request_finished(acme, 1e6)
    core.upkeep(1e6 + 59)
    assert not acme.quiet
    assert core.upkeep(1e6 + 120) == [("acme", 5)]


def test_a_window_of_no_time_is_over_as_soon_as_the_last_request_ends(core):
    core.apply(declare("acme", reserved=40, after=0.0))
    acme = core.ledger.zones["acme"]
    core.upkeep(1.0)
    serve(core, acme, begin=2.0, end=3.0)
    core.upkeep(3.0)
    assert acme.quiet


def test_after_evict_after_all_blocks_go_and_the_zone_stays(core):
    core.apply(declare("acme", reserved=40, after=60.0, evict_after=120.0))
    acme = core.ledger.zones["acme"]
    serve(core, acme, begin=0.0, end=0.0, cached=30)
    assert core.upkeep(119.9) == []
    assert core.upkeep(120.0) == [("acme", 30)]
    assert acme.state == "Evicted"
    assert acme.counters.evicted == {"idle": 30}
    assert core.tenancy.zone_for("acme", 121.0) is acme


def test_an_empty_zone_is_evicted_by_time_as_well(core):
    core.apply(declare("acme", evict_after=120.0))
    core.upkeep(119.9)
    assert core.ledger.zones["acme"].state == "Idle"
    assert core.upkeep(120.0) == []
    assert core.ledger.zones["acme"].state == "Evicted"


def test_a_quiet_zone_lets_its_cache_go_in_steps_the_longest_untouched_first(core):
    core.apply(declare("acme", after=60.0, release=(25, 10.0)))
    acme = core.ledger.zones["acme"]
    serve(core, acme, begin=0.0, end=5.0, cached=100)
    order = list(acme.cached)
    assert core.upkeep(74.9) == []
    assert acme.quiet
    for step, now in enumerate((75.0, 85.0, 95.0), start=1):
        assert core.upkeep(now - 0.1) == []
        assert core.upkeep(now) == [("acme", 25)]
        assert list(acme.cached) == order[25 * step :]
        assert acme.state == "Idle"
    assert core.upkeep(105.0) == [("acme", 25)]
    assert (acme.state, acme.counters.evicted) == ("Evicted", {"idle": 100})
    assert core.tenancy._timers.of(acme) is None
    assert core.tenancy.zone_for("acme", 106.0) is acme


def test_at_evict_after_what_the_steps_have_left_goes(core):
    core.apply(declare("acme", after=60.0, release=(25, 10.0), evict_after=85.0))
    serve(core, core.ledger.zones["acme"], begin=0.0, end=0.0, cached=40)
    assert [core.upkeep(now) for now in (70.0, 80.0, 84.9, 85.0)] == [
        [("acme", 10)],
        [("acme", 10)],
        [],
        [("acme", 20)],
    ]
    assert core.ledger.zones["acme"].state == "Evicted"


def test_shares_that_are_no_whole_blocks_leave_nothing_in_the_end(core):
    core.apply(declare("acme", after=0.0, release=(30, 1.0)))
    serve(core, core.ledger.zones["acme"], begin=0.0, end=0.0, cached=5)
    left = [core.upkeep(now) and core.ledger.zones["acme"].held for now in (1.0, 2.0, 3.0, 4.0)]
    assert left == [3, 2, 0, []]
    assert core.ledger.zones["acme"].state == "Evicted"


def test_a_step_that_comes_late_is_made_up_for(core):
    core.apply(declare("acme", after=60.0, release=(25, 10.0)))
    serve(core, core.ledger.zones["acme"], begin=0.0, end=0.0, cached=40)
    core.upkeep(60.0)
    assert core.upkeep(89.9) == [("acme", 20)]
    assert core.upkeep(90.0) == [("acme", 10)]


def test_what_others_have_taken_meanwhile_counts(core):
    core.apply(declare("acme", after=60.0, release=(25, 10.0)))
    acme = core.ledger.zones["acme"]
    serve(core, acme, begin=0.0, end=0.0, cached=40)
    core.upkeep(60.0)
    core.ledger.evict(acme, 15, "quiet")
    assert [core.upkeep(now) for now in (70.0, 80.0)] == [[], [("acme", 5)]]


def test_a_request_ends_the_steps_and_the_next_ones_begin_from_what_is_there_then(core):
    core.apply(declare("acme", after=60.0, release=(50, 10.0)))
    acme = core.ledger.zones["acme"]
    serve(core, acme, begin=0.0, end=0.0, cached=40)
    assert core.upkeep(70.0) == [("acme", 20)]
    serve(core, acme, begin=71.0, end=71.0, cached=10)
    assert [core.upkeep(now) for now in (140.9, 141.0)] == [[], [("acme", 15)]]


def test_the_steps_of_a_zone_that_lent_before_its_window_was_over_begin_from_what_it_had_cached_then(core):
    core.apply(declare("acme", after=60.0, release=(25, 10.0)))
    acme = core.ledger.zones["acme"]
    serve(core, acme, begin=0.0, end=0.0, cached=40)
    states.lend_what_is_unused(core.ledger)
    assert acme.quiet
    assert [core.upkeep(now) for now in (60.0, 70.0)] == [[], [("acme", 10)]]


def test_an_empty_zone_is_evicted_with_the_first_step(core):
    core.apply(declare("acme", after=60.0, release=(25, 10.0)))
    core.upkeep(60.0)
    assert core.ledger.zones["acme"].state == "Idle"
    core.upkeep(70.0)
    assert core.ledger.zones["acme"].state == "Evicted"


def test_steps_that_a_config_brings_count_from_when_the_zone_became_quiet(core):
    core.apply(declare("acme", after=60.0))
    serve(core, core.ledger.zones["acme"], begin=0.0, end=0.0, cached=40)
    core.upkeep(100.0)
    core.apply(declare("acme", after=60.0, release=(25, 20.0)), now=100.0)
    assert core.upkeep(100.0) == [("acme", 20)]


def test_the_template_gives_steps_to_zones_of_unknown_tenants(core):
    core.apply(**open_to_anybody(after=60.0, forget_after=75.0, release=(50, 10.0)))
    serve(core, core.tenancy.zone_for("guest", 0.0), begin=0.0, end=0.0, cached=20)
    assert [core.upkeep(now) for now in (70.0, 75.0)] == [[("guest", 10)], [("guest", 10)]]
    assert core.ledger.zones == {}


def test_a_window_ends_exactly_when_its_timer_goes_off(core):
    # As floats, 0.7 + 0.1 - 0.7 is less than 0.1.
    core.apply(declare("acme", after=0.1), now=0.7)
    acme = core.ledger.zones["acme"]
    core.upkeep(0.7 + 0.1)
    assert acme.quiet


def test_without_evict_after_a_zone_keeps_its_cache_for_ever(core):
    core.apply(declare("acme", after=60.0))
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=30)
    assert core.upkeep(1e9) == []
    assert (acme.state, acme.quiet) == ("Idle", True)


def test_zones_go_quiet_each_in_its_own_time(core):
    core.apply(declare("late", after=90.0), declare("early", after=30.0), declare("middle", after=60.0))
    for zone in core.ledger.zones.values():
        serve(core, zone, begin=0.0, end=0.0)
    quiet = []
    for now in (29.0, 30.0, 60.0, 90.0):
        core.upkeep(now)
        quiet.append({tenant for tenant, zone in core.ledger.zones.items() if zone.quiet})
    assert quiet == [set(), {"early"}, {"early", "middle"}, {"early", "middle", "late"}]


def test_a_config_that_shortens_a_window_counts_from_the_last_activity(core):
    core.apply(declare("acme", after=3600.0))
    acme = core.ledger.zones["acme"]
    serve(core, acme, begin=0.0, end=0.0)
    core.upkeep(100.0)
    assert not acme.quiet
    core.apply(declare("acme", after=60.0), now=100.0)
    core.upkeep(100.0)
    assert acme.quiet


def test_a_config_that_lengthens_a_window_ends_the_quiet(core):
    core.apply(declare("acme", after=60.0))
    acme = core.ledger.zones["acme"]
    serve(core, acme, begin=0.0, end=0.0)
    core.upkeep(60.0)
    assert acme.quiet
    core.apply(declare("acme", after=120.0), now=61.0)
    core.upkeep(61.0)
    assert not acme.quiet
    core.upkeep(120.0)
    assert acme.quiet


def test_an_unknown_tenant_gets_a_zone_of_the_template_and_is_forgotten_after_its_time(core):
    core.apply(**open_to_anybody(after=60.0, forget_after=300.0))
    guest = core.tenancy.zone_for("guest", 0.0)
    assert (guest.spec.auto_registered, guest.spec.quota.reserved, guest.spec.quota.limit) == (True, 0, 50)
    serve(core, guest, begin=0.0, end=10.0, cached=20)
    assert core.upkeep(309.9) == []
    assert core.upkeep(310.0) == [("guest", 20)]
    assert core.ledger.zones == {}
    core.check()


def test_a_tenant_whose_only_request_was_refused_is_forgotten_as_well(core):
    core.now = 5.0
    core.apply(**open_to_anybody(after=60.0, forget_after=300.0))
    guest = core.tenancy.zone_for("guest", 10.0)
    core.apply(**open_to_anybody(after=60.0, forget_after=300.0), now=20.0)
    core.upkeep(309.9)
    assert core.ledger.zones == {"guest": guest}
    core.upkeep(310.0)
    assert core.ledger.zones == {}


def test_who_comes_back_after_it_was_forgotten_is_a_new_zone(core):
    core.apply(**open_to_anybody(forget_after=300.0))
    first = core.tenancy.zone_for("guest", 0.0)
    core.upkeep(300.0)
    again = core.tenancy.zone_for("guest", 301.0)
    assert again is not first
    assert (again.born, again.spec) == (301.0, first.spec)
    assert [note.change for note in core.events("lifecycle") if note.zone == "guest"][-1] == "registered"


def test_an_auto_registered_zone_with_requests_is_not_forgotten(core):
    core.apply(**open_to_anybody(forget_after=300.0))
    guest = core.tenancy.zone_for("guest", 0.0)
    core.tenancy.request_arrived(guest, 0.0)
    core.upkeep(1e6)
    assert core.ledger.zones == {"guest": guest}


def test_a_declared_zone_is_never_forgotten(core):
    core.apply(declare("acme", forget_after=300.0))
    core.upkeep(1e9)
    assert "acme" in core.ledger.zones


def test_only_zones_that_were_registered_for_a_tenant_are_forgotten(core):
    guest = core.zone("guest", auto=True, forget_after=300.0)
    young = core.zone("young", auto=True, forget_after=300.0, active=900.0)
    declared, kept = core.zone("acme", forget_after=300.0), core.zone("kept", auto=True)
    core.now = 1000.0
    assert [states.is_forgotten(core.ledger, zone) for zone in (guest, young, declared, kept)] == [True] + 3 * [False]


def test_the_next_deadline_is_the_first_moment_later_than_what_was_looked_at(core):
    times = {"after": 60.0, "evict_after": 120.0, "forget_after": 300.0, "active": 5.0}
    guest, acme = core.zone("guest", auto=True, **times), core.zone("acme", **times)
    assert [states.deadline(guest, seen) for seen in (0.0, 65.0, 125.0, 305.0)] == [65.0, 125.0, 305.0, None]
    assert [states.deadline(acme, seen) for seen in (0.0, 65.0, 125.0)] == [65.0, 125.0, None]
    core.tenancy.request_arrived(guest, 5.0)
    assert states.deadline(guest, 0.0) is None


def test_the_next_step_of_a_release_is_a_deadline_until_the_last_one_is_over(core):
    calm = core.zone("calm", after=60.0, release=(40, 10.0), evict_after=75.0, active=5.0)
    seen = (0.0, 65.0, 75.0, 80.0, 85.0, 95.0)
    assert [states.deadline(calm, moment) for moment in seen] == [65.0, 75.0, 80.0, 85.0, 95.0, None]


def test_a_zone_that_nothing_more_awaits_is_not_looked_at_again(core):
    core.apply(declare("acme", after=60.0, evict_after=120.0))
    core.upkeep(60.0)
    assert core.tenancy._timers.of(core.ledger.zones["acme"]) == 120.0
    core.upkeep(120.0)
    assert core.tenancy._timers.of(core.ledger.zones["acme"]) is None


def test_a_quiet_zone_gives_up_blocks_in_the_step_in_which_it_became_quiet(core):
    core.apply(declare("acme", reserved=40, after=60.0), declare("burst"))
    serve(core, core.ledger.zones["acme"], begin=0.0, end=0.0)
    core.upkeep(59.0)
    assert core.takeable(core.ledger.zones["burst"]) == 60
    core.upkeep(60.0)
    assert core.takeable(core.ledger.zones["burst"]) == 100
