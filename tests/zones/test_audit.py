"""What the trail reports of the zones to an auditor."""

from tenantzone_runtime.zones.audit.events import (
    Balance,
    ConfigApplied,
    Evicted,
    Lifecycle,
    LoanUsage,
    Preempted,
    Refused,
    Usage,
)
from tenantzone_runtime.zones.audit.trail import Trail
from tests.zones.core import Core, declare
from tests.zones.registered import anybody, arrive


def test_what_happens_often_is_added_up_and_reported_once():
    trail = Trail()
    for _ in range(3):
        trail.granted("acme", 5, above_reservation=2, held=12)
        trail.released("burst", 4, held=4)
        trail.evicted("acme", 5, "quiet", "burst", held=7)
        trail.preempted("acme", "reclaim", "burst")
        trail.refused(None, "unbound")
        trail.refused("acme", "too_long")
    trail.evicted("acme", 1, "quiet", None, held=6)
    assert trail.collect() == [
        Evicted("acme", 15, "quiet", "burst"),
        Evicted("acme", 1, "quiet", None),
        Balance("acme", granted=15, above_reservation=6, released=0, held=6),
        Balance("burst", granted=0, above_reservation=0, released=12, held=4),
        Preempted("acme", 3, "reclaim", "burst"),
        Refused(None, 3, "unbound"),
        Refused("acme", 3, "too_long"),
    ]
    assert trail.collect() == []


def test_events_come_in_their_order_before_what_was_added_up():
    trail = Trail()
    trail.granted("acme", 1, above_reservation=0, held=1)
    trail.note(Lifecycle("acme", "declared"))
    trail.note(ConfigApplied(1, "hash", 1))
    assert [event.kind for event in trail.collect()] == ["lifecycle", "config_applied", "balance"]
    trail.note(Lifecycle("acme", "removed"))
    assert trail.collect() == [Lifecycle("acme", "removed")]


def test_of_many_changes_of_state_the_last_is_reported_and_only_if_it_is_new():
    trail = Trail()
    trail.state("acme", "active")
    trail.state("acme", "idle")
    assert trail.collect() == [Lifecycle("acme", "idle")]
    trail.state("acme", "active")
    trail.state("acme", "idle")
    assert trail.collect() == []
    trail.state("acme", "idle")
    assert trail.collect() == []
    trail.state("acme", "active")
    assert trail.collect() == [Lifecycle("acme", "active")]


def test_a_zone_that_left_has_no_state_and_a_new_one_of_that_name_reports_its_own():
    trail = Trail()
    trail.state("acme", "idle")
    trail.collect()
    trail.state("acme", "active")
    trail.left("acme", "forgotten")
    assert trail.collect() == [Lifecycle("acme", "forgotten")]
    trail.state("acme", "idle")
    assert trail.collect() == [Lifecycle("acme", "idle")]


def test_the_life_of_a_zone_in_the_words_of_the_trail():
    core = Core()
    core.apply(declare("acme", reserved=10))
    core.apply(declare("acme", reserved=20))
    core.apply(declare("acme", reserved=20))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, 1.0)
    core.take(acme, 5)
    core.apply()
    core.release(acme, dropped=5)
    core.tenancy.request_finished(acme, 2.0)
    assert [note.change for note in core.events("lifecycle")] == ["declared", "changed", "leaving", "removed"]


def test_the_life_of_a_zone_for_an_undeclared_tenant_in_the_words_of_the_trail():
    core = Core()
    core.apply(**anybody(forget_after=5.0))
    arrive(core, "guest")
    core.apply(**anybody(limit=50, forget_after=5.0))
    core.upkeep(5.0)
    assert [note.change for note in core.events("lifecycle")] == ["registered", "changed", "forgotten"]


def test_a_config_in_force_is_reported_with_its_generation_and_hash():
    core = Core()
    core.apply(declare("acme"), declare("burst"))
    (event,) = core.events("config_applied")
    assert isinstance(event, ConfigApplied)
    assert (event.generation, event.zones, event.hash.startswith("sha256:")) == (1, 2, True)


