"""State kept for a zone is removed when the zone is removed."""

import ast
import gc
import re
from pathlib import Path

import tenantzone_runtime
from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.backoff import BackoffSet
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds
from tests.zones.core import Core, declare
from tests.zones.small_engine import SmallEngine

RUNTIME = Path(tenantzone_runtime.__file__).parent

TENANT = "removed-zone"
"""No other test has a zone of this name, which might still be in memory."""

REMOVED_BY = {
    "engine/queues/adapter_lines.py _lines": "the last waiting request leaves its queue",
    "engine/blocks/block_pool.py _index": "departure; before that, with the last prefix in it",
    "engine/blocks/block_pool.py _purges": "departure",
    "engine/queues/deferred_requests.py _lookups": "the last waiting request leaves its queue",
    "engine/queues/deferred_requests.py _reasons": "the last waiting request leaves its queue",
    "engine/tiers/secondary_tier.py _promised": "end of the step",
    "engine/blocks/encoder_cache.py _held": "departure",
    "engine/blocks/encoder_cache.py _owners": "departure",
    "engine/blocks/latencies.py _tokenless": "the step after the request has ended",
    "engine/core/media_requests.py _counts": "the last request with media ends",
    "engine/queues/request_queue.py _queues": "the last waiting request leaves its queue",
    "engine/tiers/tier_manager.py _counted_on": "the request ends",
    "housekeeping/report/block_map.py _borrowed_in_use": "the reader is made for one picture",
    "housekeeping/report/copying.py loans": "the copy is made for one report",
    "housekeeping/report/copying.py zones": "the copy is made for one report",
    "zones/resources/adapter_slots.py _granted": "the next step",
    "zones/resources/adapter_line.py _waiters": "the next step",
    "zones/resources/adapter_slots.py _users": "the next step",
    "zones/resources/adapter_slots.py waiting": "the next step",
    "zones/schedule/admission_plan.py without_seat": "the plan is made",
    "zones/schedule/admission.py _unseen": "the last waiting request leaves its queue",
    "zones/schedule/admission.py _zones": "the last waiting request leaves its queue",
    "zones/schedule/waiting_blocks.py _kept_for": "end of the step",
    "zones/schedule/admission.py sent_back": "end of the step",
    "zones/schedule/room_before_step.py _short": "departure",
    "zones/schedule/claims.py _of_zone": "end of the step",
    "zones/config/configure.py leaving": "the difference is made for one config",
    "zones/blocks/deadlines.py _deadlines": "departure",
    "zones/tokens/deficits.py _deficits": "departure",
    "zones/schedule/backoff.py _new": "end of the step",
    "zones/schedule/backoff.py _backed_off": "the last waiting request leaves its queue",
    "zones/resources/encoder_room.py _kept": "the next step",
    "zones/resources/encoder_room.py _line": "the next step",
    "zones/resources/encoder_room.py _turned_away": "the next step",
    "zones/resources/encoder_room.py waiting": "the next step",
    "zones/config/enforcement.py _purged": "departure",
    "zones/schedule/held_back.py zones": "the next step",
    "zones/schedule/unsatisfiable.py _since": "the last waiting request leaves its queue",
    "zones/tokens/latency.py _watched": "departure",
    "zones/tokens/latency.py alone": "departure",
    "zones/blocks/ledger.py owner": "the block is free",
    "zones/blocks/ledger.py zones": "discard",
    "zones/blocks/loans.py _loans": "upkeep after discard",
    "zones/blocks/loans.py _loans_of": "upkeep after discard",
    "zones/blocks/overflow.py _apart": "discard",
    "zones/blocks/overflow.py _members": "discard",
    "zones/tokens/target_bounds.py _own": "departure",
    "zones/tokens/latency_budget.py _starved": "end of the step",
    "zones/tokens/pacing.py may_go_on": "end of the step",
    "zones/tokens/pacing.py prompt_tokens": "end of the step",
    "zones/resources/seats.py _claimed": "the next step",
    "zones/resources/seats.py _held": "departure",
    "zones/resources/seats.py _kept": "the next step",
    "zones/resources/seats.py _limited": "the last waiting request leaves its queue",
    "zones/resources/seats.py _others": "the last waiting request leaves its queue",
    "zones/resources/seats.py _owners": "the last waiting request leaves its queue",
    "zones/resources/seats.py turned_away": "the next step",
    "zones/model/wait_accounting.py _queued": "the last waiting request leaves its queue",
    "zones/model/wait_accounting.py _since": "the last waiting request leaves its queue",
    "zones/tokens/prompt_tokens.py _granted": "end of the step",
    "zones/tokens/prompt_tokens.py _with_targets": "end of the step",
    "zones/tokens/step_tokens.py _made_wait": "the next step",
    "zones/tenancy.py _overdue": "upkeep after discard",
    "zones/tiers/tier.py counts": "departure",
    "zones/tiers/tier_admission.py _effects": "departure",
    "zones/tiers/tier_admission.py _seen": "departure",
    "zones/tiers/chunks_in_transfer.py loading": "the transfer ends",
    "zones/tiers/chunks_in_transfer.py storing": "the transfer ends",
    "zones/tokens/tokens_left.py of_zone": "end of the step",
    "zones/tokens/tokens_left.py turned_away": "end of the step",
    "zones/blocks/totals.py _changed": "upkeep after discard",
    "zones/blocks/totals.py _to_reconsider": "discard",
    "zones/blocks/totals.py with_targets": "discard",
    "zones/blocks/victims.py _zones": "discard; in the loan book, upkeep after discard",
    "zones/blocks/victims.py members": "discard; in the loan book, upkeep after discard",
    "zones/schedule/preemptor.py _ahead": "the same step",
}
"""Every attribute of the runtime that contains zones, and the method that removes an entry."""


