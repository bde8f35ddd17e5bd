"""Preemption before a step: which running requests are preempted so that other requests get blocks they may take."""

from collections.abc import Callable
from typing import Generic

from tenantzone_runtime.zones.audit.events import PreemptionReason
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule import preemption
from tenantzone_runtime.zones.schedule.claims import Claims
from tenantzone_runtime.zones.tenancy import Tenancy


class Preemptor(Generic[W]):
    """Makes room by preemption, before a step.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine.
        claims: the blocks kept for requests in the step.
        preempt: preempts a request, for a reason and for the benefit of a zone. It must call ``forget``.
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
        """While looking ahead: blocks that running requests need in the coming step, if none are kept for them."""
        self._ahead: dict[Zone, int] = {}
        """Sum of the blocks in ``_foreseen`` for each zone."""
        self._counted_on: dict[W, int] = {}
        """By request, the number of released but not yet free blocks that it waits for instead of a preemption."""

    def begin_step(self) -> None:
        """Forget which requests wait for released blocks."""
        self._counted_on.clear()

    def forget(self, work: W) -> None:
        """Drop the claim and the expected need of a request that was preempted."""
        self._claims.drop(work)
        if work in self._foreseen:
            self._ahead[work.zone] -= self._foreseen.pop(work)

    def available(self, work: W, *, growing: bool = False) -> int:
        """Returns the blocks that a request may take, besides those kept and expected for others of its zone."""
        return self._takeable(work, growing=growing) - self.of_siblings(work)

    def may_continue(self, work: W, count: int) -> bool:
        """Whether a running request may take ``count`` blocks, if it is the first request of its zone to need any."""
        return count <= self.available_in_turn(work)

    def available_in_turn(self, work: W) -> int:
        """Returns the blocks that a running request may take if it is the first request of its zone to need any."""
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
        """Whether the zone of a request would stay within its reservation with ``count`` more blocks."""
        return work.zone.is_entitled_to(self.of_siblings(work) + count)

    def of_siblings(self, work: W) -> int:
        """Returns the blocks that are kept and expected for other requests of the same zone."""
        return self._claims.of_siblings(work) + self._ahead.get(work.zone, 0)

    def take_back(self, borrower: Zone) -> None:
        """Preempt requests of a zone until it uses no loan that is past its grace period."""
        while True:
            # Since the last upkeep, blocks may have been returned, or a newer config may have ended the loan.
            self._engine.return_evicted(self._tenancy.collect_due(self._engine.free_blocks))
            if borrower not in self._tenancy.past_grace():
                return
            covered = self._tenancy.cover_loans(borrower)
            self._engine.return_evicted(covered)
            if covered:
                continue
            if self._engine.coming.get(borrower):
                # Wait for blocks that the zone's requests have released but that are not available yet.
                return
            victim = preemption.youngest(self._engine.by_seniority(), borrower)
            if victim is None:
                return
            self._preempt(victim, "due", None)

    def look_ahead(self) -> None:
        """Make room for running requests that would certainly lack blocks in the coming step."""
        for work, count in self._engine.needs():
            if self._engine.is_running(work) and not self.help(work, count) and self._engine.is_running(work):
                self._foreseen[work] = count
                self._ahead[work.zone] = self._ahead.get(work.zone, 0) + count
        self._foreseen.clear()
        self._ahead.clear()

    def help(self, work: W, count: int) -> bool:
        """Preempt other requests for a running request that lacks ``count`` blocks, or preempt this request itself.

        Returns whether the blocks are kept for the request.
        """
        if self.reclaim(work, count, growing=True):
            return True
        missing = count - self.available(work, growing=True)
        if self._engine.is_running(work) and missing > 0 and not self._need_only_wait(work, count, missing):
            # The request holds blocks but can't continue, so other requests could wait for these blocks forever.
            self._preempt(work, "own", work.zone)
        return False

    def reclaim(self, work: W, count: int, *, growing: bool = False, is_rough: bool = False) -> bool:
        """Preempt running requests until a request may take its blocks, or none may be preempted.

        Args:
            work: the request that needs blocks.
            count: number of blocks.
            growing: whether the request is running.
            is_rough: whether the request may need fewer blocks.

        Returns:
            Whether the blocks are kept for the request. They are kept only if its zone is entitled to them.
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
        """Whether a running request that can't continue in this step need only wait, and may keep its blocks."""
        entitled = self.is_entitled_to(work, count)
        return self._are_coming(work, count, missing, growing=True) or self._may_be_preempted_later(
            work, entitled=entitled
        )

    def _are_coming(self, work: W, count: int, missing: int, *, growing: bool) -> bool:
        """Whether a request's missing blocks are already released, so that it can take them after the steps in flight.

        Each released block counts for only one request, so that no request waits or is preempted in vain.
        """
        coming = self._engine.coming
        if not coming:
            return False
        zone = work.zone
        there = own = coming.get(zone, 0)
        if growing or self.is_entitled_to(work, count):
            # Zones within their reservations, and running requests, also get blocks that other zones held above their
            # reservations. Otherwise, two requests that can't both continue would preempt each other forever.
            there += sum(min(blocks, other.surplus) for other, blocks in coming.items() if other is not zone)
        self._counted_on.pop(work, None)
        there -= sum(self._counted_on.values())
        # If the request may not take its blocks even then, because of the zone's limit or a promise to another zone, a
        # request of the zone must be preempted.
        if self._takeable(work, growing=growing, coming=there, let_go=own) - self.of_siblings(work) < count:
            return False
        self._counted_on[work] = missing
        return True

    def _may_be_preempted_later(self, work: W, *, entitled: bool) -> bool:
        """Whether a loading request can be preempted instead of this one, once its load has ended.

        Requests that lack encoder room after their load do not count, because they may wait for this very request.
        """
        return any(load.zone is work.zone or (entitled and load.zone.surplus > 0) for load in self._engine.landing)

    def know_better(self) -> bool:
        """Replace rough claims of waiting requests by exact ones, before other requests lack blocks because of them.

        Returns:
            Whether there were rough claims.
        """
        rough = self._claims.take_rough()
        for work in rough:
            self._claims.keep(work, self._engine.blocks_to_admit(work))
        return bool(rough)
