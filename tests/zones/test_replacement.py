"""In which order a zone's own cached blocks go."""

import pytest

from tenantzone_runtime.zones.replacement import Clock, LeastRecentlyUsed, Links
from tests.zones.zoo import Zoo, declare

BLOCKS = 64


def fresh(order, block_ids=()):
    """An order that is the only one of its engine."""
    return order(Links(BLOCKS), block_ids)


@pytest.mark.parametrize("order", [LeastRecentlyUsed, Clock])
def test_blocks_that_nobody_hits_go_in_the_order_in_which_they_came(order):
    blocks = fresh(order)
    assert blocks.keep([3, 1]) == 2
    assert blocks.keep([2]) == 1
    assert (list(blocks), len(blocks), 1 in blocks, 9 in blocks) == ([3, 1, 2], 3, True, False)
    assert blocks.evict(2) == [3, 1]
    assert blocks.evict(1) == [2]
    assert len(blocks) == 0


@pytest.mark.parametrize("order", [LeastRecentlyUsed, Clock])
def test_a_block_in_use_can_not_be_evicted(order):
    blocks = fresh(order, [1, 2, 3])
    assert blocks.hit([1, 3]) == 2
    assert list(blocks) == [2]


@pytest.mark.parametrize("order", [LeastRecentlyUsed, Clock])
@pytest.mark.parametrize("foreign", [2, 3], ids=["another zone's", "nobody's"])
def test_a_block_that_is_not_in_the_order_can_be_neither_hit_nor_removed(order, foreign):
    links = Links(BLOCKS)
    blocks, others = order(links, [0, 1]), order(links, [2])
    with pytest.raises(KeyError, match=str(foreign)):
        blocks.remove(foreign)
    with pytest.raises(KeyError, match=str(foreign)):
        blocks.hit([0, foreign, 1])
    # Up to there it was done, and each order is whole.
    assert (list(blocks), len(blocks), list(others), len(others)) == ([1], 1, [2], 1)
    assert (blocks.evict(1), others.evict(1)) == ([1], [2])


@pytest.mark.parametrize("order", [LeastRecentlyUsed, Clock])
@pytest.mark.parametrize("kept", [0, 2], ids=["by the same zone", "by another zone"])
def test_a_block_that_is_kept_already_can_not_be_kept_again(order, kept):
    links = Links(BLOCKS)
    blocks, others = order(links, [0, 1]), order(links, [2])
    with pytest.raises(KeyError, match=str(kept)):
        blocks.keep([5, kept, 6])
    assert (list(blocks), len(blocks), list(others), len(others)) == ([0, 1, 5], 3, [2], 1)
    assert (blocks.evict(3), others.evict(1)) == ([0, 1, 5], [2])


@pytest.mark.parametrize("order", [LeastRecentlyUsed, Clock])
def test_no_more_can_be_evicted_than_there_are(order):
    blocks = fresh(order, [1, 2])
    with pytest.raises(KeyError, match="3 blocks are to be evicted, 2 are kept"):
        blocks.evict(3)
    assert blocks.evict(2) == [1, 2]
    with pytest.raises(KeyError):
        blocks.evict(1)


@pytest.mark.parametrize("order", [LeastRecentlyUsed, Clock])
def test_one_given_block_can_be_given_up(order):
    blocks = fresh(order, [1, 2, 3])
    blocks.remove(2)
    assert blocks.evict(2) == [1, 3]


def hit_and_keep(blocks, *ids):
    blocks.hit(ids)
    blocks.keep(ids)


def test_least_recently_used_forgets_a_hit_that_a_scan_has_passed():
    blocks = fresh(LeastRecentlyUsed, [1, 2])
    hit_and_keep(blocks, 1)
    blocks.keep([10, 11, 12])
    assert blocks.evict(2) == [2, 1]


def test_clock_gives_a_block_that_was_hit_a_second_chance_and_no_third():
    blocks = fresh(Clock, [1, 2, 3])
    hit_and_keep(blocks, 1)
    blocks.keep([4])
    assert blocks.evict(3) == [2, 3, 4]
    blocks.keep([5])
    assert blocks.evict(1) == [1]


