"""The arbiter: decides which requests are admitted, continue or are preempted, and for which zones.

An engine calls the arbiter around each step. Before the step, the arbiter makes room for held-back running requests
(`held_back`, `preemptor`), shares adapter slots, encoder room and seats among zones (`zones.resources`), reclaims
blocks for entitled zones (`room_before_step`), and divides the step's tokens (`zones.tokens`). During the step, it
decides which running requests may take blocks, and which waiting request is admitted next (`next_admission`): it plans
an admission (`admission_planner`), and makes the planned changes once the engine admits the request
(`admission_changes`).
There is no head-of-line blocking: if a zone may not take blocks, only the requests of that zone wait.
"""

from typing import Generic

from tenantzone_runtime.zones.audit.events import PreemptionReason
from tenantzone_runtime.zones.blocks import states
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.step_time import StepLoad
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.admission import Admission
from tenantzone_runtime.zones.schedule.admission_changes import AdmissionChanges
from tenantzone_runtime.zones.schedule.admission_planner import AdmissionPlanner
from tenantzone_runtime.zones.schedule.claims import Claims
from tenantzone_runtime.zones.schedule.held_back import HeldBack
from tenantzone_runtime.zones.schedule.next_admission import NextAdmission
from tenantzone_runtime.zones.schedule.preemptor import Preemptor
from tenantzone_runtime.zones.schedule.prospects import Prospects
from tenantzone_runtime.zones.schedule.room_before_step import RoomBeforeStep
from tenantzone_runtime.zones.schedule.unsatisfiable import Unsatisfiable
from tenantzone_runtime.zones.schedule.waiting_blocks import WaitingBlocks
from tenantzone_runtime.zones.tenancy import Preparation, Tenancy
from tenantzone_runtime.zones.tokens.latency import Latency
from tenantzone_runtime.zones.tokens.latency_budget import LatencyBudget
from tenantzone_runtime.zones.tokens.margin import Margin
from tenantzone_runtime.zones.tokens.step_prompts import StepPrompts
from tenantzone_runtime.zones.tokens.step_tokens import StepTokens
from tenantzone_runtime.zones.tokens.steps_in_flight import StepsInFlight
from tenantzone_runtime.zones.tokens.target_bounds import TargetBounds


