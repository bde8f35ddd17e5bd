"""The totals over all zones, against adding up zone by zone."""

from hypothesis import given
from hypothesis import strategies as st

from tests.zones.core import Core

PRIORITIES = st.integers(-1, 1)


@st.composite
def crowds(draw):
    """Zones of a pool with any holdings."""
    core = Core(200)
    for number in range(draw(st.integers(1, 5))):
        reserved = draw(st.integers(0, 40))
        core.zone(
            f"zone-{number}",
            reserved=reserved,
            lendable=draw(st.integers(0, reserved)),
            in_use=draw(st.integers(0, 20)),
            cached=draw(st.integers(0, 20)),
            quiet=draw(st.booleans()),
            priority=draw(PRIORITIES),
            borrowers=draw(st.sampled_from(["SameOrHigherPriority", "AnyPriority"])),
            weight=draw(st.integers(1, 3)),
        )
    return core


@given(crowds())
def test_what_all_leave_together_and_what_a_zone_adds_of_its_own_is_what_it_has(core):
    totals = core.ledger.totals
    for zone in core.ledger.zones.values():
        _, own_of_spare, own_of_surplus = zone.prospects
        priority = zone.spec.priority
        spare = totals.total("spare", priority, core.free) + own_of_spare
        with_surplus = totals.total("surplus", priority, core.free) + own_of_surplus
        assert spare == totals.spare(zone, core.free)
        assert with_surplus == spare + totals.surplus_cached_elsewhere(zone)


@given(crowds(), PRIORITIES)
def test_what_is_spare_for_a_newcomer_is_what_is_left_when_each_has_what_it_may_keep(core, priority):
    """A quiet zone keeps what it lends to no other zone, and lends the rest to those it may lend to.

    An active one keeps what it holds, and what it may still claim of its reservation.
    """
    newcomer = core.zone("newcomer", priority=priority)
    kept = 0
    for zone in core.ledger.zones.values():
        quota = zone.spec.quota
        if not zone.quiet:
            kept += max(zone.held, quota.reserved)
        elif priority < zone.spec.priority and zone.spec.lending.borrowers != "AnyPriority":
            kept += max(zone.in_use, quota.reserved)
        else:
            kept += max(zone.in_use, quota.reserved - quota.lendable)
    assert core.ledger.totals.spare(newcomer, core.free) == core.capacity - kept
    assert core.takeable(newcomer) == max(0, core.capacity - kept)


@given(crowds(), PRIORITIES)
def test_what_a_newcomer_can_reach_is_what_others_never_lend_it(core, priority):
    newcomer = core.zone("newcomer", priority=priority)
    never = 0
    for zone in core.ledger.zones.values():
        lends = priority >= zone.spec.priority or zone.spec.lending.borrowers == "AnyPriority"
        never += zone.spec.quota.reserved - (zone.spec.quota.lendable if lends else 0)
    assert core.ledger.totals.reachable(newcomer) == max(0, core.capacity - never)


@given(crowds())
def test_the_share_of_each_is_by_its_weight_among_those_that_are_not_quiet(core):
    zones = core.ledger.zones.values()
    unreserved = core.capacity - sum(zone.spec.quota.reserved for zone in zones)
    for zone in zones:
        active = sum(other.spec.weight for other in zones if not other.quiet)
        assert core.ledger.totals.share(zone) == unreserved * zone.spec.weight // max(active, zone.spec.weight)


def test_of_zones_that_change_only_one_that_was_denied_is_reconsidered():
    core = Core(200)
    denied, other = core.zone("denied", in_use=20), core.zone("other", in_use=20)
    core.ledger.totals.take_to_reconsider()
    denied.backoff_ticket, denied.denied_with = 1, denied.prospects
    for zone in (denied, other):
        core.release(zone, kept=5)
    assert core.ledger.totals.take_to_reconsider() == [denied]
    denied.denied_with = denied.prospects
    core.take(denied, 1)
    assert core.ledger.totals.take_to_reconsider() == []
