"""The litmus of *Resident KV Claims* (arXiv 2605.24259): does a claim to resident cache hold against a big prefill?

A pool of 80 blocks, a zone that claims 60 of them and holds them cached, and another that wants a prefill of 70.
"""

import pytest

from tenantzone_runtime.zones.blocks.eviction import make_room
from tenantzone_runtime.zones.schedule import preemption
from tests.zones.core import Core, Request, declare


@pytest.fixture
def core():
    core = Core(capacity=80)
    core.apply(declare("claim", reserved=60), declare("burst"))
    claim, burst = core.ledger.zones["claim"], core.ledger.zones["burst"]
    core.hold(claim, cached=60)
    core.tenancy.request_arrived(claim, 0.0)
    core.tenancy.request_arrived(burst, 0.0)
    return core


def prefill(core, zone, count):
    """Admits a prompt if the zone may take its blocks. Returns how many each zone lost, or why the prompt waits."""
    if count > core.takeable(zone):
        return core.wait_reason(zone, count)
    paid = core.settle_evictions(make_room(core.ledger, zone, count, core.free))
    core.take(zone, count)
    return paid


def test_the_claim_holds_and_the_big_prefill_waits_with_a_reason(core):
    claim, burst = core.ledger.zones["claim"], core.ledger.zones["burst"]
    assert prefill(core, burst, 70) == "reserved"
    assert (len(claim.cached), burst.held) == (60, 0)


def test_a_bounded_prefill_goes_through_at_once(core):
    claim, burst = core.ledger.zones["claim"], core.ledger.zones["burst"]
    assert prefill(core, burst, 20) == []
    assert (len(claim.cached), burst.in_use, core.free) == (60, 20, 0)


def test_one_block_more_than_is_not_claimed_waits(core):
    assert prefill(core, core.ledger.zones["burst"], 21) == "reserved"


def test_a_quiet_claim_is_lent_and_reclaimed_within_one_step(core):
    claim, burst = core.ledger.zones["claim"], core.ledger.zones["burst"]
    core.tenancy.request_finished(claim, 0.0)
    core.upkeep(60.0)
    assert prefill(core, burst, 70) == [("claim", 50)]

    core.tenancy.request_arrived(claim, 61.0)
    prompt = Request(burst)
    assert preemption.choose_victim([prompt], claim, entitled=claim.is_entitled_to(50)) is prompt
    core.release(burst, kept=70)
    assert prefill(core, claim, 50) == [("burst", 50)]
    assert (claim.held, burst.held) == (60, 20)
    core.check()


def test_what_the_borrower_only_caches_is_reclaimed_without_a_preemption(core):
    claim, burst = core.ledger.zones["claim"], core.ledger.zones["burst"]
    core.tenancy.request_finished(claim, 0.0)
    core.upkeep(60.0)
    prefill(core, burst, 70)
    core.release(burst, kept=70)

    core.tenancy.request_arrived(claim, 61.0)
    assert prefill(core, claim, 60) == [("burst", 60)]
    core.check()
