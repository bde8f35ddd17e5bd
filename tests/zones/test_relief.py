"""Relief: who is denied blocks may get what active zones cache above their reservations."""

import pytest

from tenantzone_contract.config import PoolConfig
from tenantzone_contract.config_text import make_config
from tenantzone_runtime.zones.tenancy import Tenancy
from tests.zones.zoo import Zoo, declare


@pytest.fixture
def zoo():
    return Zoo()


def relieved(zoo, zone, count, peak=0):
    evicted = zoo.tenancy.relieve(zone, count, zoo.free, peak)
    return [(owner.spec.tenant, len(blocks)) for owner, blocks in evicted]


def test_relief_comes_from_what_active_zones_cache_above_their_reservations(zoo):
    burst = zoo.zone("burst")
    zoo.zone("lead", reserved=20, cached=50)
    zoo.zone("gold", cached=50, priority=1)
    assert zoo.takeable(burst) == 0
    assert relieved(zoo, burst, 40) == [("lead", 30), ("gold", 10)]
    assert zoo.takeable(burst) == 40
    (note, *_) = zoo.events("evicted")
    assert (note.reason, note.beneficiary) == ("relief", "burst")


def test_relief_is_given_only_where_it_is_enough(zoo):
    burst = zoo.zone("burst")
    zoo.zone("lead", reserved=60, cached=100)
    assert relieved(zoo, burst, 41) == []
    assert relieved(zoo, burst, 40) == [("lead", 40)]


def test_relief_is_not_given_to_who_may_take_it_anyhow(zoo):
    burst = zoo.zone("burst")
    zoo.zone("lead", cached=50)
    assert relieved(zoo, burst, 50) == []
    assert relieved(zoo, burst, 51) == [("lead", 1)]


def test_relief_for_a_request_from_before_zones_is_that_of_weight_1(zoo):
    zoo.zone("lead", cached=90, weight=3)
    assert relieved(zoo, zoo.early(in_use=10), 16) == []
    assert relieved(zoo, zoo.ledger.zones[""], 15) == [("lead", 15)]


def test_relief_covers_also_what_is_locked_by_others(zoo):
    burst = zoo.zone("burst")
    zoo.zone("acme", reserved=40)
    lead = zoo.zone("lead", in_use=70, cached=30)
    assert relieved(zoo, burst, 10) == []
    zoo.release(lead, kept=20)
    assert relieved(zoo, burst, 10) == [("lead", 50)]
    assert zoo.takeable(burst) == 10


def test_relief_is_not_given_to_who_owes_blocks(zoo):
    burst = zoo.zone("burst")
    zoo.zone("lead", cached=50)
    burst.overdue = 5
    assert relieved(zoo, burst, 60) == []
    burst.overdue = 0
    assert relieved(zoo, burst, 60) == [("lead", 10)]


def test_relief_is_not_given_to_who_is_kept_back_by_its_own_limit(zoo):
    burst = zoo.zone("burst", limit=30)
    zoo.zone("lead", cached=100)
    assert relieved(zoo, burst, 31) == []
    assert relieved(zoo, burst, 30) == [("lead", 30)]
    assert relieved(zoo, burst, 31, peak=40) == [("lead", 1)]


def test_relief_for_who_borrows_is_for_all_that_it_asks_for(zoo):
    acme = zoo.zone("acme", reserved=5)
    zoo.zone("lead", cached=100)
    assert zoo.takeable(acme) == 5
    assert relieved(zoo, acme, 10) == [("lead", 10)]
    assert zoo.takeable(acme) == 10


def test_relief_does_not_come_from_what_a_quiet_zone_lends_to_others_only(zoo):
    burst = zoo.zone("burst")
    zoo.zone("gold", reserved=40, cached=40, quiet=True, priority=1)
    zoo.zone("lead", cached=60, priority=5)
    assert relieved(zoo, burst, 61) == []
    assert relieved(zoo, burst, 60) == [("lead", 60)]


def test_what_the_denied_zone_caches_itself_is_no_relief(zoo):
    burst = zoo.zone("burst", cached=30)
    zoo.zone("lead", reserved=60, cached=70)
    assert relieved(zoo, burst, 41) == []
    assert relieved(zoo, burst, 40) == [("lead", 10)]


def test_who_uses_blocks_is_relieved_up_to_its_share_of_what_nobody_reserved(zoo):
    acme = zoo.zone("acme", reserved=10, in_use=10, weight=2)
    zoo.zone("gold", reserved=30, weight=1)
    zoo.zone("lead", cached=60, weight=3)
    zoo.zone("asleep", quiet=True, weight=100)
    assert zoo.ledger.standings.share(acme) == 20
    assert relieved(zoo, acme, 21) == []
    assert relieved(zoo, acme, 20) == [("lead", 20)]


def test_who_uses_a_single_block_is_relieved_up_to_its_share_only(zoo):
    acme = zoo.zone("acme", in_use=1)
    zoo.zone("lead", cached=99, weight=9)
    assert relieved(zoo, acme, 10) == []
    assert relieved(zoo, acme, 9) == [("lead", 9)]


def test_who_uses_no_block_is_relieved_beyond_its_share(zoo):
    acme = zoo.zone("acme")
    zoo.zone("lead", cached=100, weight=9)
    assert zoo.ledger.standings.share(acme) == 10
    assert relieved(zoo, acme, 80) == [("lead", 80)]


def test_shares_follow_weights_quietness_and_reservations(zoo):
    acme = zoo.zone("acme", reserved=20, weight=3)
    assert zoo.ledger.standings.share(acme) == 80
    lead = zoo.zone("lead", weight=1)
    assert (zoo.ledger.standings.share(acme), zoo.ledger.standings.share(lead)) == (60, 20)
    zoo.set_quiet(acme)
    assert (zoo.ledger.standings.share(acme), zoo.ledger.standings.share(lead)) == (80, 80)
    zoo.set_quiet(acme, False)
    assert zoo.ledger.standings.share(lead) == 20
    zoo.check()


def test_a_share_is_rounded_down_to_whole_blocks(zoo):
    acme = zoo.zone("acme", weight=2)
    zoo.zone("lead")
    assert zoo.ledger.standings.share(acme) == 66


def test_shares_are_of_the_blocks_that_requests_can_use():
    """An engine may set blocks aside that have ids like all others."""
    tenancy = Tenancy(block_count=101, capacity=100)
    config = make_config(1, PoolConfig(namespace="n", name="p"), (declare("acme"),))
    tenancy.apply(config, 0.0)
    assert tenancy.ledger.standings.share(tenancy.ledger.zones["acme"]) == 100


def test_a_zone_that_left_has_no_part_in_the_shares(zoo):
    zoo.apply(declare("acme", weight=3), declare("lead"))
    zoo.tenancy.request_arrived(zoo.ledger.zones["lead"], 0.0)
    zoo.apply(declare("lead"))
    assert zoo.ledger.standings.share(zoo.ledger.zones["lead"]) == 100
    zoo.apply(declare("lead"), declare("acme", weight=1))
    zoo.tenancy.request_arrived(zoo.ledger.zones["acme"], 0.0)
    assert zoo.ledger.standings.share(zoo.ledger.zones["lead"]) == 50
    zoo.apply(declare("lead", weight=3), declare("acme", weight=1))
    assert zoo.ledger.standings.share(zoo.ledger.zones["lead"]) == 75
