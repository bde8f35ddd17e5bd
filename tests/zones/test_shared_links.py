"""The orders of several zones in one set of links, against lists."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.replacement import Clock, LeastRecentlyUsed, Links
from tenantzone_runtime.zones.zone import replacement_order


class Model:
    """The plainest order: a list with the hand at its front, and a mark for each block that was hit."""

    def __init__(self, is_clock, kept=()):
        self.is_clock = is_clock
        self.kept = list(kept)
        self.marks = set()

    def evict(self, count):
        evicted = []
        while len(evicted) < count:
            front = self.kept.pop(0)
            if front in self.marks:
                self.marks.remove(front)
                self.kept.append(front)
            else:
                evicted.append(front)
        return evicted


STEPS = ["keep", "keep", "hit", "hit", "drop", "evict", "remove", "change the policy"]
ORDERS = 2
SHARED = 8
"""Blocks, few enough to meet again and again."""


@given(
    st.tuples(*[st.booleans()] * ORDERS),
    st.lists(
        st.tuples(
            st.sampled_from(STEPS),
            st.integers(0, ORDERS - 1),
            st.lists(st.integers(0, SHARED - 1), unique=True, min_size=1),
        ),
        min_size=20,
        max_size=60,
    ),
)
def test_zones_that_share_links_each_have_their_own_order(clocks, steps):
    links = Links(SHARED)
    orders = [Clock(links) if is_clock else LeastRecentlyUsed(links) for is_clock in clocks]
    models = [Model(is_clock) for is_clock in clocks]
    hit = [set() for _ in orders]
    free = set(range(SHARED))
    for step, number, wanted in steps:
        order, model = orders[number], models[number]
        choice = {"keep": free | hit[number], "drop": hit[number]}.get(step, model.kept)
        blocks = [block for block in wanted if block in choice]
        if step == "keep":
            assert order.keep(blocks) == len(blocks)
            model.kept += blocks
            free.difference_update(blocks)
            hit[number].difference_update(blocks)
        elif step == "hit":
            assert order.hit(blocks) == len(blocks)
            model.kept = [block for block in model.kept if block not in blocks]
            model.marks.update(blocks if model.is_clock else ())
            hit[number].update(blocks)
        elif step == "drop":
            order.drop(blocks)
            model.marks.difference_update(blocks)
            hit[number].difference_update(blocks)
            free.update(blocks)
        elif step == "evict":
            evicted = model.evict(len(blocks))
            assert order.evict(len(blocks)) == evicted
            free.update(evicted)
        elif step == "remove":
            for block in blocks:
                order.remove(block)
                model.kept.remove(block)
            model.marks.difference_update(blocks)
            free.update(blocks)
        else:
            models[number] = Model(not model.is_clock, model.kept)
            orders[number] = replacement_order("LRU" if model.is_clock else "Clock", links, order.clear())
            assert (list(order), len(order)) == ([], 0)
        for each, model in zip(orders, models, strict=True):
            # A wrong link may lead in a circle.
            assert list(itertools.islice(each, SHARED + 1)) == model.kept
            assert len(each) == len(model.kept)
            assert {block for block in range(SHARED) if block in each} == set(model.kept)
