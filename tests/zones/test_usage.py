"""Reports of the use by zones and loans: only what has changed, in slices, adding up to the last block-second."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.audit.events import LoanUsage, Usage
from tenantzone_runtime.zones.model.processed_tokens import COUNTERS
from tests.zones.core import Core, declare
from tests.zones.lent import LentInAll


def reported(core):
    return [(usage.zone, usage.block_seconds) for usage in core.tenancy.usage() if isinstance(usage, Usage)]


def test_a_zone_reports_its_usage_when_it_has_changed():
    core = Core()
    acme, _, _ = core.zone("acme"), core.zone("silent"), core.zone("holds", cached=10)
    core.now = 5.0
    assert reported(core) == [("holds", 50.0)]
    assert reported(core) == []
    core.now = 6.0
    acme.counters.prompt_tokens += 1
    assert reported(core) == [("acme", 0.0), ("holds", 60.0)]


def test_each_number_of_a_zones_usage_counts_as_a_change():
    core = Core()
    acme = core.zone("acme")
    for name in ("prompt_tokens", "prefix_hit_tokens", "generation_tokens", *COUNTERS.values()):
        setattr(acme.counters, name, 1)
        assert reported(core) == [("acme", 0.0)]
        assert reported(core) == []


def test_a_zone_that_leaves_reports_what_was_not_reported_yet():
    core = Core()
    core.apply(declare("acme"), declare("burst"), declare("silent"))
    core.hold(core.ledger.zones["acme"], cached=10)
    core.hold(core.ledger.zones["burst"], cached=1)
    core.now = 7.0
    core.tenancy.usage()
    core.ledger.evict(core.ledger.zones["burst"], 1, "own")
    core.apply(now=9.0)
    assert [(usage.zone, usage.block_seconds) for usage in core.events("usage")] == [("acme", 90.0)]


def test_a_loan_reports_its_block_seconds_when_there_are_more():
    core = Core()
    core.zone("lender", reserved=50, quiet=True)
    core.zone("borrower", in_use=70)
    core.upkeep(0.0)
    core.upkeep(10.0)
    assert core.tenancy.usage()[-1] == LoanUsage("lender", "borrower", 0.0, 200.0)
    assert [event for event in core.tenancy.usage() if isinstance(event, LoanUsage)] == []
    core.upkeep(11.0)
    assert core.tenancy.usage()[-1] == LoanUsage("lender", "borrower", 0.0, 220.0)


def test_a_slice_looks_at_a_bounded_number_of_zones_or_loans():
    core = Core()
    for number in range(5):
        core.zone(f"lender-{number}", reserved=10, quiet=True)
    core.zone("borrower", in_use=75)
    core.upkeep(0.0)
    core.upkeep(1.0)
    slices = list(core.tenancy.usage_in_slices(2))
    assert [len(list(events)) for events in slices] == [0, 0, 1, 2, 1]
    assert [len(list(events)) for events in core.tenancy.usage_in_slices(100)] == [0, 0]


def test_between_two_slices_zones_and_loans_may_come_and_go():
    core = Core()
    core.zone("lender", reserved=50, quiet=True)
    core.zone("borrower", in_use=70)
    core.apply(*(declare(tenant, reserved=50 * (tenant == "lender")) for tenant in ("lender", "borrower", "goes")))
    core.hold(core.ledger.zones["goes"], cached=1)
    core.upkeep(60.0)
    core.upkeep(61.0)
    slices = core.tenancy.usage_in_slices(2)
    first = list(next(slices))
    core.apply(declare("lender", reserved=50), declare("borrower"), declare("comes"), now=62.0)
    core.hold(core.ledger.zones["comes"], cached=1)
    core.release(core.ledger.zones["borrower"], dropped=70)
    core.upkeep(63.0)
    rest = list(chain.from_iterable(slices))
    assert [(event.kind, event.block_seconds) for event in first] == [("usage", 70 * 61.0)]
    assert rest == []
    assert [event.block_seconds for event in core.events("usage")] == [62.0], "reported when it left"


def test_a_loan_that_ends_between_two_slices_is_reported_by_the_trail_alone():
    core = Core()
    core.zone("one", reserved=20, quiet=True)
    core.zone("other", reserved=20, quiet=True)
    borrower = core.zone("borrower", in_use=90)
    core.upkeep(0.0)
    core.upkeep(1.0)
    slices = core.tenancy.usage_in_slices(1)
    reported = [event for events in (next(slices) for _ in range(4)) for event in events]
    assert reported[-1] == LoanUsage("one", "borrower", 0.0, 20.0)
    core.release(borrower, dropped=90)
    core.upkeep(2.0)
    assert list(chain.from_iterable(slices)) == []
    assert core.events("loan_usage") == [
        LoanUsage("one", "borrower", 0.0, 40.0),
        LoanUsage("other", "borrower", 0.0, 20.0),
    ]


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "release", "evict", "pass", "collect", "usage", "return"]),
        st.integers(0, 3),
        st.integers(1, 30),
    ),
    max_size=80,
)


@given(ACTS)
def test_reports_of_pairs_are_what_zones_lent_and_borrowed_whenever_they_are_collected(acts):
    """Uses whole seconds, so that sums of floating-point numbers are exact."""
    core, lent = Core(), LentInAll()
    tenants = [f"tenant-{number}" for number in range(4)]
    ever = []
    for number, tenant in enumerate(tenants):
        ever.append(core.zone(tenant, reserved=10 * number, quiet=True))
    for act, number, amount in acts:
        zone = core.ledger.zones[tenants[number]]
        match act:
            case "take":
                core.take(zone, min(amount, core.free))
            case "release":
                core.release(zone, kept=amount // 2, dropped=amount // 3)
            case "evict":
                core.ledger.evict(zone, min(amount, len(zone.cached)), "own")
            case "pass":
                core.now += amount
                core.tenancy.loans.settle(core.free)
            case "collect":
                lent.take(core.ledger.trail.collect())
            case "usage":
                lent.take(core.tenancy.usage())
            case "return" if zone.held == 0:
                core.ledger.discard(zone)
                ever.append(core.zone(tenants[number], reserved=10 * number, quiet=True))
    lent.take(core.ledger.trail.collect())
    lent.take(core.tenancy.usage())
    for zone in ever:
        core.ledger.accrue(zone)
    assert lent.block_seconds() == sum(zone.counters.lent_block_seconds for zone in ever)
    for tenant in tenants:
        borrowed = sum(zone.counters.borrowed_block_seconds for zone in ever if zone.spec.tenant == tenant)
        assert sum(lent.of(lender, tenant) for lender in tenants) == borrowed
