"""The orders and sums over zones, compared with a scan of all zones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.zones.blocks.victims import SumsByPriority, VictimOrder
from tenantzone_runtime.zones.eviction_policies.order import Links
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.zone import ZoneSpec, new_zone

PRIORITIES = st.integers(-3, 3)


def make_zone(number, priority=0, active=0.0):
    tenant = f"zone-{number}"
    zone = new_zone(ZoneSpec(tenant, tenant, 1, priority, Quota(0, 10, 0), Idle()), active, Links(0))
    zone.number = number
    return zone


def test_an_empty_order_has_no_victim():
    order = VictimOrder()
    assert (order.first(), order.first_up_to(5), order.first_above(-5), len(order)) == (None, None, None, 0)


def test_who_is_excluded_is_passed_over():
    order = VictimOrder()
    low, high = make_zone(1, priority=0), make_zone(2, priority=1)
    order.toggle(low)
    assert order.first(excluding=low) is None
    order.toggle(high)
    assert order.first(excluding=low) is high
    assert order.first(excluding=high) is low
    assert order.first() is low


def test_of_equals_the_one_that_came_first_yields_first():
    order = VictimOrder()
    late, early = make_zone(2), make_zone(1)
    order.toggle(late)
    order.toggle(early)
    assert order.first() is early


def test_who_is_not_in_is_neither_moved_nor_removed():
    order = VictimOrder()
    zone = make_zone(1)
    order.move(zone)
    order.remove(zone)
    assert zone not in order.members
    order.toggle(zone)
    assert zone in order.members
    order.toggle(zone)
    assert zone not in order.members


@st.composite
def changes(draw):
    """For a zone: its new priority and activity, and whether it is moved, entered or taken out."""
    change = st.tuples(st.integers(0, 5), PRIORITIES, st.integers(0, 5), st.booleans())
    return draw(st.lists(change, max_size=40))


@given(changes(), PRIORITIES)
def test_the_order_is_that_of_sorting_everybody_anew(changes, priority):
    zones = [make_zone(number) for number in range(6)]
    order = VictimOrder()
    entered = {}
    for index, new_priority, active, moves in changes:
        zone = zones[index]
        zone.follow(ZoneSpec(zone.spec.tenant, zone.spec.name, 1, new_priority, Quota(0, 10, 0), Idle()))
        zone.last_active = float(active)
        if moves:
            order.move(zone)
        else:
            order.toggle(zone)
        if (index in entered) == moves:
            entered[index] = (new_priority, active, index)
        else:
            entered.pop(index, None)
        ranked = [zones[index] for index in sorted(entered, key=entered.get)]
        assert len(order) == len(ranked)
        assert [zone in order.members for zone in zones] == [index in entered for index in range(6)]
        assert order.first() is (ranked[0] if ranked else None)
        for excluded in zones:
            assert order.first(excluding=excluded) is next((zone for zone in ranked if zone is not excluded), None)
        # A zone's rank is the one it had when it was entered, whatever its priority is now.
        low = [zones[index] for index in sorted(entered, key=entered.get) if entered[index][0] <= priority]
        high = [zones[index] for index in sorted(entered, key=entered.get) if entered[index][0] > priority]
        assert order.first_up_to(priority) is (low[0] if low else None)
        assert order.first_above(priority) is (high[0] if high else None)


@given(st.lists(st.tuples(PRIORITIES, st.integers(0, 5)), max_size=30))
def test_sums_above_a_priority_are_those_of_adding_up_anew(amounts):
    sums = SumsByPriority()
    current: dict[int, int] = {}
    for priority, amount in amounts:
        sums.add(priority, amount - current.get(priority, 0))
        current[priority] = amount
        assert sums.total == sum(current.values())
        for bound in range(-4, 5):
            assert sums.above(bound) == sum(amount for priority, amount in current.items() if priority > bound)


@pytest.mark.parametrize("priority", [-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1])
def test_sums_are_right_at_the_ends_of_what_a_priority_can_be(priority):
    sums = SumsByPriority()
    sums.add(priority, 5)
    assert sums.above(priority) == 0
    if priority > -(2**31):
        assert sums.above(priority - 1) == sums.above(-(2**31)) == 5
    if priority < 2**31 - 1:
        assert sums.above(priority + 1) == sums.above(2**31 - 1) == 0


def test_of_a_priority_without_an_amount_nothing_is_left():
    sums = SumsByPriority()
    sums.add(-5, 3)
    alone = len(sums)
    for priority in range(1000):
        sums.add(priority, 7)
        sums.add(priority, -7)
        assert len(sums) == alone
    sums.add(-5, -3)
    assert len(sums) == 0
