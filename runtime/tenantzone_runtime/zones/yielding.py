"""Who yields to whom: which running requests are sent back to wait, so that others get the blocks that are theirs."""

from collections.abc import Callable
from typing import Generic

from tenantzone_runtime.zones import preemption
from tenantzone_runtime.zones.audit import PreemptionReason
from tenantzone_runtime.zones.claims import Claims
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.zone import Zone


class Yielding(Generic[W]):
    """Makes room by preemption, before a step.

    Args:
        tenancy: the zones.
        engine: whose requests.
        claims: what is kept for whom in the step.
        preempt: sends a request back to wait, for a reason and somebody's benefit; tells ``forget`` of it.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        engine: Engine[W],
        claims: Claims[W],
        preempt: Callable[[W, PreemptionReason, Zone | None], None],
    ) -> None:
        self._tenancy = tenancy
        self._totals = tenancy.ledger.totals
        self._engine = engine
        self._claims = claims
        self._preempt = preempt
        self._foreseen: dict[W, int] = {}
        """Blocks that were foreseen until now for running requests, and are kept for none of them, ..."""
        self._ahead: dict[Zone, int] = {}
        """... and the sum of these for each zone."""
        self._counted_on: dict[W, int] = {}
        """Blocks that are coming, by who waits for them in place of others' yielding."""

    def begin_step(self) -> None:
        """Count anew on what is coming."""
        self._counted_on.clear()

    def forget(self, work: W) -> None:
        """Keep nothing for a request that was preempted, and foresee nothing of it."""
        self._claims.drop(work)
        if work in self._foreseen:
            self._ahead[work.zone] -= self._foreseen.pop(work)

    def available(self, work: W, *, growing: bool = False) -> int:
        """Blocks that a request may put to use, beside what is kept and foreseen for others of its zone."""
        return self._takeable(work, growing=growing) - self.of_siblings(work)

    def may_continue(self, work: W, count: int) -> bool:
        """Whether a running request may take blocks in its turn; who comes first of its zone has what there is."""
        return count <= self.available_in_turn(work)

    def available_in_turn(self, work: W) -> int:
        """Blocks that a running request may take if it is the first of its zone to ask."""
        return self._takeable(work, growing=True)

    def _takeable(self, work: W, *, growing: bool, coming: int = 0, let_go: int = 0) -> int:
        return self._totals.takeable(
            work.zone,
            self._engine.free_blocks + coming,
            growing=growing,
            peak=work.peak,
            claimed=self._claims.of_others(work.zone),
            let_go=let_go,
        )

    def is_entitled_to(self, work: W, count: int) -> bool:
        """Whether a request would be within its zone's reservation with so many more blocks."""
        return work.zone.is_entitled_to(self.of_siblings(work) + count)

    def of_siblings(self, work: W) -> int:
        """Blocks that are kept and foreseen for other requests of the same zone."""
        return self._claims.of_siblings(work) + self._ahead.get(work.zone, 0)

    def take_back(self, borrower: Zone) -> None:
        """Preempt requests of a zone until it stands on no loan that is past its grace."""
        while True:
            # What was owed when time passed last may be covered by a config that came since, or given back.
            self._engine.return_evicted(self._tenancy.collect_due(self._engine.free_blocks))
            if borrower not in self._tenancy.past_grace():
                return
            covered = self._tenancy.cover_loans(borrower)
            self._engine.return_evicted(covered)
            if covered:
                continue
            if self._engine.coming.get(borrower):
                # What its requests have let go is not there yet.
                return
            victim = preemption.youngest(self._engine.by_seniority(), borrower)
            if victim is None:
                return
            self._preempt(victim, "due", None)

    def foresee(self) -> None:
        """Help requests now that the coming step would find short of blocks, as far as that is sure."""
        for work, count in self._engine.needs():
            if self._engine.is_running(work) and not self.help(work, count) and self._engine.is_running(work):
                self._foreseen[work] = count
                self._ahead[work.zone] = self._ahead.get(work.zone, 0) + count
        self._foreseen.clear()
        self._ahead.clear()

    def help(self, work: W, count: int) -> bool:
        """Let others yield to a running request that gets no blocks, or let it wait itself.

        Returns whether its blocks are kept for it.
        """
        if self.reclaim(work, count, growing=True):
            return True
        missing = count - self.available(work, growing=True)
        if self._engine.is_running(work) and missing > 0 and not self._need_only_wait(work, count, missing):
            # It holds blocks and can't go on: others could wait for them for ever.
            self._preempt(work, "own", work.zone)
        return False

    def reclaim(self, work: W, count: int, *, growing: bool = False, is_rough: bool = False) -> bool:
        """Preempt running requests until a request may take its blocks, or nobody may yield.

        Args:
            work: whose turn is to come.
            count: its blocks.
            growing: whether it runs.
            is_rough: whether it may need fewer.

        Returns:
            Whether the blocks are kept for it: its zone is entitled to them.
        """
        while (missing := count - self.available(work, growing=growing)) > 0:
            if self.know_better():
                continue
            if self._are_coming(work, count, missing, growing=growing):
                return False
            entitled = self.is_entitled_to(work, count)
            victim = preemption.choose_victim(self._engine.by_seniority(), work.zone, entitled=entitled)
            if victim is None or (victim is work and self._may_yield_later(work, entitled=entitled)):
                return False
            self._preempt(victim, "own" if victim.zone is work.zone else "reclaim", work.zone)
            if victim is work:
                return False
        if not self.is_entitled_to(work, count):
            return False
        self._claims.keep(work, count, is_rough=is_rough)
        return True

    def _need_only_wait(self, work: W, count: int, missing: int) -> bool:
        """Whether a running request need not yield itself though it can't go on in this step."""
        entitled = self.is_entitled_to(work, count)
        return self._are_coming(work, count, missing, growing=True) or self._may_yield_later(work, entitled=entitled)

    def _are_coming(self, work: W, count: int, missing: int, *, growing: bool) -> bool:
        """Whether the blocks that a request misses were let go by now, and are its when steps in flight are over.

        Each of them is counted on once, so that nobody yields for it and nobody waits for it in vain.
        """
        coming = self._engine.coming
        if not coming:
            return False
        zone = work.zone
        there = own = coming.get(zone, 0)
        if growing or self.is_entitled_to(work, count):
            # What others held above their reservations is there for whoever is within its own, and for what runs:
            # else both of two that can't go on beside each other would yield, and begin anew, for ever.
            there += sum(min(blocks, other.surplus) for other, blocks in coming.items() if other is not zone)
        self._counted_on.pop(work, None)
        there -= sum(self._counted_on.values())
        # What its limit or a promise keeps from it then will never come: in its place somebody of its own must yield.
        if self._takeable(work, growing=growing, coming=there, let_go=own) - self.of_siblings(work) < count:
            return False
        self._counted_on[work] = missing
        return True

    def _may_yield_later(self, work: W, *, entitled: bool) -> bool:
        """Whether a request whose load is under way may have to yield to this one when it has landed.

        One that has landed, and lacks room for its image beside what runs, may wait for this very one.
        """
        return any(load.zone is work.zone or (entitled and load.zone.surplus > 0) for load in self._engine.landing)

    def know_better(self) -> bool:
        """Keep no more for waiting requests than they need, before anybody lacks blocks for them.

        Returns:
            Whether that was unknown.
        """
        rough = self._claims.take_rough()
        for work in rough:
            self._claims.keep(work, self._engine.blocks_to_admit(work))
        return bool(rough)
