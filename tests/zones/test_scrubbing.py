"""Which blocks must be zeroed because they move from the zone whose data they hold to another."""

import pytest

from tests.zones.core import Core


@pytest.fixture
def core():
    return Core()


def freed_by_eviction(core, zone):
    return core.ledger.evict(zone, len(zone.cached), "reset")


def freed_by_its_request(core, zone):
    blocks = [block for block, owner in enumerate(core.ledger.owner) if owner is zone and block not in zone.cached]
    core.ledger.release(zone, [], blocks)
    return blocks


@pytest.mark.parametrize("freed", [freed_by_eviction, freed_by_its_request])
def test_a_block_that_comes_to_another_zone_is_zeroed_once(core, freed):
    acme, burst = core.zone("acme", in_use=2, cached=2, scrub=True), core.zone("burst")
    blocks = freed(core, acme)
    core.ledger.take(burst, blocks)
    assert core.ledger.take_blocks_to_scrub() == blocks
    assert core.ledger.take_blocks_to_scrub() == []
    core.ledger.release(burst, [], blocks)
    core.ledger.take(acme, blocks)
    assert core.ledger.take_blocks_to_scrub() == []


def test_a_block_that_comes_back_to_its_own_zone_is_not_zeroed(core):
    acme, burst = core.zone("acme", cached=2, scrub=True), core.zone("burst")
    blocks = freed_by_eviction(core, acme)
    core.ledger.take(acme, blocks)
    assert core.ledger.take_blocks_to_scrub() == []
    core.ledger.release(acme, [], blocks)
    core.ledger.take(burst, blocks)
    assert core.ledger.take_blocks_to_scrub() == blocks


def test_of_several_blocks_those_of_the_scrubbed_zone_are_zeroed(core):
    acme, calm, burst = core.zone("acme", cached=2, scrub=True), core.zone("calm", cached=2), core.zone("burst")
    theirs, others = freed_by_eviction(core, acme), freed_by_eviction(core, calm)
    core.ledger.take(burst, [*others, *theirs])
    assert core.ledger.take_blocks_to_scrub() == theirs


def test_a_block_that_comes_to_a_request_from_before_zones_is_zeroed(core):
    blocks = freed_by_eviction(core, core.zone("acme", cached=2, scrub=True))
    core.ledger.take(core.early(), blocks)
    assert core.ledger.take_blocks_to_scrub() == blocks


def test_a_block_that_no_scrubbed_zone_has_used_is_not_zeroed(core):
    blocks = freed_by_eviction(core, core.zone("acme", cached=2, scrub=True))
    core.ledger.take(core.zone("burst"), [block for block in range(core.capacity) if block not in blocks])
    assert core.ledger.take_blocks_to_scrub() == []
