"""The order in which a zone's own cached blocks are evicted, by each registered policy."""

import re
from pathlib import Path

import pytest
import yaml

from hack.generate import policy_names
from tenantzone_contract.zone_config import eviction_policies
from tenantzone_contract.zone_config.config import ConfigError
from tenantzone_operator.advice.values import ANYTHING
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tenantzone_runtime.zones.eviction_policies.clock import Clock
from tenantzone_runtime.zones.eviction_policies.lfu import MOST_USES, LeastFrequentlyUsed
from tenantzone_runtime.zones.eviction_policies.lru import LeastRecentlyUsed
from tenantzone_runtime.zones.eviction_policies.order import Links
from tests.zones.core import Core, declare

BLOCKS = 64
REPOSITORY = Path(__file__).parents[2]

each_policy = pytest.mark.parametrize("policy", EVICTION_POLICIES)
each_order = pytest.mark.parametrize("order", EVICTION_POLICIES.values(), ids=EVICTION_POLICIES)


def fresh(order, block_ids=()):
    """The only order of an engine."""
    return order(Links(BLOCKS), block_ids)


@each_order
def test_blocks_without_hits_go_in_the_order_in_which_they_came(order):
    blocks = fresh(order)
    assert blocks.keep([3, 1]) == 2
    assert blocks.keep([2]) == 1
    assert (list(blocks), len(blocks), 1 in blocks, 9 in blocks) == ([3, 1, 2], 3, True, False)
    assert blocks.evict(2) == [3, 1]
    assert blocks.evict(1) == [2]
    assert len(blocks) == 0


@each_order
def test_a_block_in_use_can_not_be_evicted(order):
    blocks = fresh(order, [1, 2, 3])
    assert blocks.hit([1, 3]) == 2
    assert list(blocks) == [2]


@each_order
@pytest.mark.parametrize("foreign", [2, 3], ids=["another zone's", "no zone's"])
def test_a_block_that_is_not_in_the_order_can_be_neither_hit_nor_removed(order, foreign):
    links = Links(BLOCKS)
    blocks, others = order(links, [0, 1]), order(links, [2])
    with pytest.raises(KeyError, match=str(foreign)):
        blocks.remove(foreign)
    with pytest.raises(KeyError, match=str(foreign)):
        blocks.hit([0, foreign, 1])
    # The hits before the foreign block have taken effect, and each order is whole.
    assert (list(blocks), len(blocks), list(others), len(others)) == ([1], 1, [2], 1)
    assert (blocks.evict(1), others.evict(1)) == ([1], [2])


@each_order
@pytest.mark.parametrize("kept", [0, 2], ids=["by the same zone", "by another zone"])
def test_a_block_that_is_kept_already_can_not_be_kept_again(order, kept):
    links = Links(BLOCKS)
    blocks, others = order(links, [0, 1]), order(links, [2])
    with pytest.raises(KeyError, match=str(kept)):
        blocks.keep([5, kept, 6])
    assert (list(blocks), len(blocks), list(others), len(others)) == ([0, 1, 5], 3, [2], 1)
    assert (blocks.evict(3), others.evict(1)) == ([0, 1, 5], [2])


@each_order
def test_no_more_can_be_evicted_than_there_are(order):
    blocks = fresh(order, [1, 2])
    with pytest.raises(KeyError, match="can't evict 3 blocks, because only 2 are cached"):
        blocks.evict(3)
    assert blocks.evict(2) == [1, 2]
    with pytest.raises(KeyError):
        blocks.evict(1)


@each_order
def test_one_given_block_can_be_given_up(order):
    blocks = fresh(order, [1, 2, 3])
    blocks.remove(2)
    assert blocks.evict(2) == [1, 3]


@each_order
def test_all_can_be_evicted_although_all_were_hit(order):
    blocks = fresh(order, [1, 2, 3])
    hit_and_keep(blocks, 1, 2, 3)
    assert blocks.evict(3) == [1, 2, 3]


def hit_and_keep(blocks, *ids):
    blocks.hit(ids)
    blocks.keep(ids)


# Blocks that leave the zone and come back to it with other content


def goes_first(blocks):
    """Whether block 1, in use again for other content, is evicted like a block that was never hit."""
    blocks.keep([1])
    blocks.keep([2])
    return blocks.evict(1) == [1]


@each_order
def test_what_was_noted_of_a_block_that_was_dropped_is_gone(order):
    blocks = fresh(order, [1])
    blocks.hit([1])
    blocks.drop([1])
    assert goes_first(blocks)


