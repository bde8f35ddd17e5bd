"""Chunks within a zone's reservation of a tier are evicted by the zone's own terms, and for no other zone."""

import pytest

from tenantzone_contract.zone_config.config import Watermarks
from tenantzone_contract.zone_config.tiers import TierShare
from tests.zones.core import declare
from tests.zones.test_tier import Chunks


def found(chunks, tenant, count):
    """Makes a zone that never had a request hold ``count`` chunks that an earlier engine stored."""
    free = [chunk for chunk, owner in enumerate(chunks.tier.ledger.owner) if owner is None]
    held, _ = chunks.tier.find_again(chunks.zone(tenant), free, [1.0] * count)
    assert len(held) == count
    return held


def held(chunks, *tenants):
    return [chunks.zone(tenant).held for tenant in tenants]


@pytest.mark.parametrize("lendable", ["100%", "50%", "0%"])
@pytest.mark.parametrize("others", [("flood",), ("flood", "other")])
def test_what_a_quiet_zone_holds_within_its_reservation_stays_whichever_zone_stores(lendable, others):
    flooding = {tenant: {} for tenant in others}
    acme = declare("acme", lendable=lendable)
    chunks = Chunks(acme, *map(declare, others), acme={"reserved": 60}, **flooding)
    kept = chunks.keep(chunks.active("acme"), 50)
    chunks.tier.request_finished(chunks.zone("acme"), 0.0)
    chunks.tier.upkeep(61.0)
    assert chunks.zone("acme").quiet
    for _ in range(20):
        for tenant in others:
            chunks.keep(chunks.active(tenant), 10)
    assert all(chunks.tier.has_stored(chunks.zone("acme"), chunk) for chunk in kept)
    unused = 0 if lendable == "0%" else 10
    assert sum(chunks.zone(tenant).held for tenant in others) == 40 + unused, "what it does not hold is lent"


def test_a_zone_within_its_reservation_takes_surplus_before_what_a_quiet_zone_holds_within_its_own():
    chunks = Chunks(acme={"reserved": 40}, gold={"reserved": 40}, late={})
    found(chunks, "gold", 40)
    assert chunks.zone("gold").quiet
    chunks.keep(chunks.active("late"), 60)
    assert len(chunks.keep(chunks.active("acme"), 40)) == 40
    assert held(chunks, "acme", "gold", "late") == [40, 40, 20]


def test_where_reservations_take_the_whole_tier_and_are_held_a_zone_without_one_stores_nothing():
    chunks = Chunks(acme={"reserved": 60}, gold={"reserved": 40}, late={})
    for tenant, count in (("acme", 60), ("gold", 40)):
        found(chunks, tenant, count)
    late = chunks.active("late")
    assert chunks.keep(late, 5) == []
    assert chunks.tier.counts_of(late).refused_writes == {"room": 5}


def test_a_reservation_that_is_lowered_protects_no_more_than_it_says():
    chunks = Chunks(declare("acme", after=0.0), declare("late"), acme={"reserved": 60}, late={})
    chunks.keep(chunks.active("acme"), 60)
    chunks.tier.request_finished(chunks.zone("acme"), 0.0)
    chunks.shares["acme"] = TierShare(tier="cpu", reserved=20)
    chunks.reload(declare("acme", after=0.0), declare("late"))
    chunks.tier.upkeep(1.0)
    assert len(chunks.keep(chunks.active("late"), 90)) == 80
    assert chunks.zone("acme").held == 20


def test_a_limit_that_is_lowered_takes_its_own_zones_chunks_and_those_of_no_other():
    chunks = Chunks(acme={"reserved": 40}, late={})
    found(chunks, "acme", 40)
    chunks.keep(chunks.active("late"), 60)
    chunks.shares["late"] = TierShare(tier="cpu", limit=10)
    assert len(chunks.reload(declare("acme"), declare("late"))) == 50
    assert held(chunks, "acme", "late") == [40, 10]


def test_the_watermark_takes_nothing_within_a_reservation():
    chunks = Chunks(acme={"reserved": 60}, late={})
    found(chunks, "acme", 60)
    chunks.keep(chunks.active("late"), 40)
    chunks.reload(declare("acme"), declare("late"), watermarks=Watermarks(low=0.9, high=0.9))
    assert len(chunks.tier.upkeep(1.0)) == 40
    assert held(chunks, "acme", "late") == [60, 0]
