"""The orders of several zones in one set of links, against lists."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tenantzone_runtime.zones.eviction_policies.order import Links
from tests.zones.reference import Cache

STEPS = ["keep", "keep", "hit", "hit", "drop", "evict", "remove", "change the policy"]
ZONES = 2
SHARED = 8
"""Blocks, few enough for the same ones to be drawn again and again."""


POLICIES = st.sampled_from(list(EVICTION_POLICIES))


@given(
    st.tuples(*[POLICIES] * ZONES),
    st.lists(
        st.tuples(
            st.sampled_from(STEPS),
            st.integers(0, ZONES - 1),
            st.lists(st.integers(0, SHARED - 1), unique=True, min_size=1),
            POLICIES,
        ),
        min_size=20,
        max_size=60,
    ),
)
def test_zones_that_share_links_each_have_their_own_order(policies, steps):
    links = Links(SHARED)
    orders = [EVICTION_POLICIES[policy](links) for policy in policies]
    models = [Cache(policy) for policy in policies]
    hit = [set() for _ in orders]
    free = set(range(SHARED))
    for step, number, wanted, policy in steps:
        order, model = orders[number], models[number]
        choice = {"keep": free | hit[number], "drop": hit[number]}.get(step, model)
        blocks = [block for block in wanted if block in choice]
        if step == "keep":
            assert order.keep(blocks) == len(blocks)
            for block in blocks:
                model.keep(block)
            free.difference_update(blocks)
            hit[number].difference_update(blocks)
        elif step == "hit":
            assert order.hit(blocks) == len(blocks)
            for block in blocks:
                model.hit(block)
            hit[number].update(blocks)
        elif step == "drop":
            order.drop(blocks)
            for block in blocks:
                model.forget(block)
            hit[number].difference_update(blocks)
            free.update(blocks)
        elif step == "evict":
            evicted = [model.evict() for _ in blocks]
            assert order.evict(len(blocks)) == evicted
            free.update(evicted)
        elif step == "remove":
            for block in blocks:
                order.remove(block)
                model.forget(block)
            free.update(blocks)
        else:
            models[number] = Cache(policy, model)
            orders[number] = EVICTION_POLICIES[policy](links, order.clear())
            assert (list(order), len(order)) == ([], 0)
        for each, model in zip(orders, models, strict=True):
            # A wrong link may form a cycle.
            assert list(itertools.islice(each, SHARED + 1)) == model
            assert len(each) == len(model)
            assert {block for block in range(SHARED) if block in each} == set(model)


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_the_reference_model_has_each_policy(policy):
    assert Cache(policy).policy == policy


class CountedList(list):
    """A list that counts item reads and writes."""

    accesses = 0

    def __getitem__(self, index):
        CountedList.accesses += 1
        return super().__getitem__(index)

    def __setitem__(self, index, value):
        CountedList.accesses += 1
        super().__setitem__(index, value)


def accesses_for_each_block(policy, blocks):
    """Counts accesses in a life in which each block is kept, hit, kept again, evicted, kept, and removed or dropped."""
    links = Links(blocks)
    for name in ("after", "before", "noted", "order_of"):
        setattr(links, name, CountedList(getattr(links, name)))
    order = EVICTION_POLICIES[policy](links)
    CountedList.accesses = 0
    order.keep(range(blocks))
    for divisor in range(1, 6):
        hit = range(0, blocks, divisor)
        order.hit(hit)
        order.keep(hit)
    order.keep(order.evict(blocks))
    dropped = range(0, blocks, 2)
    order.hit(dropped)
    order.drop(dropped)
    for block in range(1, blocks, 2):
        order.remove(block)
    return CountedList.accesses / blocks


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_what_an_order_does_with_a_block_costs_the_same_among_many_as_among_few(policy):
    assert accesses_for_each_block(policy, 6_400) < 1.1 * accesses_for_each_block(policy, 64)