@each_order
def test_what_was_noted_of_a_block_that_was_removed_is_gone(order):
    blocks = fresh(order, [1])
    hit_and_keep(blocks, 1)
    blocks.remove(1)
    assert goes_first(blocks)


@each_order
def test_what_was_noted_of_a_block_that_was_evicted_is_gone(order):
    blocks = fresh(order, [1])
    hit_and_keep(blocks, 1)
    blocks.evict(1)
    assert goes_first(blocks)


@each_policy
def test_a_zone_forgets_what_was_noted_of_blocks_that_it_lets_go(policy):
    core = Core()
    acme = core.zone("acme", policy=policy)
    (block,) = core.hold(acme, cached=1)
    core.ledger.reuse(acme, [block])
    core.ledger.release(acme, [], [block])
    blocks = core.hold(acme, cached=2)
    assert blocks[0] == block
    assert core.ledger.evict(acme, 1, "own") == [block]


@each_order
def test_what_was_noted_means_nothing_in_another_zones_order(order):
    """The first zone changed its policy while it used the block; the new policy knows nothing of what was noted."""
    links = Links(BLOCKS)
    first = order(links, [1])
    first.hit([1])
    LeastRecentlyUsed(links, first.clear()).drop([1])
    other = order(links, [1, 2])
    assert other.evict(1) == [1]


@each_order
def test_an_order_that_was_cleared_has_left_nothing_behind(order):
    links = Links(BLOCKS)
    blocks = order(links, [1, 2, 3])
    hit_and_keep(blocks, 3)
    assert sorted(blocks.clear()) == [1, 2, 3]
    assert (list(blocks), len(blocks)) == ([], 0)
    assert set(links.noted) == set(links.order_of) == {None}


# The policy of a zone


@each_policy
def test_a_new_zone_keeps_its_cache_in_the_order_of_its_policy(policy):
    assert type(Core().zone("acme", policy=policy).cached) is EVICTION_POLICIES[policy]


@each_policy
@pytest.mark.parametrize("before", EVICTION_POLICIES)
def test_a_reload_changes_the_policy_and_keeps_the_blocks_in_their_order(before, policy):
    core = Core()
    core.apply(declare("acme", eviction_policy=before))
    acme = core.ledger.zones["acme"]
    blocks = core.hold(acme, cached=3)
    core.apply(declare("acme", eviction_policy=policy))
    assert type(acme.cached) is EVICTION_POLICIES[policy]
    assert list(acme.cached) == blocks
    core.check()


def test_an_unregistered_policy_is_refused_by_name_and_nothing_changes():
    core = Core()
    core.apply(declare("acme", reserved=10))
    with pytest.raises(ConfigError, match=r"zones\[1\].evictionPolicy: this engine supports LRU, .*, not Random"):
        core.apply(declare("acme", reserved=20), declare("burst", eviction_policy="Random"))
    assert list(core.ledger.zones) == ["acme"]
    assert core.ledger.zones["acme"].spec.quota.reserved == 10


def schema_of_the_field():
    crd = yaml.safe_load((REPOSITORY / "crds" / "tenantzones.yaml").read_text())
    spec = crd["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec["properties"]["evictionPolicy"]


def test_crds_and_contract_have_the_names_of_the_registry():
    stale = [path.name for path, text in policy_names.files().items() if path.read_text() != text]
    assert stale == [], "run make policy-names"
    assert tuple(EVICTION_POLICIES) == eviction_policies.EVICTION_POLICIES
    assert ANYTHING.eviction_policies == tuple(EVICTION_POLICIES)


@pytest.mark.parametrize("crd", policy_names.CRDS, ids=lambda path: path.stem)
def test_a_new_policy_of_the_registry_is_written_into_the_enums_and_nowhere_else(crd):
    before, after = (yaml.safe_load(text) for text in (crd.read_text(), policy_names.files(["LRU", "Novel"])[crd]))
    changed = {place: (old, new) for place, old, new in differences(before, after)}
    (place,) = changed
    assert place in ("evictionPolicy.enum", "evictionPolicies.items.enum")
    assert changed[place] == (list(EVICTION_POLICIES), ["LRU", "Novel"])


def differences(before, after, place=()):
    """The last three parts, at most, of each place at which two documents differ, with both values."""
    if isinstance(before, dict) and before.keys() == after.keys():
        for key in before:
            yield from differences(before[key], after[key], (*place, key))
    elif isinstance(before, list) and any(isinstance(each, dict) for each in before) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, (*place, str(number)))
    elif before != after:
        start = next(number for number, part in enumerate(place) if part.startswith("evictionPolic"))
        yield ".".join(place[start:]), before, after


