"""When time alone changes a zone."""

import pytest

from tenantzone_contract.config import Idle, UnknownTenants, UnknownTenantTemplate
from tenantzone_runtime.zones import states
from tests.zones.zoo import Zoo, declare, releasing


@pytest.fixture
def zoo():
    return Zoo()


def serve(zoo, zone, *, begin, end, cached=0):
    """A request of the zone, from when to when, that leaves blocks cached."""
    zoo.tenancy.request_arrived(zone, begin)
    zoo.hold(zone, cached=cached)
    zoo.tenancy.request_finished(zone, end)


def open_to_anybody(*, release=None, **idle):
    times = {f"{name}_seconds": value for name, value in idle.items()}
    template = UnknownTenantTemplate(limit=50, idle=Idle(**times, release=releasing(release)))
    return {"unknown_tenants": UnknownTenants(mode="AutoRegister", template=template)}


def test_a_zone_is_quiet_when_its_window_is_over_and_not_before(zoo):
    zoo.apply(declare("acme", reserved=40, after=60.0))
    acme = zoo.ledger.zones["acme"]
    serve(zoo, acme, begin=1.0, end=10.0)
    zoo.upkeep(69.9)
    assert not acme.quiet
    zoo.upkeep(70.0)
    assert acme.quiet


def test_a_zone_is_quiet_from_birth_until_its_first_request(zoo):
    zoo.apply(declare("acme", reserved=40, after=60.0), now=5.0)
    acme = zoo.ledger.zones["acme"]
    assert acme.quiet
    zoo.apply(declare("acme", reserved=40, after=600.0), now=6.0)
    zoo.upkeep(6.0)
    assert acme.quiet, "of no window was anything used"
    zoo.tenancy.request_arrived(acme, 7.0)
    assert not acme.quiet


def test_while_a_request_is_there_no_time_makes_a_zone_quiet(zoo):
    zoo.apply(declare("acme", after=60.0, evict_after=120.0))
    acme = zoo.ledger.zones["acme"]
    zoo.tenancy.request_arrived(acme, 1.0)
    zoo.hold(acme, cached=5)
    assert zoo.upkeep(1e6) == []
    assert not acme.quiet
    zoo.tenancy.request_finished(acme, 1e6)
    zoo.upkeep(1e6 + 59)
    assert not acme.quiet
    assert zoo.upkeep(1e6 + 120) == [("acme", 5)]


def test_a_window_of_no_time_is_over_as_soon_as_the_last_request_ends(zoo):
    zoo.apply(declare("acme", reserved=40, after=0.0))
    acme = zoo.ledger.zones["acme"]
    zoo.upkeep(1.0)
    serve(zoo, acme, begin=2.0, end=3.0)
    zoo.upkeep(3.0)
    assert acme.quiet


def test_after_evict_after_all_blocks_go_and_the_zone_stays(zoo):
    zoo.apply(declare("acme", reserved=40, after=60.0, evict_after=120.0))
    acme = zoo.ledger.zones["acme"]
    serve(zoo, acme, begin=0.0, end=0.0, cached=30)
    assert zoo.upkeep(119.9) == []
    assert zoo.upkeep(120.0) == [("acme", 30)]
    assert acme.state == "Evicted"
    assert acme.counters.evicted == {"idle": 30}
    assert zoo.tenancy.zone_for("acme", 121.0) is acme


def test_an_empty_zone_is_evicted_by_time_as_well(zoo):
    zoo.apply(declare("acme", evict_after=120.0))
    zoo.upkeep(119.9)
    assert zoo.ledger.zones["acme"].state == "Idle"
    assert zoo.upkeep(120.0) == []
    assert zoo.ledger.zones["acme"].state == "Evicted"


