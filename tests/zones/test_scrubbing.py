"""Which blocks must be zeroed, because they come to another zone than the one whose data they hold."""

import pytest

from tests.zones.zoo import Zoo


@pytest.fixture
def zoo():
    return Zoo()


def freed_by_eviction(zoo, zone):
    return zoo.ledger.evict(zone, len(zone.cached), "reset")


def freed_by_its_request(zoo, zone):
    blocks = [block for block, owner in enumerate(zoo.ledger.owner) if owner is zone and block not in zone.cached]
    zoo.ledger.release(zone, [], blocks)
    return blocks


@pytest.mark.parametrize("freed", [freed_by_eviction, freed_by_its_request])
def test_a_block_that_comes_to_another_zone_is_zeroed_once(zoo, freed):
    acme, burst = zoo.zone("acme", in_use=2, cached=2, scrub=True), zoo.zone("burst")
    blocks = freed(zoo, acme)
    zoo.ledger.take(burst, blocks)
    assert zoo.ledger.take_blocks_to_scrub() == blocks
    assert zoo.ledger.take_blocks_to_scrub() == []
    zoo.ledger.release(burst, [], blocks)
    zoo.ledger.take(acme, blocks)
    assert zoo.ledger.take_blocks_to_scrub() == []


def test_a_block_that_comes_back_to_its_own_zone_is_not_zeroed(zoo):
    acme, burst = zoo.zone("acme", cached=2, scrub=True), zoo.zone("burst")
    blocks = freed_by_eviction(zoo, acme)
    zoo.ledger.take(acme, blocks)
    assert zoo.ledger.take_blocks_to_scrub() == []
    zoo.ledger.release(acme, [], blocks)
    zoo.ledger.take(burst, blocks)
    assert zoo.ledger.take_blocks_to_scrub() == blocks


def test_of_several_blocks_those_of_the_scrubbed_zone_are_zeroed(zoo):
    acme, calm, burst = zoo.zone("acme", cached=2, scrub=True), zoo.zone("calm", cached=2), zoo.zone("burst")
    theirs, others = freed_by_eviction(zoo, acme), freed_by_eviction(zoo, calm)
    zoo.ledger.take(burst, [*others, *theirs])
    assert zoo.ledger.take_blocks_to_scrub() == theirs


def test_a_block_that_comes_to_a_request_from_before_zones_is_zeroed(zoo):
    blocks = freed_by_eviction(zoo, zoo.zone("acme", cached=2, scrub=True))
    zoo.ledger.take(zoo.early(), blocks)
    assert zoo.ledger.take_blocks_to_scrub() == blocks


def test_a_block_that_no_scrubbed_zone_has_used_is_not_zeroed(zoo):
    blocks = freed_by_eviction(zoo, zoo.zone("acme", cached=2, scrub=True))
    zoo.ledger.take(zoo.zone("burst"), [block for block in range(zoo.capacity) if block not in blocks])
    assert zoo.ledger.take_blocks_to_scrub() == []