def test_what_removes_zones_is_known_of_each_attribute_that_contains_some():
    assert attributes_with_zones() == REMOVED_BY.keys()


def attributes_with_zones():
    """The attributes that are annotated as containers of zones or loans."""
    found = set()
    for file in RUNTIME.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found |= {f"{file.relative_to(RUNTIME)} {name}" for name in containers_of_zones(node)}
    return found


def containers_of_zones(kind):
    for node in ast.walk(kind):
        if isinstance(node, ast.AnnAssign):
            is_own = isinstance(node.target, ast.Attribute) or node in kind.body
            annotation = ast.unparse(node.annotation)
            contains = re.search(r"\[.*\b(Zone|Loan)\b", annotation) and "Callable" not in annotation
            if is_own and contains:
                yield node.target.attr if isinstance(node.target, ast.Attribute) else node.target.id


def in_memory(tenant):
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is Zone and each.spec.tenant == tenant]


def test_a_zone_with_a_ttl_is_not_kept_until_its_time_has_come():
    core = Core()
    core.apply(declare(TENANT, ttl=30 * 86400.0, after=30 * 86400.0))
    zone = core.ledger.zones[TENANT]
    core.hold(zone, cached=5)
    core.tenancy.request_arrived(zone, 1.0)
    core.tenancy.request_finished(zone, 2.0)
    del zone
    core.apply()
    core.upkeep(3.0)
    assert in_memory(TENANT) == []


def test_a_zone_that_loses_its_ttl_has_no_deadline_any_more():
    core = Core()
    zone = core.zone(TENANT, cached=5, ttl=60.0)
    expiry = core.ledger.expiry
    assert expiry._deadlines.of(zone) == 60.0
    core.apply(declare(TENANT))
    assert expiry._deadlines.of(zone) is None


def test_the_last_request_that_was_turned_down_keeps_no_zone():
    core = Core()
    engine = SmallEngine(core)
    core.apply(declare(TENANT))
    work = engine.wait(core.ledger.zones[TENANT], 10)
    engine.arbiter.begin_step()
    assert engine.arbiter.admit_next() is work
    engine.arbiter.turned_down(work)
    engine.arbiter.end_step()
    engine.leave(work)
    core.tenancy.request_finished(work.zone, 2.0)
    del work
    core.apply()
    core.upkeep(3.0)
    engine.step()
    for seen in (engine.looked_at, engine.looked_up):
        seen.clear()
    assert in_memory(TENANT) == []


def test_a_config_that_does_not_come_into_force_keeps_no_zone_that_it_has_purged():
    core = Core()
    core.apply(declare(TENANT))
    enforcement = core.tenancy.enforcement
    pool = PoolConfig(namespace="n", name="p")
    plan = enforcement.plan(make_config(9, pool, (declare(TENANT, purge="first"),)))
    enforcement.begin(plan, core.now)
    list(enforcement.make(enforcement.changes(plan)))
    zone = core.ledger.zones[TENANT]
    assert zone in enforcement._purged
    zone.leaving = True
    core.tenancy.request_arrived(zone, 1.0)
    core.tenancy.request_finished(zone, 1.0)
    assert enforcement._purged == {}


def test_who_lacked_reserved_blocks_is_not_kept():
    core = Core()
    engine = SmallEngine(core)
    core.apply(declare(TENANT, reserved=40))
    work = engine.wait(core.ledger.zones[TENANT], 10, waits_for_else=True)
    engine.step()
    engine.leave(work)
    core.tenancy.request_finished(work.zone, 2.0)
    del work
    core.apply()
    core.upkeep(3.0)
    engine.looked_at.clear()
    assert in_memory(TENANT) == []


def test_a_zone_that_backs_off_twice_is_not_kept():
    core = Core()
    core.apply(declare(TENANT))
    zone = core.ledger.zones[TENANT]
    backoff = BackoffSet(core.ledger)
    backoff.back_off(zone, 10, 10, 0)
    backoff.back_off(zone, 20, 20, 0)
    backoff.line_up()
    backoff.discard(zone)
    core.apply()
    core.upkeep(3.0)
    del zone
    assert in_memory(TENANT) == []


def test_a_tier_does_not_count_for_a_zone_that_is_gone():
    tier = Tier("cpu", 100, 1, TransferBounds(10, 10))
    tier.apply(make_config(1, PoolConfig(namespace="n", name="p"), (declare(TENANT),)), 0.0)
    zone = tier.zone_for(TENANT, 0.0)
    tier.apply(make_config(2, PoolConfig(namespace="n", name="p"), ()), 1.0)
    tier.upkeep(2.0)
    tier.counts_of(zone).hits += 1
    del zone
    assert in_memory(TENANT) == []
