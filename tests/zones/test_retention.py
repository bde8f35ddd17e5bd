"""How long a zone's cached blocks are kept: for a ttl, or not at all."""

import pytest

from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tests.zones.core import Core, declare

each_policy = pytest.mark.parametrize("policy", EVICTION_POLICIES)


def acme_with(core, **fields):
    core.apply(declare("acme", **fields))
    return core.ledger.zones["acme"]


@each_policy
def test_a_block_unused_for_the_ttl_goes_whatever_the_policy_would_evict_first(policy):
    core = Core()
    acme = acme_with(core, ttl=10.0, eviction_policy=policy)
    core.tenancy.request_arrived(acme, 0.0)
    hit, cold = core.hold(acme, cached=2)
    core.now = 5.0
    core.ledger.reuse(acme, [hit])
    core.ledger.release(acme, [hit], [])
    assert core.upkeep(9.9) == []
    assert core.upkeep(10.0) == [("acme", 1)]
    assert list(acme.cached) == [hit]
    assert core.ledger.owner[cold] is None
    assert core.upkeep(15.0) == [("acme", 1)]
    assert acme.counters.evicted == {"ttl": 2}
    core.check()


def test_a_block_in_use_does_not_age():
    core = Core()
    acme = acme_with(core, ttl=10.0)
    (block,) = core.hold(acme, cached=1)
    core.ledger.reuse(acme, [block])
    core.upkeep(100.0)
    assert acme.in_use == 1
    core.ledger.release(acme, [block], [])
    assert core.upkeep(109.0) == []
    assert core.upkeep(110.0) == [("acme", 1)]


def test_a_quiet_zone_whose_last_block_has_expired_is_evicted():
    core = Core()
    acme = acme_with(core, ttl=10.0)
    core.hold(acme, cached=3)
    core.upkeep(10.0)
    assert acme.state == "Evicted"


def test_many_blocks_expire_in_parts():
    core = Core()
    acme = acme_with(core, ttl=10.0)
    core.hold(acme, cached=25)
    parts = core.tenancy.upkeep_in_parts(10.0, lambda: core.free, at_once=10)
    assert [len(blocks) for part in parts for _, blocks in part if blocks] == [10, 10, 5]


def test_a_ttl_counts_from_the_last_request_if_it_comes_when_the_zone_is_silent():
    core = Core()
    acme = acme_with(core)
    core.tenancy.request_arrived(acme, 0.0)
    core.hold(acme, cached=2)
    core.tenancy.request_finished(acme, 2.0)
    core.now = 8.0
    acme_with(core, ttl=10.0)
    assert core.upkeep(11.9) == []
    assert core.upkeep(12.0) == [("acme", 2)]


def test_a_ttl_counts_from_now_if_it_comes_while_the_zone_has_requests():
    core = Core()
    acme = acme_with(core)
    core.tenancy.request_arrived(acme, 0.0)
    core.hold(acme, cached=2)
    core.now = 8.0
    acme_with(core, ttl=10.0)
    assert core.upkeep(17.9) == []
    assert core.upkeep(18.0) == [("acme", 2)]


@pytest.mark.parametrize("ttl", [8.0, 20.0])
def test_another_ttl_counts_for_what_is_cached_already(ttl):
    core = Core()
    acme = acme_with(core, ttl=10.0)
    core.hold(acme, cached=2)
    core.now = 6.0
    acme_with(core, ttl=ttl)
    assert core.upkeep(ttl - 0.1) == []
    assert core.upkeep(ttl) == [("acme", 2)]


def test_without_the_ttl_nothing_goes_any_more():
    core = Core()
    acme = acme_with(core, ttl=10.0)
    core.hold(acme, cached=2)
    acme_with(core)
    assert core.upkeep(1000.0) == []
    assert acme.ages is None


def test_a_zone_that_stores_nothing_any_more_loses_what_it_cached():
    core = Core()
    acme = acme_with(core)
    core.hold(acme, cached=2, in_use=1)
    assert core.apply(declare("acme", no_store=True)) == [("acme", 2)]
    assert acme.counters.evicted == {"no_store": 2}
    assert acme.in_use == 1


def test_what_expires_is_scrubbed_before_another_gets_it():
    core = Core()
    acme = acme_with(core, ttl=10.0, scrub="OnTransfer")
    blocks = core.hold(acme, cached=2)
    core.upkeep(10.0)
    core.ledger.take(core.zone("burst"), blocks)
    assert core.ledger.take_blocks_to_scrub() == blocks
