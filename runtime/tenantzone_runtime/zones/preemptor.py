"""Preemption before a step: which running requests are preempted so that others get the blocks that are theirs."""

from collections.abc import Callable
from typing import Generic

from tenantzone_runtime.zones import preemption
from tenantzone_runtime.zones.audit import PreemptionReason
from tenantzone_runtime.zones.claims import Claims
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.zone import Zone


class Preemptor(Generic[W]):
    """Makes room by preemption, before a step.

    Args:
        tenancy: the zones.
        engine: whose requests.
        claims: the blocks kept for requests in the step.
        preempt: preempts a request, for a reason and the benefit of a zone; calls ``forget``.
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
        """Blocks looked ahead for running requests until now, and kept for none of them, ..."""
        self._ahead: dict[Zone, int] = {}
        """... and their sum for each zone."""
        self._counted_on: dict[W, int] = {}
        """Blocks that are coming, by the request that waits for them instead of a preemption."""

    def begin_step(self) -> None:
        """Reset the blocks that are counted as coming."""
        self._counted_on.clear()

    def forget(self, work: W) -> None:
        """Keep and expect no blocks for a request that was preempted."""
        self._claims.drop(work)
        if work in self._foreseen:
            self._ahead[work.zone] -= self._foreseen.pop(work)

    def available(self, work: W, *, growing: bool = False) -> int:
        """Blocks that a request may use, in addition to those kept and expected for others of its zone."""
        return self._takeable(work, growing=growing) - self.of_siblings(work)

    def may_continue(self, work: W, count: int) -> bool:
        """Whether a running request may take blocks in its turn; the first of its zone has all that there are."""
        return count <= self.available_in_turn(work)

    def available_in_turn(self, work: W) -> int:
        """Blocks that a running request may take if it is the first of its zone to need any."""
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
        """Whether a request would be within its zone's reservation with ``count`` more blocks."""
        return work.zone.is_entitled_to(self.of_siblings(work) + count)

    def of_siblings(self, work: W) -> int:
        """Blocks that are kept and expected for other requests of the same zone."""
        return self._claims.of_siblings(work) + self._ahead.get(work.zone, 0)

    def take_back(self, borrower: Zone) -> None:
        """Preempt requests of a zone until it uses no loan that is past its grace."""
        while True:
            # Blocks owed at the last upkeep may be covered by a newer config, or returned.
            self._engine.return_evicted(self._tenancy.collect_due(self._engine.free_blocks))
            if borrower not in self._tenancy.past_grace():
                return
            covered = self._tenancy.cover_loans(borrower)
            self._engine.return_evicted(covered)
            if covered:
                continue
            if self._engine.coming.get(borrower):
                # Blocks that its requests have released are not available yet.
                return
            victim = preemption.youngest(self._engine.by_seniority(), borrower)
            if victim is None:
                return
            self._preempt(victim, "due", None)

    def look_ahead(self) -> None:
        """Help requests now that the coming step would find short of blocks, as far as that is certain."""
        for work, count in self._engine.needs():
            if self._engine.is_running(work) and not self.help(work, count) and self._engine.is_running(work):
                self._foreseen[work] = count
                self._ahead[work.zone] = self._ahead.get(work.zone, 0) + count
        self._foreseen.clear()
        self._ahead.clear()

    def help(self, work: W, count: int) -> bool:
        """Preempt others for a running request that gets no blocks, or preempt it itself.

        Returns whether its blocks are kept for it.
        """
        if self.reclaim(work, count, growing=True):
            return True
        missing = count - self.available(work, growing=True)
        if self._engine.is_running(work) and missing > 0 and not self._need_only_wait(work, count, missing):
            # It holds blocks and can't continue: others could wait for them forever.
            self._preempt(work, "own", work.zone)
        return False

    def reclaim(self, work: W, count: int, *, growing: bool = False, is_rough: bool = False) -> bool:
        """Preempt running requests until a request may take its blocks, or none may be preempted.

        Args:
            work: the request that needs blocks.
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
            if victim is None or (victim is work and self._may_be_preempted_later(work, entitled=entitled)):
                return False
            self._preempt(victim, "own" if victim.zone is work.zone else "reclaim", work.zone)
            if victim is work:
                return False
        if not self.is_entitled_to(work, count):
            return False
        self._claims.keep(work, count, is_rough=is_rough)
        return True

    def _need_only_wait(self, work: W, count: int, missing: int) -> bool:
        """Whether a running request that can't continue in this step may keep its blocks."""
        entitled = self.is_entitled_to(work, count)
        return self._are_coming(work, count, missing, growing=True) or self._may_be_preempted_later(
            work, entitled=entitled
        )

    def _are_coming(self, work: W, count: int, missing: int, *, growing: bool) -> bool:
        """Whether a request's missing blocks were released by now, and are its when steps in flight are over.

        Each block is counted once, so that none is preempted for and none is waited for in vain.
        """
        coming = self._engine.coming
        if not coming:
            return False
        zone = work.zone
        there = own = coming.get(zone, 0)
        if growing or self.is_entitled_to(work, count):
            # Blocks that others held above their reservations are for zones within their own, and for running requests:
            # otherwise two requests that can't both continue would preempt each other, and restart, forever.
            there += sum(min(blocks, other.surplus) for other, blocks in coming.items() if other is not zone)
        self._counted_on.pop(work, None)
        there -= sum(self._counted_on.values())
        # Blocks that its limit or a promise then keeps from it will never come: a request of its own must be preempted.
        if self._takeable(work, growing=growing, coming=there, let_go=own) - self.of_siblings(work) < count:
            return False
        self._counted_on[work] = missing
        return True

    def _may_be_preempted_later(self, work: W, *, entitled: bool) -> bool:
        """Whether a request that is being loaded may have to be preempted for this one when its load has ended.

        A loaded request that lacks room for its image next to what runs may wait for this very one.
        """
        return any(load.zone is work.zone or (entitled and load.zone.surplus > 0) for load in self._engine.landing)

    def know_better(self) -> bool:
        """Keep no more for waiting requests than they need, before others lack blocks because of them.

        Returns:
            Whether more was kept.
        """
        rough = self._claims.take_rough()
        for work in rough:
            self._claims.keep(work, self._engine.blocks_to_admit(work))
        return bool(rough)