def test_a_quiet_zone_lets_its_cache_go_in_steps_the_longest_untouched_first(zoo):
    zoo.apply(declare("acme", after=60.0, release=(25, 10.0)))
    acme = zoo.ledger.zones["acme"]
    serve(zoo, acme, begin=0.0, end=5.0, cached=100)
    order = list(acme.cached)
    assert zoo.upkeep(74.9) == []
    assert acme.quiet
    for step, now in enumerate((75.0, 85.0, 95.0), start=1):
        assert zoo.upkeep(now - 0.1) == []
        assert zoo.upkeep(now) == [("acme", 25)]
        assert list(acme.cached) == order[25 * step :]
        assert acme.state == "Idle"
    assert zoo.upkeep(105.0) == [("acme", 25)]
    assert (acme.state, acme.counters.evicted, acme.timer) == ("Evicted", {"idle": 100}, None)
    assert zoo.tenancy.zone_for("acme", 106.0) is acme


def test_at_evict_after_what_the_steps_have_left_goes(zoo):
    zoo.apply(declare("acme", after=60.0, release=(25, 10.0), evict_after=85.0))
    serve(zoo, zoo.ledger.zones["acme"], begin=0.0, end=0.0, cached=40)
    assert [zoo.upkeep(now) for now in (70.0, 80.0, 84.9, 85.0)] == [[("acme", 10)], [("acme", 10)], [], [("acme", 20)]]
    assert zoo.ledger.zones["acme"].state == "Evicted"


def test_shares_that_are_no_whole_blocks_leave_nothing_in_the_end(zoo):
    zoo.apply(declare("acme", after=0.0, release=(30, 1.0)))
    serve(zoo, zoo.ledger.zones["acme"], begin=0.0, end=0.0, cached=5)
    left = [zoo.upkeep(now) and zoo.ledger.zones["acme"].held for now in (1.0, 2.0, 3.0, 4.0)]
    assert left == [3, 2, 0, []]
    assert zoo.ledger.zones["acme"].state == "Evicted"


def test_a_step_that_comes_late_is_made_up_for(zoo):
    zoo.apply(declare("acme", after=60.0, release=(25, 10.0)))
    serve(zoo, zoo.ledger.zones["acme"], begin=0.0, end=0.0, cached=40)
    zoo.upkeep(60.0)
    assert zoo.upkeep(89.9) == [("acme", 20)]
    assert zoo.upkeep(90.0) == [("acme", 10)]


def test_what_others_have_taken_meanwhile_counts(zoo):
    zoo.apply(declare("acme", after=60.0, release=(25, 10.0)))
    acme = zoo.ledger.zones["acme"]
    serve(zoo, acme, begin=0.0, end=0.0, cached=40)
    zoo.upkeep(60.0)
    zoo.ledger.evict(acme, 15, "quiet")
    assert [zoo.upkeep(now) for now in (70.0, 80.0)] == [[], [("acme", 5)]]


def test_a_request_ends_the_steps_and_the_next_ones_begin_from_what_is_there_then(zoo):
    zoo.apply(declare("acme", after=60.0, release=(50, 10.0)))
    acme = zoo.ledger.zones["acme"]
    serve(zoo, acme, begin=0.0, end=0.0, cached=40)
    assert zoo.upkeep(70.0) == [("acme", 20)]
    serve(zoo, acme, begin=71.0, end=71.0, cached=10)
    assert [zoo.upkeep(now) for now in (140.9, 141.0)] == [[], [("acme", 15)]]


def test_the_steps_of_a_zone_that_lent_before_its_window_was_over_begin_from_what_it_had_cached_then(zoo):
    zoo.apply(declare("acme", after=60.0, release=(25, 10.0)))
    acme = zoo.ledger.zones["acme"]
    serve(zoo, acme, begin=0.0, end=0.0, cached=40)
    states.lend_what_is_unused(zoo.ledger)
    assert acme.quiet
    assert [zoo.upkeep(now) for now in (60.0, 70.0)] == [[], [("acme", 10)]]


def test_an_empty_zone_is_evicted_with_the_first_step(zoo):
    zoo.apply(declare("acme", after=60.0, release=(25, 10.0)))
    zoo.upkeep(60.0)
    assert zoo.ledger.zones["acme"].state == "Idle"
    zoo.upkeep(70.0)
    assert zoo.ledger.zones["acme"].state == "Evicted"


