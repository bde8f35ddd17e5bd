"""Surplus reclaim: a zone that is denied blocks may get what active zones cache above their reservations."""

import pytest

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_runtime.zones.tenancy import Tenancy
from tests.zones.core import Core, declare


@pytest.fixture
def core():
    return Core()


def reclaimed(core, zone, count, peak=0):
    evicted = core.tenancy.evict_surplus_for(zone, count, core.free, peak)
    return [(owner.spec.tenant, len(blocks)) for owner, blocks in evicted]


def test_surplus_is_reclaimed_from_what_active_zones_cache_above_their_reservations(core):
    burst = core.zone("burst")
    core.zone("lead", reserved=20, cached=50)
    core.zone("gold", cached=50, priority=1)
    assert core.takeable(burst) == 0
    assert reclaimed(core, burst, 40) == [("lead", 30), ("gold", 10)]
    assert core.takeable(burst) == 40
    (note, *_) = core.events("evicted")
    assert (note.reason, note.beneficiary) == ("relief", "burst")


def test_surplus_is_reclaimed_only_if_it_is_enough(core):
    burst = core.zone("burst")
    core.zone("lead", reserved=60, cached=100)
    assert reclaimed(core, burst, 41) == []
    assert reclaimed(core, burst, 40) == [("lead", 40)]


def test_no_surplus_is_reclaimed_for_a_request_that_may_allocate_without_it(core):
    burst = core.zone("burst")
    core.zone("lead", cached=50)
    assert reclaimed(core, burst, 50) == []
    assert reclaimed(core, burst, 51) == [("lead", 1)]


def test_surplus_for_a_request_from_before_zones_is_that_of_weight_1(core):
    core.zone("lead", cached=90, weight=3)
    assert reclaimed(core, core.early(in_use=10), 16) == []
    assert reclaimed(core, core.ledger.zones[""], 15) == [("lead", 15)]


def test_reclaimed_surplus_covers_blocks_locked_by_other_zones(core):
    burst = core.zone("burst")
    core.zone("acme", reserved=40)
    lead = core.zone("lead", in_use=70, cached=30)
    assert reclaimed(core, burst, 10) == []
    core.release(lead, kept=20)
    assert reclaimed(core, burst, 10) == [("lead", 50)]
    assert core.takeable(burst) == 10


def test_no_surplus_is_reclaimed_for_a_zone_that_owes_blocks(core):
    burst = core.zone("burst")
    core.zone("lead", cached=50)
    burst.overdue = 5
    assert reclaimed(core, burst, 60) == []
    burst.overdue = 0
    assert reclaimed(core, burst, 60) == [("lead", 10)]


def test_no_surplus_is_reclaimed_for_a_zone_at_its_own_limit(core):
    burst = core.zone("burst", limit=30)
    core.zone("lead", cached=100)
    assert reclaimed(core, burst, 31) == []
    assert reclaimed(core, burst, 30) == [("lead", 30)]
    assert reclaimed(core, burst, 31, peak=40) == [("lead", 1)]


def test_surplus_for_a_borrower_covers_its_whole_request(core):
    acme = core.zone("acme", reserved=5)
    core.zone("lead", cached=100)
    assert core.takeable(acme) == 5
    assert reclaimed(core, acme, 10) == [("lead", 10)]
    assert core.takeable(acme) == 10


def test_no_surplus_is_reclaimed_from_blocks_that_a_quiet_zone_lends_to_others_only(core):
    burst = core.zone("burst")
    core.zone("gold", reserved=40, cached=40, quiet=True, priority=1)
    core.zone("lead", cached=60, priority=5)
    assert reclaimed(core, burst, 61) == []
    assert reclaimed(core, burst, 60) == [("lead", 60)]


def test_the_denied_zones_own_cache_is_no_surplus(core):
    burst = core.zone("burst", cached=30)
    core.zone("lead", reserved=60, cached=70)
    assert reclaimed(core, burst, 41) == []
    assert reclaimed(core, burst, 40) == [("lead", 10)]


def test_a_zone_that_uses_blocks_reclaims_surplus_up_to_its_share_of_unreserved_blocks(core):
    acme = core.zone("acme", reserved=10, in_use=10, weight=2)
    core.zone("gold", reserved=30, weight=1)
    core.zone("lead", cached=60, weight=3)
    core.zone("asleep", quiet=True, weight=100)
    assert core.ledger.totals.share(acme) == 20
    assert reclaimed(core, acme, 21) == []
    assert reclaimed(core, acme, 20) == [("lead", 20)]


def test_a_zone_that_uses_a_single_block_reclaims_surplus_up_to_its_share_only(core):
    acme = core.zone("acme", in_use=1)
    core.zone("lead", cached=99, weight=9)
    assert reclaimed(core, acme, 10) == []
    assert reclaimed(core, acme, 9) == [("lead", 9)]


def test_a_zone_that_uses_no_block_reclaims_surplus_beyond_its_share(core):
    acme = core.zone("acme")
    core.zone("lead", cached=100, weight=9)
    assert core.ledger.totals.share(acme) == 10
    assert reclaimed(core, acme, 80) == [("lead", 80)]


def test_shares_follow_weights_quietness_and_reservations(core):
    acme = core.zone("acme", reserved=20, weight=3)
    assert core.ledger.totals.share(acme) == 80
    lead = core.zone("lead", weight=1)
    assert (core.ledger.totals.share(acme), core.ledger.totals.share(lead)) == (60, 20)
    core.set_quiet(acme)
    assert (core.ledger.totals.share(acme), core.ledger.totals.share(lead)) == (80, 80)
    core.set_quiet(acme, False)
    assert core.ledger.totals.share(lead) == 20
    core.check()


def test_a_share_is_rounded_down_to_whole_blocks(core):
    acme = core.zone("acme", weight=2)
    core.zone("lead")
    assert core.ledger.totals.share(acme) == 66


def test_shares_are_of_the_blocks_that_requests_can_use():
    """An engine may set blocks aside that have ids like any other."""
    tenancy = Tenancy(block_count=101, capacity=100)
    config = make_config(1, PoolConfig(namespace="n", name="p"), (declare("acme"),))
    tenancy.apply(config, 0.0)
    assert tenancy.ledger.totals.share(tenancy.ledger.zones["acme"]) == 100


def test_a_zone_that_left_has_no_part_in_the_shares(core):
    core.apply(declare("acme", weight=3), declare("lead"))
    core.tenancy.request_arrived(core.ledger.zones["lead"], 0.0)
    core.apply(declare("lead"))
    assert core.ledger.totals.share(core.ledger.zones["lead"]) == 100
    core.apply(declare("lead"), declare("acme", weight=1))
    core.tenancy.request_arrived(core.ledger.zones["acme"], 0.0)
    assert core.ledger.totals.share(core.ledger.zones["lead"]) == 50
    core.apply(declare("lead", weight=3), declare("acme", weight=1))
    assert core.ledger.totals.share(core.ledger.zones["lead"]) == 75