def test_under_clock_a_shared_prefix_outlives_a_scan_of_other_prompts():
    """Of least recently used, the same scan leaves nothing."""
    survivors = {}
    for order in (LeastRecentlyUsed, Clock):
        blocks = fresh(order, [1, 2])
        for scanned in range(10, 60, 5):
            hit_and_keep(blocks, *(block for block in (1, 2) if block in blocks))
            blocks.keep(range(scanned, scanned + 5))
            blocks.evict(len(blocks) - 4)
        survivors[order] = {1, 2} & set(blocks)
    assert survivors == {LeastRecentlyUsed: set(), Clock: {1, 2}}


def test_clock_evicts_although_all_were_hit():
    blocks = fresh(Clock, [1, 2, 3])
    hit_and_keep(blocks, 1, 2, 3)
    assert blocks.evict(3) == [1, 2, 3]


def goes_first(clock):
    """Whether block 1, in use again for other content, is evicted like a block that was never hit."""
    clock.keep([1])
    clock.keep([2])
    return clock.evict(1) == [1]


def test_the_mark_of_a_block_that_was_dropped_is_gone():
    blocks = fresh(Clock, [1])
    blocks.hit([1])
    blocks.drop([1])
    assert goes_first(blocks)


def test_the_mark_of_a_block_that_was_removed_is_gone():
    blocks = fresh(Clock, [1])
    hit_and_keep(blocks, 1)
    blocks.remove(1)
    assert goes_first(blocks)


def test_the_mark_of_a_block_that_was_evicted_is_gone():
    blocks = fresh(Clock, [1])
    hit_and_keep(blocks, 1)
    blocks.evict(1)
    assert goes_first(blocks)


def test_a_zone_drops_the_marks_of_blocks_that_it_lets_go():
    zoo = Zoo()
    acme = zoo.zone("acme", policy="Clock")
    (block,) = zoo.hold(acme, cached=1)
    zoo.ledger.reuse(acme, [block])
    zoo.ledger.release(acme, [], [block])
    blocks = zoo.hold(acme, cached=2)
    assert blocks[0] == block
    assert zoo.ledger.evict(acme, 1, "own") == [block]


@pytest.mark.parametrize(("policy", "order"), [("LRU", LeastRecentlyUsed), ("Clock", Clock)])
def test_a_new_zone_keeps_its_cache_in_the_order_of_its_policy(policy, order):
    assert type(Zoo().zone("acme", policy=policy).cached) is order


def test_a_mark_means_nothing_in_another_zones_order():
    """The first zone turned to another policy while it used the block, and so never took the mark off."""
    links = Links(BLOCKS)
    first = Clock(links, [1])
    first.hit([1])
    LeastRecentlyUsed(links, first.clear()).drop([1])
    other = Clock(links, [1, 2])
    assert other.evict(1) == [1]


def test_a_zone_follows_the_policy_that_its_config_names():
    zoo = Zoo()
    zoo.apply(declare("acme", eviction_policy="Clock"))
    acme = zoo.ledger.zones["acme"]
    blocks = zoo.hold(acme, cached=3)
    zoo.ledger.reuse(acme, blocks[:1])
    zoo.ledger.release(acme, blocks[:1], [])
    assert zoo.ledger.evict(acme, 2, "own") == blocks[1:]


def test_a_reload_changes_the_policy_and_keeps_the_blocks_in_their_order():
    zoo = Zoo()
    zoo.apply(declare("acme"))
    acme = zoo.ledger.zones["acme"]
    blocks = zoo.hold(acme, cached=3)
    zoo.apply(declare("acme", eviction_policy="Clock"))
    assert isinstance(acme.cached, Clock)
    assert list(acme.cached) == blocks
    zoo.apply(declare("acme"))
    assert not isinstance(acme.cached, Clock)
    assert list(acme.cached) == blocks
    zoo.check()
