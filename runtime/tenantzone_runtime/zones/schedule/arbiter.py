"""The arbiter: decides which requests are admitted, continue or are preempted, and for which zones.

An engine calls the arbiter around each step. Before the step, the arbiter makes room for entitled zones. During the
step, it decides which waiting request is next, and which running requests may take blocks. There is no head-of-line
blocking: if a zone may not take blocks, only the requests of that zone wait.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Generic

from tenantzone_runtime.zones.audit.events import PreemptionReason
from tenantzone_runtime.zones.blocks import states
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.step_time import StepLoad
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.adapter_slots import AdapterSlots
from tenantzone_runtime.zones.schedule.admission import Admission, Candidates
from tenantzone_runtime.zones.schedule.admission_plan import AdmissionPlan, State, Trial
from tenantzone_runtime.zones.schedule.claims import Claims
from tenantzone_runtime.zones.schedule.encoder_room import EncoderRoom
from tenantzone_runtime.zones.schedule.held_back import HeldBack
from tenantzone_runtime.zones.schedule.preemptor import Preemptor
from tenantzone_runtime.zones.schedule.seats import Seats, candidates
from tenantzone_runtime.zones.schedule.unsatisfiable import Unsatisfiable
from tenantzone_runtime.zones.tenancy import Preparation, Tenancy
from tenantzone_runtime.zones.tokens.latency import Latency
from tenantzone_runtime.zones.tokens.latency_budget import LatencyBudget
from tenantzone_runtime.zones.tokens.margin import Margin
from tenantzone_runtime.zones.tokens.step_prompts import StepPrompts
from tenantzone_runtime.zones.tokens.step_tokens import StepTokens
from tenantzone_runtime.zones.tokens.steps_in_flight import StepsInFlight

_SHORT_AT_ONCE = 16
"""Maximum number of zones lacking reserved blocks that are considered before each step."""


@dataclass(frozen=True, slots=True)
class _Denied:
    blocks: int
    headroom: int
    """Number of further blocks that must stay free or cached, if only these are missing; 0 if the request's own blocks
    are missing."""


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
        self._plan: AdmissionPlan[W] | None = None
        """The plan for the next admission; None if something has changed since it was made."""
        self._unsatisfiable = Unsatisfiable(tenancy, engine, self._admission)
        self._claims = Claims[W]()
        self._kept_for: dict[Zone, W] = {}
        """By zone, the waiting request for which blocks are kept in this step; it may not be the zone's next request
        any more."""
        self._preemptor = Preemptor(tenancy, engine, self._claims, self.preempt)
        self._held_back = HeldBack(engine, self._preemptor)
        self._slots = AdapterSlots(
            engine,
            tenancy.ledger,
            lambda zone: self._seats.reserved(zone) > 0,
            lambda zone: self._seats.is_there_one_for(zone),
            self._could_begin_with_slot,
            self.preempt,
        )
        self.encoder = EncoderRoom(
            engine,
            tenancy.ledger,
            lambda zone: self._seats.reserved(zone) > 0,
            self._could_begin_with_encoding,
            self.preempt,
        )
        self.may_have_slot = self._slots.may_have
        self._blocks_at_most = self._slots.blocks_at_most
        self._seats = Seats(self._totals, engine, self._blocks_at_most, self._would_begin, self.preempt)
        self.times = tenancy.step_times
        self.latency = Latency(tenancy, self.times)
        margin = Margin()
        self.steps_in_flight = StepsInFlight(self.times, margin)
        latency_budget = LatencyBudget(tenancy.ledger, engine, self.times, self.latency, self.steps_in_flight, margin)
        prompts = StepPrompts(
            tenancy,
            engine,
            self._next_zones,
            self._free_seats,
            self._ready,
            self._held_back.fitting,
            latency_budget.hit_share,
        )
        self._tokens = StepTokens(tenancy, engine, prompts, latency_budget)
        self.tokens_for = self._tokens.tokens_for
        self.tokens_to_generate = self._tokens.tokens_to_generate
        self.share_of = self._tokens.share_of
        self._doubtful: W | None = None
        """The last waiting request for which the engine found no blocks, although the arbiter expected them."""
        self._overlooked: Zone | None = None
        """The zone of a request for which the engine repeatedly found no blocks. The next step skips this zone."""
        self._sent_back: dict[Zone, None] = {}
        """Zones that had a request preempted since the last step. This step admits none of their requests."""
        self._short: dict[Zone, None] = {}
        """Zones that lack blocks of their reservation, in the order in which they were considered. Includes zones whose
        next request still waits for something else, and may then lack blocks."""
        self._stuck_at: int | None = None
        """Value of ``Totals.changes`` when `_get_unstuck` last found no zone to admit from."""
        self._ledger.departures.append(self._forget)

    # Queues

    def waits(self, zone: Zone) -> None:
        """Note that the zone has a waiting request, or that its next request has changed."""
        was_skipped = self._end_plan()
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
        was_skipped = self._end_plan()
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

    def _end_plan(self) -> bool:
        """End the plan, because a queue has changed, most likely because the engine has admitted the planned request.

        Returns:
            Whether the engine has skipped the planned request instead, because it waits for something else.
        """
        plan, self._plan = self._plan, None
        work = None if plan is None or not plan.is_committed else plan.work
        if work is None:
            return False
        self._claims.drop(work)
        self._admission.somebody_was_admitted()
        if not self._blocks_at_most(work):
            return True
        self._seats.sat_down(work)
        self._slots.has_begun(work)
        return False

    def _forget(self, zone: Zone) -> None:
        """Forget a removed zone. Per-step state needs no clean-up: the step after its last request drops it."""
        self._seats.forget(zone)
        self._tokens.forget(zone)
        self.latency.forget(zone)
        self._short.pop(zone, None)
        if self._doubtful is not None and self._doubtful.zone is zone:
            self._doubtful = None

    # Steps

    def begin_step(self) -> None:
        """Make room, before the step, for held-back running requests and for entitled zones."""
        self._plan = None
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
            self._share_adapter_slots()
        self._share_encoder()
        if self._engine.is_open:
            self._look_at_waiting()
            self._seats.begin_step()
        self._tokens.begin_step()
        self._seats.make_free(self._tokens.denied)
        self._get_unstuck()

    def _look_at_waiting(self) -> None:
        """Make room, before the step, for waiting requests whose zones are entitled to it."""
        self._admission.wake()
        self._look_at_short()
        if self._overlooked is not None:
            self._admission.set_aside(self._overlooked)
            self._overlooked = None
        for zone in self._admission.take_unseen():
            if zone in self._sent_back or self._seats.is_at_limit(zone):
                self._admission.look_again(zone)
            else:
                self._claim(zone)

    @property
    def shares_tokens(self) -> bool:
        """Whether the tokens of this step are divided among zones. If not, `tokens_for` withholds none."""
        return self._tokens.is_shared

    def may_continue(self, work: W, count: int) -> bool:
        """Whether a running request may take ``count`` blocks now.

        If not, the engine skips it, and the arbiter tries to make room for it before the next step.
        """
        self._plan = None
        may_continue = count <= self._preemptor.available(work, growing=True) or self._comes_first(work, count)
        # In both cases, blocks that were kept for the request in this step need not be kept any longer.
        self._claims.drop(work)
        if may_continue:
            self._held_back.goes_on(work)
            return True
        self._held_back.turned_down(work)
        self._tokens.was_turned_down(work)
        return False

    def _comes_first(self, work: W, count: int) -> bool:
        """Whether a running request may take blocks that are kept for waiting requests of its zone."""
        self._preemptor.know_better()
        waiting = self._kept_for.get(work.zone)
        if waiting is not None and count > self._preemptor.available(work, growing=True):
            # Too few blocks are left for the waiting request, so other requests may have the rest.
            self._claims.drop(waiting)
        return self._preemptor.may_continue(work, count)

    def has_admissible(self) -> bool:
        """Whether a waiting request can be admitted now. Changes nothing."""
        return self.next_front() is not None

    def next_front(self) -> W | None:
        """Returns the waiting request to admit next; None if no seat is free, or no zone's request can get blocks.

        Changes nothing. The answer is kept until it may have changed, or until the request leaves its queue.
        """
        return self._current_plan().work

    def admit(self, work: W) -> None:
        """Make room for a request that `next_front` has returned. It stays the next one until it is popped.

        If the engine can't use the evicted blocks yet, it finds too few for the request, and calls `turned_down`.
        """
        if self._plan is not None and self._plan.work is work:
            self._plan.commit()
            self._plan.is_committed = True

    def admit_next(self) -> W | None:
        """Returns the result of `next_front`, after making the room that the request needs.

        Blocks are evicted for it, and zones that were considered before it are set aside. The engine then admits or
        skips the request, and takes it out of its queue.
        """
        while (plan := self._current_plan()).work is not None:
            if plan.commit():
                return plan.work
            # The engine can't use the evicted blocks yet.
            self._plan = None
        self._commit_notes()
        return None

    def _current_plan(self) -> AdmissionPlan[W]:
        plan = self._plan
        if plan is None or not (plan.is_committed or plan.state == self._state()):
            plan = self._plan = self._make_plan()
        return plan

    def _commit_notes(self) -> None:
        """Note why zones wait that were considered for an admission, because no request is admitted now."""
        if self._plan is not None:
            # The state may have changed since the engine asked.
            self._current_plan().commit_notes()
            self._plan = None

    def turned_down(self, work: W) -> None:
        """Consider a request again before the next step, because the engine found no blocks for it after all."""
        self._plan = None
        self._tokens.was_turned_down(work)
        if self._engine.is_running(work):
            self._held_back.turned_down(work)
        else:
            self._admission.set_aside(work.zone)
            # A request that is repeatedly denied blocks although the plan had them must not block others.
            self._overlooked = work.zone if work is self._doubtful else None
            self._doubtful = work

    def end_step(self) -> None:
        """End the step, so that zones that were set aside in it are considered again."""
        self._commit_notes()
        self._tenancy.seats_are(taken=self._engine.is_open and not self._engine.free_seats)
        self._claims.clear()
        self._kept_for.clear()
        self._tokens.end_step()
        self._sent_back.clear()
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
        self._plan = None
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
        self._sent_back[work.zone] = None
        self._plan = None
        self._admission.set_aside(work.zone)

    def note_preemption(self, work: W, reason: PreemptionReason, beneficiary: Zone | None) -> None:
        """Count and record a preempted request, whether we or vLLM preempted it."""
        work.zone.counters.preemptions += 1
        beneficiary_name = None if beneficiary is None else beneficiary.name_in_journal
        self._ledger.trail.preempted(work.zone.name_in_journal, reason, beneficiary_name)

    # Waiting requests

    def _state(self) -> State:
        """Returns numbers that differ after each change, within a step, that may change which request is next."""
        engine, totals = self._engine, self._totals
        return (
            totals.changes,
            len(totals.to_reconsider),
            engine.free_blocks,
            engine.free_seats,
            len(engine.running),
            self._tokens.in_all,
        )

    def _make_plan(self) -> AdmissionPlan[W]:
        """Plan the next admission. The changes in the plan are in the order in which they must be made."""
        engine, tokens = self._engine, self._tokens
        plan = AdmissionPlan[W](self._state())
        if not engine.free_seats:
            return plan
        trial = Trial(tokens.left.copy() if tokens.is_shared else tokens.left)
        candidates = self._admission.candidates(
            lambda: not tokens.is_used_up(trial.tokens), engine.free_blocks, is_running=bool(engine.running)
        )
        plan.note(self._admission.wake)
        if self._consider(candidates, plan, trial):
            return plan
        if turned_away := [*self._seats.turned_away, *trial.without_seat]:
            # The zones for which seats were kept did not use them. No seat stays empty while a request waits.
            trial.keeps_seats = False
            plan.note(lambda: self._admission.take_back(self._seats.let_go()))
            candidates.take_back(turned_away)
            if self._consider(candidates, plan, trial):
                return plan
        while tokens.is_shared:
            plan.note(lambda: self._admission.take_back(tokens.let_go()))
            if not (turned_away := tokens.zones_after_let_go(trial.tokens)):
                break
            candidates.take_back(turned_away)
            if self._consider(candidates, plan, trial):
                break
        return plan

    def _consider(self, candidates: Candidates, plan: AdmissionPlan[W], trial: Trial) -> bool:
        """Plan to admit the next request of the first zone that can have it; returns whether there is one."""
        for zone in candidates:
            work = self._engine.front(zone)
            denied: _Denied | None = None
            note = self._wait_but_for_blocks(zone, work, trial)
            if note is None and self._slots.may_have(work):
                inherited = self._inherited(work)
                denied = self._denied(work, inherited)
                if denied is not None and not self._may_reclaim_surplus(work, denied, inherited):
                    note = partial(self._deny, work, denied)
            if note is None:
                plan.admit(work, partial(self._begin, work, denied))
                return True
            plan.note(partial(self._admission.pass_over, zone, note))
        return False

    def _claim(self, zone: Zone) -> None:
        """Make room for a zone's next request if the zone is entitled to it, and note if it must wait."""
        # The step skips requests that wait for something else, such as a grammar, so take the first other request.
        front = self._engine.front(zone)
        work, at_most = next(candidates(self._engine, zone, self._blocks_at_most), (front, 0))
        denied = self._denied(work)
        count, is_rough = self._blocks_to_claim(work) if denied is None else (denied.blocks, False)
        # No request is preempted for a request that waits because of its own zone.
        if count and zone not in self._held_back.zones and self._preemptor.is_entitled_to(work, count):
            states.is_served(self._ledger, zone)
            self._preemptor.reclaim(work, count, is_rough=is_rough)
            self._kept_for[zone] = work
            denied = self._denied(work)
        if denied is None:
            self._may_go_on(zone)
        waits_for_else = work is not front or not at_most
        if zone.in_use < zone.spec.quota.reserved and (denied is not None or waits_for_else):
            # The step itself may not reach the zone, and no event announces that its request is ready otherwise.
            self._short[zone] = None
            if denied is not None:
                # Record the wait here, so that the missing reservation is visible even then.
                self._tenancy.must_wait(zone, denied.blocks, self._engine.free_blocks, work.peak)

    def _look_at_short(self) -> None:
        """Consider zones that may lack reserved blocks, because the step considers no zone while no seat is free."""
        for zone in list(islice(self._short, _SHORT_AT_ONCE)):
            del self._short[zone]
            if not zone.backoff_ticket:
                self._admission.look_again(zone)

    def _share_adapter_slots(self) -> None:
        """Decide which zones have adapter slots in this step, and reconsider the zones that this affects."""
        if not self._engine.adapter_slots:
            return
        waited = self._slots.waiting
        if self._slots.begin_step(self._admission):
            # A request that was denied blocks may now also lack a slot, so that a later request of its zone can begin.
            self._admission.wake_those(lambda zone: not self._blocks_at_most(self._engine.front(zone)))
        waiting = self._slots.waiting
        for zone in waited - waiting:
            if zone.wait_reason == "adapter":
                self._tenancy.may_go_on(zone)
        for zone in waiting:
            if zone.wait_reason is None:
                self._tenancy.must_wait_for_adapter(zone)
        for zone in self._slots.granted:
            self._admission.enter(zone)

    def _share_encoder(self) -> None:
        """Decide for which zones room in the encoder is kept in this step."""
        waited = self.encoder.waiting
        self.encoder.begin_step()
        for zone in waited - self.encoder.waiting:
            if zone.wait_reason == "encoder":
                self._tenancy.may_go_on(zone)
        for zone in self.encoder.waiting:
            if zone.wait_reason is None and zone in self._admission:
                self._tenancy.must_wait_for_encoder(zone)

    def _could_begin_with_slot(self, work: W) -> bool:
        """Whether a waiting request could begin in this step, if its adapter had a slot and it had a seat."""
        return self._finds_blocks(work, self._engine.blocks_at_most(work)) and self._engine.can_begin(work)

    def _could_begin_with_encoding(self, zone: Zone) -> W | None:
        """Returns a zone's first waiting request if it lacks only encoder room to begin in this step, else None."""
        if (
            not self._engine.is_open
            or zone not in self._admission
            or zone.backoff_ticket
            or not self._seats.is_there_one_for(zone)
        ):
            return None
        work, at_most = next(candidates(self._engine, zone, self._blocks_at_most), (None, 0))
        return work if work is not None and self._finds_blocks(work, at_most) else None

    def _finds_blocks(self, work: W, at_most: int) -> bool:
        """Whether a waiting request may take the ``at_most`` blocks that it needs, or is entitled to them."""
        zone = work.zone
        if not at_most or zone in self._held_back.zones or self._seats.is_at_limit(zone):
            return False
        denied = self._denied_of(work, at_most)
        return denied is None or zone.is_entitled_to(denied.blocks) or self._may_reclaim_surplus(work, denied)

    def _may_go_on(self, zone: Zone) -> None:
        """Note that a zone's next request need not wait for blocks; it may wait for something else."""
        if zone in self._slots.waiting:
            self._tenancy.must_wait_for_adapter(zone)
        elif zone in self.encoder.waiting:
            self._tenancy.must_wait_for_encoder(zone)
        else:
            self._tenancy.may_go_on(zone)

    def _blocks_to_claim(self, work: W) -> tuple[int, bool]:
        """Returns the blocks to keep for a request of a zone within its reservation, and whether it may need fewer.

        For requests of other zones, the number is 0.
        """
        at_most = self._blocks_at_most(work)
        if not at_most or not work.zone.is_entitled_to(1):
            return 0, False
        # If enough blocks are free, keep the maximum, and save the lookup of prefix hits.
        abound = self._engine.free_blocks >= self._claims.total + at_most
        if abound and self._preemptor.is_entitled_to(work, at_most):
            return at_most, True
        return self._engine.blocks_to_admit(work), False

    def _wait_but_for_blocks(self, zone: Zone, work: W, trial: Trial) -> Callable[[], None] | None:
        """Returns what notes that a zone's next request waits for something other than blocks; None if it does not."""
        if self._seats.is_at_limit(zone):
            return partial(self._tenancy.must_wait_for_own_seat, zone)
        if trial.keeps_seats and not self._seats.may_sit(zone):
            trial.without_seat.append(zone)
            return partial(self._seats.turn_away, zone)
        if not self._slots.may_have(work):
            # The engine skips this request, and considers the next one of the zone.
            return None
        if self._engine.blocks_at_most(work) and not self._tokens.may_begin(work, trial.tokens):
            trial.tokens.turned_away.append(zone)
            return partial(self._tokens.turn_away, work)
        if not self._engine.can_begin(work):
            return partial(self._wait_to_begin, work)
        held_back = self._held_back.first_of(zone)
        return None if held_back is None else partial(self._wait_behind, held_back)

    def _wait_behind(self, held_back: W) -> None:
        """Note that a zone's next request waits because a running request of the zone lacks blocks.

        Blocks that the zone releases are for its running requests. Otherwise, after its limit was lowered, an older
        waiting request with a higher peak and a running request could keep preempting each other.
        """
        zone, count = held_back.zone, self._engine.blocks_to_continue(held_back)
        self._tenancy.must_wait(zone, count, self._engine.free_blocks, held_back.peak)
        self._admission.look_again(zone)

    def _begin(self, work: W, denied: _Denied | None) -> bool:
        """Make room for a zone's next request, which can be admitted, and note that it need not wait.

        Args:
            work: the request.
            denied: the blocks to get by surplus reclaim; None if none are missing.

        Returns:
            Whether the request has its room.
        """
        zone = work.zone
        self._admission.serve(zone)
        if not self._slots.may_have(work):
            self._tenancy.must_wait_for_adapter(zone)
            return True
        self._pass_on_claim(work)
        if denied is not None:
            self._evict_surplus_for(work, denied.blocks)
            if (still := self._denied(work)) is not None:
                self._admission.pass_over(zone, partial(self._deny, work, still))
                return False
        self._may_go_on(zone)
        states.is_served(self._ledger, zone)
        return True

    def _deny(self, work: W, denied: _Denied) -> None:
        """Note that a zone's next request was denied its blocks."""
        zone = work.zone
        self._pass_on_claim(work)
        self._unsatisfiable.note(work, denied.blocks)
        self._tenancy.must_wait(zone, denied.blocks, self._engine.free_blocks, work.peak)
        if zone.is_entitled_to(denied.blocks):
            # Make room before the next step: in this step, a request to preempt may have been given its tokens already.
            self._admission.look_again(zone)
        else:
            self._admission.back_off(zone, denied.blocks, work.peak, denied.headroom)

    def _pass_on_claim(self, work: W) -> None:
        """Keep for a zone's next request what is kept for another, if the next one waited for something else before."""
        expected = self._kept_for.get(work.zone, work)
        if expected is not work and self._engine.blocks_at_most(work):
            self._claims.pass_on(expected, work)
            self._kept_for[work.zone] = work

    def _inherited(self, work: W) -> int:
        """Returns the number of blocks that `_pass_on_claim` would pass on to a zone's next request."""
        expected = self._kept_for.get(work.zone, work)
        return 0 if expected is work or not self._engine.blocks_at_most(work) else self._claims.of(expected)

    def _wait_to_begin(self, work: W) -> None:
        """Note that a zone's next request waits for encoder room, or for a prefix that this step computes."""
        if self._engine.can_encode(work):
            self._tenancy.must_wait_for_tokens(work.zone)
        else:
            self.encoder.turned_away(work.zone)
            self._tenancy.must_wait_for_encoder(work.zone)

    def _next_zones(self, first: Iterable[Zone]) -> Iterator[Zone]:
        """Returns zones with waiting requests that may have seats: entitled zones, then ``first``, then the others."""
        if not self._engine.free_seats:
            return iter(self._seats.claimants)
        return chain(
            self._seats.claimants, (zone for zone in first if zone in self._admission), self._admission.first()
        )

    def _free_seats(self) -> int:
        return max(self._engine.free_seats, len(self._seats.claimants))

    def _ready(self, zone: Zone) -> Iterator[W]:
        """Generate a zone's waiting requests that would be admitted one after the other now, given enough tokens."""
        if zone.backoff_ticket or zone in self._sent_back or zone in self._held_back.zones:
            return
        waiting = islice(candidates(self._engine, zone, self._blocks_at_most), self._seats.free_for(zone))
        first, count = next(waiting, (None, 0))
        if first is None or not self._engine.can_begin(first):
            return
        if (denied := self._denied_of(first, count)) is not None and not self._may_reclaim_surplus(first, denied):
            return
        yield first
        left = self._preemptor.available(first) - count
        for work, count in waiting:
            left -= count
            if left < 0:
                return
            yield work

    def _would_begin(self, work: W) -> bool:
        """Whether a waiting request most likely begins in this step, if it has a seat."""
        return work.zone not in self._held_back.zones and self._engine.can_begin(work) and not self._denied(work)

    def _may_reclaim_surplus(self, work: W, denied: _Denied, inherited: int = 0) -> bool:
        """Whether a waiting request that is denied blocks may get them by surplus reclaim from other active zones."""
        if denied.headroom:
            return False
        count = denied.blocks + self._preemptor.of_siblings(work) - inherited
        return self._totals.surplus_to_reclaim(work.zone, count, self._engine.free_blocks, work.peak) > 0

    def _denied(self, work: W, inherited: int = 0) -> _Denied | None:
        """Returns the blocks that a waiting request would be denied if it were admitted now, or None.

        Args:
            work: the request.
            inherited: number of blocks that are kept for another request of the zone and count as kept for this one.
        """
        return self._denied_of(work, self._blocks_at_most(work), inherited)

    def _denied_of(self, work: W, at_most: int, inherited: int = 0) -> _Denied | None:
        """Returns the blocks that a request for up to ``at_most`` blocks would be denied, or None."""
        engine, zone = self._engine, work.zone
        available = self._preemptor.available(work) + inherited
        headroom = engine.headroom if engine.running else 0
        reachable = engine.free_blocks + self._ledger.cached_blocks - headroom
        # A request needs the most blocks if it has no prefix hit. If that many fit, no lookup is needed.
        if not at_most or (work is not self._doubtful and at_most <= max(0, min(available, reachable))):
            return None
        count = engine.blocks_to_admit(work)
        # Check the headroom first. Eviction can't change it, so no cache is evicted for a request that must wait.
        if headroom and count > reachable and not zone.is_entitled_to(count):
            return _Denied(count, headroom)
        return _Denied(count, 0) if count > available else None

    def _evict_surplus_for(self, work: W, count: int) -> None:
        """Evict cached surplus of other active zones for a request that was denied ``count`` blocks."""
        count += self._preemptor.of_siblings(work)
        self._engine.return_evicted(
            self._tenancy.evict_surplus_for(work.zone, count, self._engine.free_blocks, work.peak)
        )

    def _get_unstuck(self) -> None:
        """Make a waiting request admissible, if none runs and all wait for what is kept for other zones.

        First, room kept in the encoder is released. Then unused reservations are lent as if their owners were quiet. An
        owner that requests blocks within its entitlement gets them back within a step.
        """
        engine = self._engine
        if engine.running or not engine.free_seats or self.has_admissible() or engine.loading or engine.coming:
            return
        self._commit_notes()
        if turned_away := self.encoder.let_go():
            self._admission.take_back(turned_away)
            if self.has_admissible():
                return
            self._commit_notes()
        if self._totals.changes == self._stuck_at or not self._admission.wake_all():
            return
        states.lend_what_is_unused(self._ledger)
        self._stuck_at = None if self.has_admissible() else self._totals.changes