def test_steps_that_a_config_brings_count_from_when_the_zone_became_quiet(zoo):
    zoo.apply(declare("acme", after=60.0))
    serve(zoo, zoo.ledger.zones["acme"], begin=0.0, end=0.0, cached=40)
    zoo.upkeep(100.0)
    zoo.apply(declare("acme", after=60.0, release=(25, 20.0)), now=100.0)
    assert zoo.upkeep(100.0) == [("acme", 20)]


def test_the_template_gives_steps_to_zones_of_unknown_tenants(zoo):
    zoo.apply(**open_to_anybody(after=60.0, forget_after=75.0, release=(50, 10.0)))
    serve(zoo, zoo.tenancy.zone_for("guest", 0.0), begin=0.0, end=0.0, cached=20)
    assert [zoo.upkeep(now) for now in (70.0, 75.0)] == [[("guest", 10)], [("guest", 10)]]
    assert zoo.ledger.zones == {}


def test_a_window_ends_exactly_when_its_timer_goes_off(zoo):
    # As floats, 0.7 + 0.1 - 0.7 is less than 0.1.
    zoo.apply(declare("acme", after=0.1), now=0.7)
    acme = zoo.ledger.zones["acme"]
    zoo.upkeep(0.7 + 0.1)
    assert acme.quiet


def test_without_evict_after_a_zone_keeps_its_cache_for_ever(zoo):
    zoo.apply(declare("acme", after=60.0))
    acme = zoo.ledger.zones["acme"]
    zoo.hold(acme, cached=30)
    assert zoo.upkeep(1e9) == []
    assert (acme.state, acme.quiet) == ("Idle", True)


def test_zones_go_quiet_each_in_its_own_time(zoo):
    zoo.apply(declare("late", after=90.0), declare("early", after=30.0), declare("middle", after=60.0))
    for zone in zoo.ledger.zones.values():
        serve(zoo, zone, begin=0.0, end=0.0)
    quiet = []
    for now in (29.0, 30.0, 60.0, 90.0):
        zoo.upkeep(now)
        quiet.append({tenant for tenant, zone in zoo.ledger.zones.items() if zone.quiet})
    assert quiet == [set(), {"early"}, {"early", "middle"}, {"early", "middle", "late"}]


def test_a_config_that_shortens_a_window_counts_from_the_last_activity(zoo):
    zoo.apply(declare("acme", after=3600.0))
    acme = zoo.ledger.zones["acme"]
    serve(zoo, acme, begin=0.0, end=0.0)
    zoo.upkeep(100.0)
    assert not acme.quiet
    zoo.apply(declare("acme", after=60.0), now=100.0)
    zoo.upkeep(100.0)
    assert acme.quiet


def test_a_config_that_lengthens_a_window_ends_the_quiet(zoo):
    zoo.apply(declare("acme", after=60.0))
    acme = zoo.ledger.zones["acme"]
    serve(zoo, acme, begin=0.0, end=0.0)
    zoo.upkeep(60.0)
    assert acme.quiet
    zoo.apply(declare("acme", after=120.0), now=61.0)
    zoo.upkeep(61.0)
    assert not acme.quiet
    zoo.upkeep(120.0)
    assert acme.quiet


def test_an_unknown_tenant_gets_a_zone_of_the_template_and_is_forgotten_after_its_time(zoo):
    zoo.apply(**open_to_anybody(after=60.0, forget_after=300.0))
    guest = zoo.tenancy.zone_for("guest", 0.0)
    assert (guest.spec.auto_registered, guest.spec.quota.reserved, guest.spec.quota.limit) == (True, 0, 50)
    serve(zoo, guest, begin=0.0, end=10.0, cached=20)
    assert zoo.upkeep(309.9) == []
    assert zoo.upkeep(310.0) == [("guest", 20)]
    assert zoo.ledger.zones == {}
    zoo.check()


