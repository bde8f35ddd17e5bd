"""Which zones pay, and in which order, when a zone needs blocks; each case as a pool's operator would describe it."""

import pytest

from tenantzone_runtime.zones.blocks.eviction import evict_to_watermark, make_room, trim_to_limit
from tests.zones.core import Core


@pytest.fixture
def core():
    return Core()


def paid(core, zone, count):
    """Tenant, number of blocks in all, and reason, in the order of each zone's first eviction."""
    core.events("evicted")
    make_room(core.ledger, zone, count, core.free)
    return [(note.zone, note.blocks, note.reason) for note in core.events("evicted")]


def test_no_zone_pays_while_blocks_are_free(core):
    burst = core.zone("burst", cached=50)
    core.zone("calm", cached=20, quiet=True)
    assert paid(core, burst, 30) == []


def test_exactly_one_block_too_few_is_paid_for(core):
    calm = core.zone("calm", cached=1, quiet=True)
    burst = core.zone("burst", cached=99)
    assert paid(core, burst, 1) == [("calm", 1, "quiet")]
    core.take(calm, 1)
    assert paid(core, burst, 1) == [("burst", 1, "own")]


def test_what_is_cached_above_reservations_goes_by_when_it_was_let_go_whichever_zone_caches_it(core):
    burst = core.zone("burst", cached=20, used=2.0)
    core.zone("calm", cached=10, quiet=True, used=1.0)
    core.hold(burst, cached=10)
    core.now = 3.0
    core.zone("late", cached=60, quiet=True)
    core.now = 4.0
    core.hold(burst, cached=10)
    assert paid(core, burst, 50) == [("calm", 10, "quiet"), ("burst", 30, "own"), ("late", 10, "quiet")]


def test_of_what_was_let_go_at_one_time_the_older_zones_goes_first(core):
    one = core.zone("one", cached=30)
    core.zone("other", cached=70, quiet=True)
    assert paid(core, one, 40) == [("one", 30, "own"), ("other", 10, "quiet")]


def test_and_so_it_does_where_the_older_one_is_not_who_needs_blocks(core):
    core.zone("one", in_use=20, cached=40, quiet=True)
    assert paid(core, core.zone("other", cached=40), 50) == [("one", 40, "quiet"), ("other", 10, "own")]


def test_cached_surplus_of_a_low_priority_goes_first_however_new_it_is(core):
    gold = core.zone("gold", cached=30, priority=1)
    core.zone("calm", cached=30, quiet=True, used=9.0)
    core.zone("other", cached=40, priority=2, quiet=True)
    assert paid(core, gold, 65) == [("calm", 30, "quiet"), ("gold", 30, "own"), ("other", 5, "quiet")]


def test_what_a_quiet_zone_caches_within_its_reservation_goes_last_and_down_to_what_it_does_not_lend(core):
    burst = core.zone("burst", reserved=20, cached=60)
    core.zone("calm", reserved=30, lendable=10, cached=40, quiet=True, used=1.0)
    assert paid(core, burst, 35) == [("burst", 35, "own")]
    core.take(burst, 35)
    assert paid(core, burst, 40) == [("burst", 25, "own"), ("calm", 15, "quiet")]


def test_reservations_are_lent_by_the_lowest_priority_then_by_who_was_active_least_recently(core):
    burst = core.zone("burst", cached=10)
    core.zone("gold", reserved=30, cached=30, quiet=True, priority=1, borrowers="AnyPriority")
    core.zone("late", reserved=30, cached=30, quiet=True, active=9.0)
    core.zone("early", reserved=30, cached=30, quiet=True, active=5.0)
    assert paid(core, burst, 75) == [
        ("burst", 10, "own"),
        ("early", 30, "quiet"),
        ("late", 30, "quiet"),
        ("gold", 5, "quiet"),
    ]


def test_within_its_reservation_a_zone_takes_surplus_back_before_its_own_cache(core):
    acme = core.zone("acme", reserved=40, cached=5)
    core.zone("gold", reserved=20, cached=55, priority=1)
    core.zone("lead", reserved=20, cached=40)
    assert paid(core, acme, 38) == [("lead", 20, "reclaim"), ("gold", 18, "reclaim")]


def test_above_its_reservation_it_takes_nothing_from_an_active_zone(core):
    burst = core.zone("burst", in_use=20, cached=40)
    core.zone("calm", cached=40)
    assert paid(core, burst, 10) == [("burst", 10, "own")]


def test_at_its_limit_its_own_cache_pays_even_while_blocks_are_free(core):
    burst = core.zone("burst", limit=30, in_use=10, cached=20)
    assert paid(core, burst, 5) == [("burst", 5, "limit")]


def test_up_to_its_limit_a_zone_pays_nothing(core):
    burst = core.zone("burst", limit=30, in_use=10, cached=15)
    assert make_room(core.ledger, burst, 5, core.free) == []


