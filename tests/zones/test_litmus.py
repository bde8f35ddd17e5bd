"""The litmus of *Resident KV Claims* (arXiv 2605.24259): does a claim to resident cache hold against a big prefill?

A pool of 80 blocks, a zone that claims 60 of them and holds them cached, and another that wants a prefill of 70.
"""

import pytest

from tenantzone_runtime.zones import preemption
from tenantzone_runtime.zones.eviction import make_room
from tests.zones.zoo import Request, Zoo, declare


@pytest.fixture
def zoo():
    zoo = Zoo(capacity=80)
    zoo.apply(declare("claim", reserved=60), declare("burst"))
    claim, burst = zoo.ledger.zones["claim"], zoo.ledger.zones["burst"]
    zoo.hold(claim, cached=60)
    zoo.tenancy.request_arrived(claim, 0.0)
    zoo.tenancy.request_arrived(burst, 0.0)
    return zoo


def prefill(zoo, zone, count):
    """Admit a prompt if the zone may take its blocks. Returns who lost how many, or why it waits."""
    if count > zoo.takeable(zone):
        return zoo.wait_reason(zone, count)
    paid = zoo.settle_evictions(make_room(zoo.ledger, zone, count, zoo.free))
    zoo.take(zone, count)
    return paid


def test_the_claim_holds_and_the_big_prefill_waits_with_a_reason(zoo):
    claim, burst = zoo.ledger.zones["claim"], zoo.ledger.zones["burst"]
    assert prefill(zoo, burst, 70) == "reserved"
    assert (len(claim.cached), burst.held) == (60, 0)


def test_a_bounded_prefill_goes_through_at_once(zoo):
    claim, burst = zoo.ledger.zones["claim"], zoo.ledger.zones["burst"]
    assert prefill(zoo, burst, 20) == []
    assert (len(claim.cached), burst.in_use, zoo.free) == (60, 20, 0)


def test_one_block_more_than_is_not_claimed_waits(zoo):
    assert prefill(zoo, zoo.ledger.zones["burst"], 21) == "reserved"


def test_a_quiet_claim_is_lent_and_reclaimed_within_one_step(zoo):
    claim, burst = zoo.ledger.zones["claim"], zoo.ledger.zones["burst"]
    zoo.tenancy.request_finished(claim, 0.0)
    zoo.upkeep(60.0)
    assert prefill(zoo, burst, 70) == [("claim", 50)]

    zoo.tenancy.request_arrived(claim, 61.0)
    prompt = Request(burst)
    assert preemption.choose_victim([prompt], claim, entitled=claim.is_entitled_to(50)) is prompt
    zoo.release(burst, kept=70)
    assert prefill(zoo, claim, 50) == [("burst", 50)]
    assert (claim.held, burst.held) == (60, 20)
    zoo.check()


def test_what_the_borrower_only_caches_is_reclaimed_without_a_preemption(zoo):
    claim, burst = zoo.ledger.zones["claim"], zoo.ledger.zones["burst"]
    zoo.tenancy.request_finished(claim, 0.0)
    zoo.upkeep(60.0)
    prefill(zoo, burst, 70)
    zoo.release(burst, kept=70)

    zoo.tenancy.request_arrived(claim, 61.0)
    assert prefill(zoo, claim, 60) == [("burst", 60)]
    zoo.check()
