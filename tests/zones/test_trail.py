"""The trail while no reader collects it: what can be added up is added up, and memory stays bounded."""

import pytest

from tenantzone_runtime.zones.audit.events import (
    Balance,
    Evicted,
    Lent,
    Lifecycle,
    LoanUsage,
    Lost,
    Preempted,
    Refused,
    Repaid,
)
from tenantzone_runtime.zones.audit.trail import Trail


def test_what_two_zones_lend_and_repay_is_added_up_and_overdue_blocks_are_separate():
    trail = Trail()
    trail.lent("acme", "burst", 5, 60.0)
    trail.repaid("acme", "burst", 2, 1.0, overdue=False)
    trail.lent("acme", "burst", 4, 50.0)
    trail.lent("gold", "burst", 1, None)
    trail.repaid("acme", "burst", 3, 2.0, overdue=False)
    trail.repaid("acme", "burst", 1, 3.0, overdue=True)
    assert trail.collect() == [
        Lent("acme", "burst", 9, 50.0),
        Lent("gold", "burst", 1, None),
        Repaid("acme", "burst", 5, 2.0, overdue=False),
        Repaid("acme", "burst", 1, 3.0, overdue=True),
    ]
    assert trail.collect() == []


def test_what_a_loan_came_to_is_reported_once_or_goes_on_with_the_next_one():
    trail = Trail()
    over = LoanUsage("acme", "burst", 1.0, 40.0)
    trail.loan_over(over)
    assert trail.resume_loan("burst", "acme") is None
    assert trail.resume_loan("acme", "burst") == over
    assert trail.collect() == []
    trail.loan_over(over)
    assert trail.collect() == [over]
    assert trail.resume_loan("acme", "burst") is None


def of_each_kind(number):
    """For each way to note something about a zone: the call, its result if made once, and if made twice."""
    zone = f"tenant-{number}"
    usage = LoanUsage(zone, "burst", 1.0, 40.0)
    return [
        (
            lambda trail: trail.granted(zone, 2, above_reservation=1, held=7),
            Balance(zone, granted=2, above_reservation=1, released=0, held=7),
            Balance(zone, granted=4, above_reservation=2, released=0, held=7),
        ),
        (
            lambda trail: trail.released(zone, 3, held=7),
            Balance(zone, granted=0, above_reservation=0, released=3, held=7),
            Balance(zone, granted=0, above_reservation=0, released=6, held=7),
        ),
        (
            lambda trail: trail.preempted(zone, "own", zone),
            Preempted(zone, 1, "own", zone),
            Preempted(zone, 2, "own", zone),
        ),
        (lambda trail: trail.refused(zone, "too_long"), Refused(zone, 1, "too_long"), Refused(zone, 2, "too_long")),
        (lambda trail: trail.lent(zone, "burst", 3, None), Lent(zone, "burst", 3, None), Lent(zone, "burst", 6, None)),
        (
            lambda trail: trail.repaid(zone, "burst", 3, 1.0, overdue=False),
            Repaid(zone, "burst", 3, 1.0, overdue=False),
            Repaid(zone, "burst", 6, 1.0, overdue=False),
        ),
        (lambda trail: trail.loan_over(usage), usage, usage),
    ]


def test_evictions_are_kept_by_zone_reason_and_beneficiary_and_what_is_more_is_counted():
    trail = Trail(max_of_a_kind=3)
    for held, beneficiary in enumerate(["acme", "burst", "acme", "calm", "dusk", "burst"]):
        trail.evicted("acme", 5, "quiet", beneficiary, held=held)
    assert trail.collect() == [
        Evicted("acme", 10, "quiet", "acme"),
        Evicted("acme", 10, "quiet", "burst"),
        Evicted("acme", 5, "quiet", "calm"),
        Balance("acme", granted=0, above_reservation=0, released=0, held=5),
        Lost(1),
    ]


@pytest.mark.parametrize("kind", range(len(of_each_kind(0))))
def test_of_each_kind_a_bounded_number_is_kept_and_the_rest_is_counted(kind):
    trail = Trail(max_of_a_kind=3)
    for number in range(5):
        note, _, _ = of_each_kind(number)[kind]
        note(trail)
    note_first_again, _, _ = of_each_kind(0)[kind]
    note_first_again(trail)
    reported = trail.collect()
    assert reported == [of_each_kind(0)[kind][2], of_each_kind(1)[kind][1], of_each_kind(2)[kind][1], Lost(2)]
    assert trail.collect() == [], "the count begins anew"


def test_of_events_in_their_order_the_first_are_kept_and_what_is_more_is_counted():
    trail = Trail(max_of_a_kind=2)
    for number in range(5):
        trail.left(f"tenant-{number}", "forgotten")
    trail.granted("acme", 1, above_reservation=0, held=1)
    assert trail.collect() == [
        Lifecycle("tenant-0", "forgotten"),
        Lifecycle("tenant-1", "forgotten"),
        Balance("acme", granted=1, above_reservation=0, released=0, held=1),
        Lost(3),
    ]


def test_what_is_collected_is_not_touched_by_what_happens_while_it_is_read():
    trail = Trail()
    trail.granted("acme", 1, above_reservation=0, held=1)
    trail.state("acme", "active")
    taken = trail.take()
    trail.granted("acme", 2, above_reservation=0, held=3)
    trail.state("acme", "idle")
    trail.left("acme", "removed")
    assert list(taken.events()) == [
        Lifecycle("acme", "active"),
        Balance("acme", granted=1, above_reservation=0, released=0, held=1),
    ]
    assert trail.collect() == [
        Lifecycle("acme", "removed"),
        Balance("acme", granted=2, above_reservation=0, released=0, held=3),
    ]
