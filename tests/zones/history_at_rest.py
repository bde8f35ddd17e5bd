"""What becomes of an engine's requests once no more arrive: liveness."""

from tenantzone_runtime.zones.schedule.unsatisfiable import UNSATISFIABLE_SECONDS
from tenantzone_runtime.zones.tokens.latency_budget import SITS_OUT_AT_MOST
from tests.zones.history_counted import HistoryCounted

SECONDS_AT_REST = 100
"""Seconds: longer than all idle windows, loan times and grace times of the configs, one after another."""
STEPS_PER_SOLO_STEP = 2
"""How much longer requests may take together than one after another: preempted ones are computed again."""


class HistoryAtRest(HistoryCounted):
    """The end of a life."""

    def turn_round(self):
        """Makes the engine stop admitting waiting requests, or resume."""
        self._saw("paused or resumed")
        self.engine.is_open = not self.engine.is_open
        self.ledger.now = self.now
        self.arbiter.pause()

    def come_to_rest(self):
        """Liveness: once no more requests arrive, each ends or is reported as unsatisfiable.

        Requests that need a loan with a time limit are the exception: each expiry preempts them again, so they are
        ended here.
        """
        if self.is_in_step:
            return
        if not self.engine.is_open:
            self.turn_round()
        waiting = [request for request in self.requests if request.zone is not None]
        for request in list(waiting):
            reachable = self.model.reachable(request.twin, request.peak)
            with_loan_time = [twin for twin in self.model.zones.values() if twin.has_loan_time]
            if min(request.longest, reachable) > self.model.reachable(request.twin, request.peak, with_loan_time):
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
