"""What becomes of an engine's requests when no more come: liveness."""

from tenantzone_runtime.zones.latency_budget import SITS_OUT_AT_MOST
from tenantzone_runtime.zones.unsatisfiable import UNSATISFIABLE_SECONDS
from tests.zones.history_counted import HistoryCounted

SECONDS_AT_REST = 100
"""Longer than any idle window, loan and grace time that the configs know, one after the other."""
STEPS_PER_SOLO_STEP = 2
"""How much longer than one after the other requests may take together, preempted ones being computed again."""


class HistoryAtRest(HistoryCounted):
    """The end of a life."""

    def turn_round(self):
        """The engine takes on no waiting requests from now on, or takes them on again."""
        self._saw("paused or resumed")
        self.engine.is_open = not self.engine.is_open
        self.ledger.now = self.now
        self.arbiter.pause()

    def come_to_rest(self):
        """Liveness: when no more requests come, each ends, or is told that it never can be served.

        But for those that need a loan which has a time: they are preempted whenever it is over, and leave here.
        """
        if self.is_in_step:
            return
        if not self.engine.is_open:
            self.turn_round()
        waiting = [request for request in self.requests if request.zone is not None]
        for request in list(waiting):
            reachable = self.world.reachable(request.claim, request.peak)
            if min(request.longest, reachable) > self.world.lastingly_reachable(request.claim, request.peak):
                self._saw("needs a loan that has a time")
                waiting.remove(request)
                self.end(request)
        bound = SECONDS_AT_REST + int(UNSATISFIABLE_SECONDS) * len(waiting)
        solo_steps = sum(request.solo_steps(self.step_tokens, self.chunk_tokens) for request in waiting)
        # Where targets count, others' prompts may get a chunk now and then.
        bound += STEPS_PER_SOLO_STEP * solo_steps * (1 if self.step_tokens is None else SITS_OUT_AT_MOST)
        for _ in range(bound):
            if not any(request in self.requests for request in waiting):
                break
            self.pass_time(1.0)
            self.make_step()
        stuck = [request for request in waiting if request in self.requests]
        assert not stuck, f"not ended after {bound} steps: {stuck}"
