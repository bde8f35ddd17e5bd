"""The amount of work in one part."""

import pytest

from tenantzone_runtime.zones.model.parts import ALL, slices, zones_for


@pytest.mark.parametrize(("blocks", "zones"), [(0, 1), (1, 1), (99, 1), (100, 2), (5000, 100)])
def test_as_many_zones_are_looked_at_as_evicting_the_blocks_would_cost_and_at_least_one(blocks, zones):
    assert zones_for(blocks) == zones


@pytest.mark.parametrize(
    ("at_once", "expected"),
    [(1, ["a", "b", "c", "d", "e"]), (2, ["ab", "cd", "e"]), (5, ["abcde"]), (ALL, ["abcde"])],
)
def test_slices_are_all_items_in_their_order_in_batches(at_once, expected):
    assert list(slices("abcde", at_once)) == expected
    assert list(slices("", at_once)) == []
