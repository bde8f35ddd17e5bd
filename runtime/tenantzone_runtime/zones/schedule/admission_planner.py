"""Plans the next admission: the first waiting request, in fair order, that gets a seat, tokens and blocks.

For each zone in turn, three questions decide about its next request. A seat: is the zone below its own limit, and is
there a free seat that is not kept for another zone? Tokens: are enough left in this step? Blocks: may the zone take
what the request needs, by surplus reclaim if necessary? Planning changes nothing. The plan collects the changes to
make, in order, and `admission_changes` makes them when the plan is committed.
"""

from collections.abc import Callable
from functools import partial
from typing import Generic

from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.resources.adapter_slots import AdapterSlots
from tenantzone_runtime.zones.resources.seats import Seats
from tenantzone_runtime.zones.schedule.admission import Admission, Candidates
from tenantzone_runtime.zones.schedule.admission_changes import AdmissionChanges
from tenantzone_runtime.zones.schedule.admission_plan import AdmissionPlan, State, Trial
from tenantzone_runtime.zones.schedule.held_back import HeldBack
from tenantzone_runtime.zones.schedule.waiting_blocks import Denied, WaitingBlocks
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.tokens.step_tokens import StepTokens


class AdmissionPlanner(Generic[W]):
    """Plans admissions of one engine.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine.
        admission: the zones with waiting requests, and the order in which they are considered.
        held_back: the running requests that lack blocks.
        seats: the seats.
        slots: the adapter slots.
        tokens: the tokens of the step.
        blocks: the blocks that waiting requests may have.
        changes: makes the changes of a plan.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        engine: Engine[W],
        admission: Admission,
        held_back: HeldBack[W],
        seats: Seats[W],
        slots: AdapterSlots[W],
        tokens: StepTokens[W],
        blocks: WaitingBlocks[W],
        changes: AdmissionChanges[W],
    ) -> None:
        self._tenancy = tenancy
        self._totals = tenancy.ledger.totals
        self._engine = engine
        self._admission = admission
        self._held_back = held_back
        self._seats = seats
        self._slots = slots
        self._tokens = tokens
        self._blocks = blocks
        self._changes = changes

    def state(self) -> State:
        """Returns several numbers. Within a step, one of them changes whenever another request may become next."""
        engine, totals = self._engine, self._totals
        return (
            totals.changes,
            len(totals.to_reconsider),
            engine.free_blocks,
            engine.free_seats,
            len(engine.running),
            self._tokens.in_all,
        )

    def plan(self) -> AdmissionPlan[W]:
        """Plan the next admission. The changes in the plan are in the order in which they must be made."""
        engine, tokens = self._engine, self._tokens
        plan = AdmissionPlan[W](self.state())
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
            denied: Denied | None = None
            note = self._wait_but_for_blocks(zone, work, trial)
            if note is None and self._slots.may_have(work):
                inherited = self._blocks.inherited(work)
                denied = self._blocks.denied(work, self._engine.blocks_at_most(work), inherited)
                if denied is not None and not self._blocks.may_reclaim_surplus(work, denied, inherited):
                    note = partial(self._changes.deny, work, denied)
            if note is None:
                plan.admit(work, partial(self._changes.begin, work, denied))
                return True
            plan.note(partial(self._admission.pass_over, zone, note))
        return False

    def _wait_but_for_blocks(self, zone: Zone, work: W, trial: Trial) -> Callable[[], None] | None:
        """Returns a callback that notes why a zone's next request waits; None if it waits for nothing but blocks."""
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
            return partial(self._changes.wait_to_begin, work)
        held_back = self._held_back.first_of(zone)
        return None if held_back is None else partial(self._changes.wait_behind, held_back)