def test_evictions_are_reported_with_who_needed_the_blocks():
    core = Core()
    acme = core.zone("acme", cached=10)
    core.ledger.evict(acme, 3, "reclaim", core.zone("burst"))
    core.ledger.evict_block(acme, next(iter(acme.cached)), "reset")
    core.ledger.evict(acme, 0, "own", acme)
    assert core.events("evicted") == [Evicted("acme", 3, "reclaim", "burst"), Evicted("acme", 1, "reset", None)]


def test_the_balance_of_a_zone_says_what_it_was_granted_and_let_go_and_holds():
    core = Core()
    acme = core.zone("acme", reserved=10)
    core.take(acme, 8)
    core.take(acme, 7)
    core.release(acme, kept=4, dropped=6)
    assert core.events("balance") == [Balance("acme", granted=15, above_reservation=5, released=6, held=9)]
    core.take(acme, 3)
    core.ledger.evict(acme, 2, "own", acme)
    assert core.events("balance") == [Balance("acme", granted=3, above_reservation=2, released=0, held=10)]


def test_a_zone_that_only_lost_blocks_has_a_balance_and_one_whose_blocks_did_not_move_has_none():
    core = Core()
    acme, calm = core.zone("acme", cached=10), core.zone("calm", cached=10)
    core.events("balance")
    core.ledger.evict(acme, 4, "quiet", calm)
    core.ledger.reuse(calm, list(calm.cached)[:3])
    core.release(calm, kept=3)
    core.take(calm, 0)
    assert core.events("balance") == [Balance("acme", granted=0, above_reservation=0, released=0, held=6)]


def test_a_zone_that_is_gone_holds_nothing():
    core = Core()
    core.apply(declare("acme"))
    core.hold(core.ledger.zones["acme"], cached=10)
    core.apply()
    assert core.events("balance") == [Balance("acme", granted=10, above_reservation=10, released=0, held=0)]


def test_the_bill_counts_what_is_held_times_seconds():
    core = Core()
    core.now = 10.0
    acme = core.zone("acme")
    core.take(acme, 20)
    core.now = 15.0
    core.release(acme, kept=5, dropped=10)
    core.now = 16.0
    core.ledger.evict(acme, 3, "own")
    core.now = 26.0
    core.ledger.evict_block(acme, next(iter(acme.cached)), "reset")
    core.now = 27.0
    acme.counters.prompt_tokens, acme.counters.prefix_hit_tokens, acme.counters.generation_tokens = 100, 60, 7
    acme.counters.computed_first_tokens, acme.counters.recomputed_tokens = 46, 9
    acme.counters.rejected_draft_tokens, acme.counters.loaded_tokens, acme.counters.hit_tokens = 3, 16, 64
    (usage,) = core.tenancy.usage()
    assert usage == Usage("acme", 10.0, 20 * 5 + 10 * 1 + 7 * 10 + 6 * 1, 100, 60, 7, 46, 9, 3, 16, 64)


def test_a_hit_changes_nothing_on_the_bill():
    core = Core()
    acme = core.zone("acme", cached=10)
    core.now = 5.0
    core.ledger.reuse(acme, list(acme.cached)[:4])
    core.now = 10.0
    (usage,) = core.tenancy.usage()
    assert usage.block_seconds == 100


def test_loans_are_billed_to_the_pair():
    core = Core()
    core.zone("lender", reserved=50, quiet=True)
    core.zone("borrower", cached=70)
    core.tenancy.loans.settle(core.free)
    core.now = 10.0
    core.tenancy.loans.settle(core.free)
    assert core.tenancy.usage()[-1] == LoanUsage("lender", "borrower", 0.0, 200.0)


def test_the_bill_of_a_zone_that_leaves_is_reported_before_it_is_gone():
    core = Core()
    core.apply(declare("acme"))
    core.hold(core.ledger.zones["acme"], cached=10)
    core.apply(now=7.0)
    reported = [event for event in core.ledger.trail.collect() if event.kind in ("usage", "lifecycle")]
    assert [event.kind for event in reported] == ["lifecycle", "lifecycle", "usage", "lifecycle"]
    assert reported[2].block_seconds == 70
    assert reported[3].change == "removed"