@each_policy
def test_the_description_of_the_field_says_what_each_policy_does(policy):
    assert f"{policy} " in schema_of_the_field()["description"]


@each_policy
def test_the_documentation_says_what_each_policy_does(policy):
    algebra = (REPOSITORY / "docs" / "algebra.md").read_text()
    (section,) = re.findall(r"^## Eviction policies\n(.*?)^## ", algebra, re.MULTILINE | re.DOTALL)
    (row,) = re.findall(r"^\| `evictionPolicy` \|.*$", (REPOSITORY / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert f"- `{policy}` " in section
    assert f"`{policy}`" in row


# What each policy does well


def survivors(order):
    """Blocks of a prefix that survive when the prefix is hit again and again while other prompts pass by."""
    blocks = fresh(order, [1, 2])
    for scanned in range(10, 60, 5):
        hit_and_keep(blocks, *(block for block in (1, 2) if block in blocks))
        blocks.keep(range(scanned, scanned + 5))
        blocks.evict(len(blocks) - 4)
    return {1, 2} & set(blocks)


def test_least_recently_used_forgets_a_hit_that_a_scan_has_passed():
    blocks = fresh(LeastRecentlyUsed, [1, 2])
    hit_and_keep(blocks, 1)
    blocks.keep([10, 11, 12])
    assert blocks.evict(2) == [2, 1]
    assert survivors(LeastRecentlyUsed) == set()


@pytest.mark.parametrize("order", [Clock, LeastFrequentlyUsed])
def test_a_shared_prefix_outlives_a_scan_of_other_prompts(order):
    assert survivors(order) == {1, 2}


def test_clock_gives_a_block_that_was_hit_a_second_chance_and_no_third():
    blocks = fresh(Clock, [1, 2, 3])
    hit_and_keep(blocks, 1)
    blocks.keep([4])
    assert blocks.evict(3) == [2, 3, 4]
    blocks.keep([5])
    assert blocks.evict(1) == [1]


def test_the_least_often_used_goes_first_and_among_equals_the_one_used_longest_ago():
    blocks = fresh(LeastFrequentlyUsed, [1, 2, 3, 4])
    hit_and_keep(blocks, 4, 1)
    hit_and_keep(blocks, 1)
    assert list(blocks) == [2, 3, 4, 1]
    hit_and_keep(blocks, 2)
    assert list(blocks) == [3, 4, 2, 1]
    assert blocks.evict(4) == [3, 4, 2, 1]


def turnovers_outlived(uses):
    """Returns how many times a full cache of one-time blocks turns over before a block with `uses` uses is evicted."""
    blocks = fresh(LeastFrequentlyUsed, [0])
    for _ in range(uses - 1):
        hit_and_keep(blocks, 0)
    blocks.keep(range(1, 11))
    turnovers = 0
    while 0 not in (evicted := blocks.evict(10)):
        blocks.keep(evicted)
        turnovers += 1
    return turnovers


def test_each_use_lets_a_block_outlive_one_more_turnover_and_no_use_lasts_for_ever():
    assert [turnovers_outlived(uses) for uses in (2, 3, 7)] == [1, 2, 6]


def test_beyond_the_most_uses_that_count_one_more_makes_no_difference():
    assert turnovers_outlived(MOST_USES) == MOST_USES - 1
    assert turnovers_outlived(10 * MOST_USES) == MOST_USES - 1


def test_a_block_that_is_used_again_keeps_its_count_and_has_the_age_of_now():
    blocks = fresh(LeastFrequentlyUsed, [1, 2, 3])
    hit_and_keep(blocks, 1)
    assert blocks.evict(1) == [2]
    # One use each; in this age that counts as much as two in the previous one.
    blocks.keep([4])
    assert list(blocks) == [3, 1, 4]
    hit_and_keep(blocks, 1)
    assert list(blocks) == [3, 4, 1]


def test_zones_that_share_an_engine_age_by_themselves():
    links = Links(BLOCKS)
    acme, burst = LeastFrequentlyUsed(links, [1]), LeastFrequentlyUsed(links, range(10, 20))
    hit_and_keep(acme, 1)
    for _ in range(5):
        burst.keep(burst.evict(10))
    acme.keep([2])
    assert list(acme) == [2, 1]


def test_what_is_noted_of_blocks_that_were_used_as_often_in_one_age_is_one_thing():
    """Otherwise an order would keep more in memory than a number for each block."""
    blocks = fresh(LeastFrequentlyUsed, range(20))
    hit_and_keep(blocks, *range(10))
    assert len({id(note) for note in blocks.links.noted if note is not None}) == 2