def test_the_least_recently_used_blocks_go_first(core):
    burst = core.zone("burst", limit=10, cached=10)
    oldest = list(burst.cached)[:3]
    ((_, blocks),) = make_room(core.ledger, burst, 3, core.free)
    assert blocks == oldest


def test_a_request_from_before_zones_takes_from_quiet_zones_before_it_grows_on_others_caches(core):
    core.zone("calm", cached=50, quiet=True)
    core.zone("acme", cached=50)
    assert paid(core, core.early(), 40) == [("calm", 40, "quiet")]


def test_who_borrows_takes_only_surplus_from_zones_above_it_that_do_not_lend_to_it(core):
    burst = core.zone("burst", cached=20)
    core.zone("gold", reserved=30, cached=40, quiet=True, priority=1)
    core.zone("equal", reserved=20, cached=20, quiet=True)
    core.zone("open", reserved=20, cached=20, quiet=True, priority=2, borrowers="AnyPriority")
    assert paid(core, burst, 70) == [
        ("burst", 20, "own"),
        ("gold", 10, "quiet"),
        ("equal", 20, "quiet"),
        ("open", 20, "quiet"),
    ]


def test_within_its_reservation_a_zone_takes_what_quiet_zones_lend_whatever_their_priority(core):
    acme = core.zone("acme", reserved=50)
    core.zone("gold", reserved=50, cached=50, quiet=True, priority=9)
    core.zone("lead", in_use=50)
    assert paid(core, acme, 50) == [("gold", 50, "quiet")]


def test_equal_borrows_from_equal_at_any_priority(core):
    acme = core.zone("acme", priority=3)
    core.zone("gold", reserved=50, cached=100, quiet=True, priority=3)
    assert sum(blocks for _, blocks, _ in paid(core, acme, 80)) == 80


def test_surplus_of_active_zones_is_reclaimed_by_age_too(core):
    acme = core.zone("acme", reserved=50)
    one, other = core.zone("one", cached=50, used=2.0), core.zone("other", cached=50, used=1.0)
    core.tenancy.request_arrived(one, 1.0)
    core.tenancy.request_arrived(other, 2.0)
    assert paid(core, acme, 10) == [("other", 10, "reclaim")]
    core.take(acme, 10)
    # A block that is hit and let go again counts as new.
    core.now = 3.0
    core.ledger.reuse(other, again := list(other.cached))
    core.ledger.release(other, again, [])
    assert paid(core, acme, 10) == [("one", 10, "reclaim")]


def test_an_active_zone_of_low_priority_gives_surplus_before_a_quiet_one_of_high(core):
    acme = core.zone("acme", reserved=50)
    core.zone("busy", cached=40, priority=-5)
    core.zone("calm", cached=60, quiet=True, priority=5)
    assert paid(core, acme, 50) == [("busy", 40, "reclaim"), ("calm", 10, "quiet")]


def test_a_reclaim_leaves_what_is_within_the_reservation(core):
    acme = core.zone("acme", reserved=40)
    busy = core.zone("busy", reserved=60, in_use=30, cached=50)
    assert paid(core, acme, 40) == [("busy", 20, "reclaim")]
    assert busy.held == 60


def test_the_last_block_above_a_reservation_is_reclaimed_too(core):
    acme = core.zone("acme", reserved=40, in_use=20, cached=19)
    core.zone("busy", reserved=60, in_use=30, cached=31)
    assert paid(core, acme, 2) == [("busy", 1, "reclaim"), ("acme", 1, "own")]


def test_a_zone_entitled_by_what_it_uses_reclaims_also_what_its_own_cache_could_pay(core):
    acme = core.zone("acme", reserved=60, cached=10)
    core.zone("burst", cached=90)
    assert paid(core, acme, 60) == [("burst", 60, "reclaim")]


def test_what_a_zone_is_entitled_to_is_taken_from_its_own_surplus_if_that_is_older(core):
    acme = core.zone("acme", reserved=50, cached=60)
    core.zone("burst", cached=40, used=1.0)
    assert paid(core, acme, 40) == [("acme", 10, "own"), ("burst", 30, "reclaim")]


def test_one_block_over_its_reservation_it_borrows_all_and_reclaims_nothing(core):
    acme = core.zone("acme", reserved=10, cached=20)
    core.zone("burst", cached=80)
    evicted = make_room(core.ledger, acme, 11, core.free)
    assert [(zone.spec.tenant, len(blocks)) for zone, blocks in evicted] == [("acme", 10), ("acme", 1)]


def test_what_the_limit_frees_counts_before_others_pay(core):
    burst = core.zone("burst", limit=50, in_use=20, cached=30)
    core.zone("calm", cached=50, quiet=True)
    assert paid(core, burst, 10) == [("burst", 10, "limit")]
    core.take(burst, 10)
    assert paid(core, burst, 20) == [("burst", 20, "limit")]


