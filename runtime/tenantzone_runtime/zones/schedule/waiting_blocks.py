"""Blocks for waiting requests: which blocks a request would be denied now, and which are kept for it within a step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from tenantzone_runtime.zones.blocks import states
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.claims import Claims
from tenantzone_runtime.zones.schedule.preemptor import Preemptor
from tenantzone_runtime.zones.tenancy import Tenancy


@dataclass(frozen=True, slots=True)
class Denied:
    """The blocks that a waiting request was denied."""

    blocks: int
    headroom: int
    """Number of further blocks that must stay free or cached, if only these are missing; 0 if the request's own blocks
    are missing."""


class WaitingBlocks(Generic[W]):
    """The blocks that waiting requests of one engine may have.

    Args:
        tenancy: tenancy with all zones.
        engine: the engine.
        claims: the blocks kept for requests in the step.
        preemptor: computes the blocks that a request may take.
    """

    def __init__(self, tenancy: Tenancy, engine: Engine[W], claims: Claims[W], preemptor: Preemptor[W]) -> None:
        self._tenancy = tenancy
        self._ledger = tenancy.ledger
        self._totals = tenancy.ledger.totals
        self._engine = engine
        self._claims = claims
        self._preemptor = preemptor
        self._kept_for: dict[Zone, W] = {}
        """By zone, the waiting request for which blocks are kept in this step. It may have stopped being the zone's
        next request."""
        self._doubtful: W | None = None
        """The last waiting request for which the engine found no blocks, although `denied` had returned None."""
        self._overlooked: Zone | None = None
        """Zone of a request for which the engine found no blocks twice in a row. The next step skips this zone."""

    # Questions

    def available(self, work: W) -> int:
        """Returns the blocks that a waiting request may take, besides those kept for others of its zone."""
        return self._preemptor.available(work)

    def denied(
        self, work: W, at_most: int, inherited: int = 0, may_look_up: Callable[[int], bool] | None = None
    ) -> Denied | None:
        """Returns the blocks that a waiting request would be denied if it were admitted now; None if it gets them all.

        Args:
            work: the request.
            at_most: upper bound of the blocks that it needs; 0 if it waits for something other than blocks.
            inherited: number of blocks that are kept for another request of the zone and count as kept for this one.
            may_look_up: called with ``at_most`` before the request's prompt is looked up. If it returns False, the
                request counts as denied without a look-up.
        """
        engine, zone = self._engine, work.zone
        available = self._preemptor.available(work) + inherited
        headroom = engine.headroom if engine.running else 0
        reachable = engine.free_blocks + self._ledger.cached_blocks - headroom
        # A request needs the most blocks if it has no prefix hit. If that many fit, no lookup is needed.
        if not at_most or (work is not self._doubtful and at_most <= max(0, min(available, reachable))):
            return None
        if may_look_up is not None and not may_look_up(at_most):
            return Denied(at_most, 0)
        count = engine.blocks_to_admit(work)
        # Check the headroom first. Eviction can't change it, so no cache is evicted for a request that must wait.
        if headroom and count > reachable and not zone.is_entitled_to(count):
            return Denied(count, headroom)
        return Denied(count, 0) if count > available else None

    def may_reclaim_surplus(self, work: W, denied: Denied, inherited: int = 0) -> bool:
        """Whether a waiting request that is denied blocks may get them by surplus reclaim from other active zones."""
        if denied.headroom:
            return False
        count = denied.blocks + self._preemptor.of_siblings(work) - inherited
        return self._totals.surplus_to_reclaim(work.zone, count, self._engine.free_blocks, work.peak) > 0

    def may_be_found(self, work: W, at_most: int) -> bool:
        """Whether a waiting request gets its blocks now, is entitled to them, or may get them by surplus reclaim."""
        denied = self.denied(work, at_most)
        return denied is None or work.zone.is_entitled_to(denied.blocks) or self.may_reclaim_surplus(work, denied)

    def inherited(self, work: W) -> int:
        """Returns the number of blocks that `inherit` would transfer to a zone's next request."""
        expected = self._kept_for.get(work.zone, work)
        return 0 if expected is work or not self._engine.blocks_at_most(work) else self._claims.of(expected)

    # Changes

    def reclaim(self, work: W, at_most: int, denied: Denied | None) -> bool:
        """Before a step, preempt running requests for a waiting request whose zone is entitled to the blocks.

        Args:
            work: the request.
            at_most: upper bound of the blocks that it needs; 0 if it waits for something other than blocks.
            denied: result of `denied` for the request.

        Returns:
            Whether the zone is entitled to the blocks. As many as could be reclaimed are then kept for the request.
        """
        count, is_rough = self._to_keep(work, at_most) if denied is None else (denied.blocks, False)
        if not count or not self._preemptor.is_entitled_to(work, count):
            return False
        states.is_served(self._ledger, work.zone)
        self._preemptor.reclaim(work, count, is_rough=is_rough)
        self._kept_for[work.zone] = work
        return True

    def _to_keep(self, work: W, at_most: int) -> tuple[int, bool]:
        """Returns how many blocks to keep for a request within its zone's reservation, and whether fewer may do.

        For requests of other zones, the number is 0.
        """
        if not at_most or not work.zone.is_entitled_to(1):
            return 0, False
        # If enough blocks are free, keep the maximum, and save the lookup of prefix hits.
        abound = self._engine.free_blocks >= self._claims.total + at_most
        if abound and self._preemptor.is_entitled_to(work, at_most):
            return at_most, True
        return self._engine.blocks_to_admit(work), False

    def inherit(self, work: W) -> None:
        """Transfer the blocks that are kept for another waiting request of the zone to the zone's next request."""
        expected = self._kept_for.get(work.zone, work)
        if expected is not work and self._engine.blocks_at_most(work):
            self._claims.pass_on(expected, work)
            self._kept_for[work.zone] = work

    def evict_surplus_for(self, work: W, count: int) -> None:
        """Evict cached surplus of other active zones for a request that was denied ``count`` blocks."""
        count += self._preemptor.of_siblings(work)
        self._engine.return_evicted(
            self._tenancy.evict_surplus_for(work.zone, count, self._engine.free_blocks, work.peak)
        )

    def yield_to(self, work: W, count: int) -> bool:
        """Let a running request take blocks that are kept for waiting requests of its zone, if it needs them.

        Returns:
            Whether the running request may take ``count`` blocks.
        """
        self._preemptor.know_better()
        waiting = self._kept_for.get(work.zone)
        if waiting is not None and count > self._preemptor.available(work, growing=True):
            # Too few blocks are left for the waiting request, so other requests may have the rest.
            self._claims.drop(waiting)
        return self._preemptor.may_continue(work, count)

    def were_not_found(self, work: W) -> None:
        """Note that the engine found no blocks for a waiting request, although `denied` had returned None."""
        # A request that is repeatedly denied blocks although the plan had them must not block others.
        self._overlooked = work.zone if work is self._doubtful else None
        self._doubtful = work

    def take_overlooked(self) -> Zone | None:
        """Returns and clears the zone to skip in this step, because the engine repeatedly found no blocks for it."""
        overlooked, self._overlooked = self._overlooked, None
        return overlooked

    def end_step(self) -> None:
        """Drop all blocks that are kept for requests."""
        self._claims.clear()
        self._kept_for.clear()

    def forget(self, zone: Zone) -> None:
        """Forget a removed zone."""
        if self._doubtful is not None and self._doubtful.zone is zone:
            self._doubtful = None