def test_a_tenant_whose_only_request_was_refused_is_forgotten_as_well(zoo):
    zoo.now = 5.0
    zoo.apply(**open_to_anybody(after=60.0, forget_after=300.0))
    guest = zoo.tenancy.zone_for("guest", 10.0)
    zoo.apply(**open_to_anybody(after=60.0, forget_after=300.0), now=20.0)
    zoo.upkeep(309.9)
    assert zoo.ledger.zones == {"guest": guest}
    zoo.upkeep(310.0)
    assert zoo.ledger.zones == {}


def test_who_comes_back_after_it_was_forgotten_is_a_new_zone(zoo):
    zoo.apply(**open_to_anybody(forget_after=300.0))
    first = zoo.tenancy.zone_for("guest", 0.0)
    zoo.upkeep(300.0)
    again = zoo.tenancy.zone_for("guest", 301.0)
    assert again is not first
    assert (again.born, again.spec) == (301.0, first.spec)
    assert [note.change for note in zoo.events("lifecycle") if note.zone == "guest"][-1] == "registered"


def test_an_auto_registered_zone_with_requests_is_not_forgotten(zoo):
    zoo.apply(**open_to_anybody(forget_after=300.0))
    guest = zoo.tenancy.zone_for("guest", 0.0)
    zoo.tenancy.request_arrived(guest, 0.0)
    zoo.upkeep(1e6)
    assert zoo.ledger.zones == {"guest": guest}


def test_a_declared_zone_is_never_forgotten(zoo):
    zoo.apply(declare("acme", forget_after=300.0))
    zoo.upkeep(1e9)
    assert "acme" in zoo.ledger.zones


def test_only_zones_that_were_registered_for_a_tenant_are_forgotten(zoo):
    guest = zoo.zone("guest", auto=True, forget_after=300.0)
    young = zoo.zone("young", auto=True, forget_after=300.0, active=900.0)
    declared, kept = zoo.zone("acme", forget_after=300.0), zoo.zone("kept", auto=True)
    zoo.now = 1000.0
    assert [states.is_forgotten(zoo.ledger, zone) for zone in (guest, young, declared, kept)] == [True] + 3 * [False]


def test_the_next_deadline_is_the_first_moment_later_than_what_was_looked_at(zoo):
    times = {"after": 60.0, "evict_after": 120.0, "forget_after": 300.0, "active": 5.0}
    guest, acme = zoo.zone("guest", auto=True, **times), zoo.zone("acme", **times)
    assert [states.deadline(guest, seen) for seen in (0.0, 65.0, 125.0, 305.0)] == [65.0, 125.0, 305.0, None]
    assert [states.deadline(acme, seen) for seen in (0.0, 65.0, 125.0)] == [65.0, 125.0, None]
    zoo.tenancy.request_arrived(guest, 5.0)
    assert states.deadline(guest, 0.0) is None


def test_the_next_step_of_a_release_is_a_deadline_until_the_last_one_is_over(zoo):
    calm = zoo.zone("calm", after=60.0, release=(40, 10.0), evict_after=75.0, active=5.0)
    seen = (0.0, 65.0, 75.0, 80.0, 85.0, 95.0)
    assert [states.deadline(calm, moment) for moment in seen] == [65.0, 75.0, 80.0, 85.0, 95.0, None]


def test_a_zone_that_nothing_more_awaits_is_not_looked_at_again(zoo):
    zoo.apply(declare("acme", after=60.0, evict_after=120.0))
    zoo.upkeep(60.0)
    assert zoo.ledger.zones["acme"].timer == 120.0
    zoo.upkeep(120.0)
    assert zoo.ledger.zones["acme"].timer is None


def test_a_quiet_zone_gives_up_blocks_in_the_step_in_which_it_became_quiet(zoo):
    zoo.apply(declare("acme", reserved=40, after=60.0), declare("burst"))
    serve(zoo, zoo.ledger.zones["acme"], begin=0.0, end=0.0)
    zoo.upkeep(59.0)
    assert zoo.takeable(zoo.ledger.zones["burst"]) == 60
    zoo.upkeep(60.0)
    assert zoo.takeable(zoo.ledger.zones["burst"]) == 100