def test_evictions_name_who_needed_the_blocks(core):
    burst = core.zone("burst", limit=60, in_use=30, cached=30)
    core.zone("calm", cached=40, quiet=True)
    make_room(core.ledger, burst, 30, core.free)
    make_room(core.ledger, core.early(), 50, core.free)
    evicted = [(note.zone, note.blocks, note.reason, note.beneficiary) for note in core.events("evicted")]
    assert evicted == [("burst", 30, "limit", "burst"), ("calm", 20, "quiet", None)]


def test_evictions_for_a_request_that_grows_name_its_zone(core):
    burst = core.zone("burst", in_use=10, cached=10)
    core.zone("lead", cached=80)
    make_room(core.ledger, burst, 30, core.free)
    evicted = [(note.zone, note.blocks, note.reason, note.beneficiary) for note in core.events("evicted")]
    assert evicted == [("burst", 10, "own", "burst"), ("lead", 20, "relief", "burst")]


def test_a_request_that_grows_takes_even_one_block_of_others_surplus_caches(core):
    burst = core.zone("burst", in_use=10, cached=10)
    core.zone("lead", cached=80)
    assert paid(core, burst, 11) == [("burst", 10, "own"), ("lead", 1, "relief")]


def test_the_last_block_above_a_higher_priority_zones_reservation_goes_too(core):
    burst = core.zone("burst", in_use=68, cached=1)
    core.zone("gold", reserved=30, cached=31, quiet=True, priority=1)
    assert paid(core, burst, 2) == [("burst", 1, "own"), ("gold", 1, "quiet")]


def test_a_request_from_before_zones_borrows_as_priority_0(core):
    core.zone("gold", reserved=30, cached=40, quiet=True, priority=1)
    core.zone("calm", reserved=30, cached=60, quiet=True)
    assert paid(core, core.early(), 70) == [("calm", 60, "quiet"), ("gold", 10, "quiet")]


def test_the_watermark_takes_what_is_above_reservations_from_the_quiet_first_without_a_beneficiary(core):
    core.zone("calm", reserved=15, lendable=15, cached=20, quiet=True, priority=9)
    core.zone("busy", reserved=70, cached=80)
    evicted = evict_to_watermark(core.ledger, 50)
    assert [(zone.spec.tenant, len(blocks)) for zone, blocks in evicted] == [("calm", 5), ("busy", 10)]
    assert {note.reason for note in core.events("evicted")} == {"watermark"}


def test_the_watermark_takes_no_more_than_it_was_asked_for(core):
    core.zone("calm", cached=50, quiet=True)
    core.zone("busy", cached=50)
    assert sum(len(blocks) for _, blocks in evict_to_watermark(core.ledger, 50)) == 50
    assert sum(len(blocks) for _, blocks in evict_to_watermark(core.ledger, 7)) == 7
    assert evict_to_watermark(core.ledger, 0) == []


def test_what_is_cached_beyond_the_limit_goes_and_what_is_in_use_stays(core):
    acme = core.zone("acme", limit=40, in_use=35, cached=15)
    assert len(trim_to_limit(core.ledger, acme)) == 10
    assert trim_to_limit(core.ledger, acme) == []
    assert acme.counters.evicted == {"limit": 10}
    core.take(acme, 20)
    assert len(trim_to_limit(core.ledger, acme)) == 5
    assert acme.in_use == 55


def test_a_request_that_grows_takes_others_surplus_caches_after_its_own(core):
    burst = core.zone("burst", in_use=10, cached=5)
    core.zone("lead", reserved=20, cached=45)
    core.zone("gold", cached=40, priority=1)
    assert (core.takeable(burst), core.takeable(burst, growing=True)) == (5, 70)
    assert core.ledger.totals.takeable(burst, core.free) == 5
    assert paid(core, burst, 40) == [("burst", 5, "own"), ("lead", 25, "relief"), ("gold", 10, "relief")]


def test_a_request_that_grows_leaves_what_is_locked_and_what_is_reserved(core):
    burst = core.zone("burst", in_use=10)
    core.zone("acme", reserved=30)
    core.zone("lead", reserved=30, cached=90)
    assert core.takeable(burst, growing=True) == 30


def test_who_owes_blocks_grows_as_before_until_the_grace_time_is_over_and_admits_nothing(core):
    burst = core.zone("burst", in_use=10)
    burst.overdue = 5
    core.zone("lead", cached=80)
    assert core.takeable(burst) == 0
    assert core.takeable(burst, growing=True) == 90


def test_a_request_from_before_zones_grows_on_others_surplus_caches(core):
    core.zone("lead", reserved=30, cached=90)
    core.zone("gold", cached=10, quiet=True, priority=1)
    early = core.early()
    assert (core.takeable(early), core.takeable(early, growing=True)) == (10, 70)
    assert paid(core, early, 50) == [("gold", 10, "quiet"), ("lead", 40, "relief")]