class Arbiter(Generic[W]):
    """Decides for one engine which requests are admitted, continue and are preempted.

    Args:
        tenancy: tenancy of the engine, with its zones.
        engine: the engine whose requests are decided on.
    """

    def __init__(self, tenancy: Tenancy, engine: Engine[W]) -> None:
        self._tenancy = tenancy
        self._ledger = tenancy.ledger
        self._totals = tenancy.ledger.totals
        self._totals.seats = engine.seats
        self._engine = engine
        self._admission = Admission(tenancy.ledger)
        self._unsatisfiable = Unsatisfiable(tenancy, engine, self._admission)
        self._claims = Claims[W]()
        self._preemptor = Preemptor(tenancy, engine, self._claims, self.preempt)
        self._held_back = HeldBack(engine, self._preemptor)
        self._blocks = WaitingBlocks(tenancy, engine, self._claims, self._preemptor)
        prospects = Prospects(tenancy, engine, self._admission, self._held_back, self._blocks, self.preempt)
        self._slots, self.encoder, self._seats = prospects.slots, prospects.encoder, prospects.seats
        self.may_have_slot = self._slots.may_have
        self.times = tenancy.step_times
        self.latency = Latency(tenancy, self.times)
        margin = Margin()
        self.steps_in_flight = StepsInFlight(self.times, margin)
        targets = TargetBounds(tenancy.ledger, engine, self.steps_in_flight)
        latency_budget = LatencyBudget(engine, self.times, self.latency, targets, margin)
        prompts = StepPrompts(
            tenancy,
            engine,
            prospects.zones_with_seats,
            prospects.free_seats,
            prospects.given_tokens,
            self._held_back.fitting,
            targets.hit_share,
        )
        self._tokens = StepTokens(tenancy, engine, prompts, targets, latency_budget)
        self.tokens_for = self._tokens.tokens_for
        self.tokens_to_generate = self._tokens.tokens_to_generate
        self.share_of = self._tokens.share_of
        changes = AdmissionChanges(
            tenancy, engine, self._admission, self._unsatisfiable, self._blocks, self._slots, self.encoder
        )
        planner = AdmissionPlanner(
            tenancy,
            engine,
            self._admission,
            self._held_back,
            self._seats,
            self._slots,
            self._tokens,
            self._blocks,
            changes,
        )
        self._next = NextAdmission(planner, self._admission, self._claims, self._seats, self._slots)
        self.has_admissible = self._next.has_admissible
        self.next_front = self._next.front
        self.admit = self._next.admit
        self.admit_next = self._next.admit_front
        self._room = RoomBeforeStep(tenancy, engine, self._admission, self._held_back, prospects, self._blocks, changes)
        self._stuck_at: int | None = None
        """Value of ``Totals.changes`` when `_get_unstuck` last found no zone to admit from."""
        self._ledger.departures.append(self._forget)

    # Queues

    def waits(self, zone: Zone) -> None:
        """Note that the zone has a waiting request, or that its next request has changed."""
        was_skipped = self._next.end()
        self._admission.enter(zone)
        self._seats.waits(zone)
        self._tenancy.waits(zone)
        self._tenancy.must_be_prepared(zone, None)
        if zone in self._slots.waiting and zone.wait_reason is None:
            self._tenancy.must_wait_for_adapter(zone)
        self._unsatisfiable.look_at_front(zone)
        if was_skipped:
            self._get_unstuck()

    def waits_no_more(self, zone: Zone) -> None:
        """Note that the last waiting request of the zone has left its queue."""
        was_skipped = self._next.end()
        self._admission.leave(zone)
        self._seats.waits_no_more(zone)
        self._unsatisfiable.look_at_front(zone)
        self._tenancy.waits_no_more(zone)
        if was_skipped:
            self._get_unstuck()

    def must_be_prepared(self, zone: Zone, reason: Preparation | None) -> None:
        """Set the preparation for which all waiting requests of a zone wait; None if they wait for no preparation."""
        if self._engine.is_open:
            self._tenancy.must_be_prepared(zone, reason)

    def _forget(self, zone: Zone) -> None:
        """Forget a removed zone. The step after the zone's last request drops per-step state."""
        self._seats.forget(zone)
        self._tokens.forget(zone)
        self.latency.forget(zone)
        self._room.forget(zone)
        self._blocks.forget(zone)

    # Steps

    def begin_step(self) -> None:
        """Make room, before the step, for held-back running requests and for entitled zones."""
        self._next.plan = None
        self._preemptor.begin_step()
        held_back = self._held_back.collect()
        if not self._engine.goes_on:
            return
        if not self._engine.is_open:
            # Nothing is admitted, so no zone can use more of its reservation: lend it to the running requests.
            states.lend_what_is_unused(self._ledger)
        else:
            for borrower in self._tenancy.past_grace():
                self._preemptor.take_back(borrower)
        for work in held_back:
            if self._engine.is_running(work):
                self._preemptor.help(work, self._engine.blocks_to_continue(work))
        self._preemptor.look_ahead()
        self._held_back.look_at(held_back)
        if self._engine.is_open:
            self._unsatisfiable.fail()
            self._seats.count()
            self._room.share_adapter_slots()
        self._room.share_encoder()
        if self._engine.is_open:
            self._room.reclaim_blocks()
            self._seats.begin_step()
        self._tokens.begin_step()
        self._seats.make_free(self._tokens.denied)
        self._get_unstuck()

    @property
    def shares_tokens(self) -> bool:
        """Whether the tokens of this step are divided among zones. If not, `tokens_for` withholds none."""
        return self._tokens.is_shared

    def may_continue(self, work: W, count: int) -> bool:
        """Whether a running request may take ``count`` blocks now.

        If not, the engine skips it, and the arbiter tries to make room for it before the next step.
        """
        self._next.plan = None
        may_continue = count <= self._preemptor.available(work, growing=True) or self._blocks.yield_to(work, count)
        # In both cases, blocks that were kept for the request in this step need not be kept any longer.
        self._claims.drop(work)
        if may_continue:
            self._held_back.goes_on(work)
            return True
        self._held_back.turned_down(work)
        self._tokens.was_turned_down(work)
        return False

    def turned_down(self, work: W) -> None:
        """Consider a request again before the next step, because the engine found no blocks for it after all."""
        self._next.plan = None
        self._tokens.was_turned_down(work)
        if self._engine.is_running(work):
            self._held_back.turned_down(work)
        else:
            self._admission.set_aside(work.zone)
            self._blocks.were_not_found(work)

    def end_step(self) -> None:
        """End the step, so that zones that were set aside in it are considered again."""
        self._next.commit_notes()
        self._tenancy.seats_are(taken=self._engine.is_open and not self._engine.free_seats)
        self._blocks.end_step()
        self._tokens.end_step()
        self._admission.end_step()

    def dispatched(self, step: object, load: StepLoad, now: float) -> None:
        """Note the step that was just planned.

        Args:
            step: any object that identifies the step.
            load: the work that the step computes.
            now: current time in seconds of the monotonic clock.
        """
        self.steps_in_flight.dispatch(step, load, self._tokens.bound, now)

    def pause(self) -> None:
        """Note that the engine has stopped admitting waiting requests, or has resumed."""
        self._next.plan = None
        self._admission.wake_all()
        # While the engine is paused, requests do not wait for blocks.
        self._tenancy.nobody_waits()

    def preempt(self, work: W, reason: PreemptionReason, beneficiary: Zone | None) -> None:
        """Preempt a running request; it is not admitted again in this step."""
        self._engine.preempt(work)
        self._seats.stood_up(work.zone)
        self.note_preemption(work, reason, beneficiary)
        self._preemptor.forget(work)
        self._held_back.goes_on(work)
        self._next.plan = None
        self._admission.send_back(work.zone)

    def note_preemption(self, work: W, reason: PreemptionReason, beneficiary: Zone | None) -> None:
        """Count and record a preempted request, whether we or vLLM preempted it."""
        work.zone.counters.preemptions += 1
        beneficiary_name = None if beneficiary is None else beneficiary.name_in_journal
        self._ledger.trail.preempted(work.zone.name_in_journal, reason, beneficiary_name)

    def _get_unstuck(self) -> None:
        """If no request runs, and all waiting requests wait for what is kept for other zones, make one admissible.

        First, room kept in the encoder is released. Then unused reservations are lent as if their owners were quiet. An
        owner that requests blocks within its entitlement gets them back within a step.
        """
        engine = self._engine
        if engine.running or not engine.free_seats or self.has_admissible() or engine.loading or engine.coming:
            return
        self._next.commit_notes()
        if turned_away := self.encoder.let_go():
            self._admission.take_back(turned_away)
            if self.has_admissible():
                return
            self._next.commit_notes()
        if self._totals.changes == self._stuck_at or not self._admission.wake_all():
            return
        states.lend_what_is_unused(self._ledger)
        self._stuck_at = None if self.has_admissible() else self._totals.changes
