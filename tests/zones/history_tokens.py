"""The tokens of steps in random history: which requests ask for them, which get them, and the invariants of that."""

from itertools import combinations

from tenantzone_runtime.zones.model.step_time import LEARNED_AFTER, StepLoad
from tenantzone_runtime.zones.tokens.deficits import BOUND
from tenantzone_runtime.zones.tokens.latency_budget import SITS_OUT_AT_MOST

BLOCK_TOKENS = 16
BASE, PER_TOKEN, PER_DECODE = 0.010, 0.0002, 0.001
"""Seconds: of any step, and in addition for each token of a prompt and for each decode."""


class StepTokensWatched:
    """Asks the arbiter for the tokens of one engine's steps, and checks what it grants.

    Args:
        history: the history that it belongs to.
        is_learned: whether steps can be predicted from the start.
    """

    def __init__(self, history, *, is_learned):
        self._history = history
        self._engine = history.engine
        self._apart = {}
        """For each pair of zones that both had more work than their shares in the last steps: the lead of the first
        over the second, at least, now and at most, in tokens per unit of weight."""
        self._sat_out = {}
        """Consecutive steps that computed nothing, for each running request and each zone with prompts."""
        self._begin()
        for step in range(2 * LEARNED_AFTER if is_learned else 0):
            load = StepLoad(step % 2 * 100, 1 + step % 3)
            history.arbiter.times.observe(load, seconds_of(load))

    def _begin(self):
        self._load = StepLoad()
        self.left = self._engine.step_tokens
        """The tokens left in the step; None: the step is not bounded."""
        self._granted = {}
        """Tokens of prompts granted in this step, by zone."""
        self._withheld = set()
        """Requests that got fewer tokens than they could have used."""
        self._useless = False
        """Whether a request was granted tokens that it could not use."""

    def begin_step(self):
        """Notes which zones may compete, before the step; the arbiter has begun it."""
        self._begin()
        self._counts = {zone for zone in self._history.ledger.zones.values() if self._has_target_that_counts(zone)}
        self._present = {work.zone for work in [*self._engine.running, *self._engine.waiting]}

    def _has_target_that_counts(self, zone):
        is_there = zone.requests or self._history.now - zone.last_active <= zone.spec.idle.after_seconds
        return bool(zone.spec.latency) and bool(is_there)

    def ask(self, work, wanted, known=None):
        """Returns how many of `wanted` tokens of a request are computed in this step.

        Args:
            work: the request.
            wanted: tokens.
            known: how many tokens of its prompt are computed, if its prompt is to be computed further.
        """

        def fitting(most):
            return most if known is None else self._fitting(work, known, wanted, most)

        most = fitting(wanted if self.left is None else min(self.left, wanted))
        granted = self._history.arbiter.tokens_for(work, most, fitting) if most else 0
        assert 0 <= granted <= most
        if granted < most:
            self._history._saw("tokens are withheld")
            assert self._engine.step_tokens is not None
            assert self._present | self._counts != {work.zone}, "who is alone has all of a step"
        if granted < fitting(wanted):
            self._withheld.add(work)
        return granted

    def _fitting(self, work, known, wanted, most):
        """Like vLLM, ends each chunk of a prompt, except the last, where the prompt can be continued."""
        chunk = self._engine.chunk
        if most == wanted and known + wanted >= BLOCK_TOKENS * work.needed:
            return most
        return max(0, (known + most) // chunk * chunk - known)

    def may_leave_waiting(self, front):
        """Whether a request may wait although tokens are left, because latency targets withhold them from all."""
        # No zone can use the tokens of a request that generated and was preempted for its seat, nor less than a chunk.
        are_unusable = self.left is not None and self.left < max(len(self._engine.sent_back) + 1, self._engine.chunk)
        return front.zone.wait_reason == "tokens" and bool(self._counts or are_unusable)

    def note_useless(self):
        """Note that tokens were granted that could not be used: blocks are missing, or prompts are cached."""
        self._useless = True

    def compute(self, work, granted):
        """Notes that `granted` tokens of a request are computed."""
        if self._engine.is_in_prompt(work):
            self._load.add_prompt(granted, work.computed)
            self._granted[work.zone] = self._granted.get(work.zone, 0) + granted
        else:
            self._load.add_decode(granted, work.computed)
        work.computed += granted
        if self.left is not None:
            self.left -= granted

    def end_step(self):
        """Checks the invariants of the step, and of all steps before it."""
        if self._engine.step_tokens is None:
            return
        if not self._counts:
            self._nothing_is_left_over({zone for zone in self._engine.queues if zone.wait_reason == "tokens"})
        self._no_zone_is_ahead({work.zone for work in self._withheld if self._engine.is_in_prompt(work)})
        self._no_zone_is_starved()
        if self._load.decodes or self._load.prompt_tokens:
            self._history.arbiter.times.observe(self._load, seconds_of(self._load))

    def _nothing_is_left_over(self, waiting):
        # Requests of several zones may have counted on the same seat, or on the same blocks.
        is_sure = self._engine.is_open and self._engine.free_seats
        is_sure = is_sure and all(zone.wait_reason in (None, "tokens") for zone in self._engine.queues)
        if self.left is not None and self.left >= self._engine.chunk and is_sure and not self._useless:
            assert not waiting, "tokens are left over"
            assert not self._withheld, "tokens are left over"

    def _no_zone_is_ahead(self, busy):
        if self._counts or self._useless:
            busy = set()
        known, self._apart = self._apart, {}
        for first, second in combinations(sorted(busy, key=lambda zone: zone.number), 2):
            least, now, most = known.get((first, second), (0.0, 0.0, 0.0))
            now += self._granted.get(first, 0) / first.spec.weight - self._granted.get(second, 0) / second.spec.weight
            least, most = min(least, now), max(most, now)
            self._history._saw("two zones have more work than their parts")
            assert most - least <= BOUND, f"{first.spec.tenant} and {second.spec.tenant} are apart"
            self._apart[first, second] = least, now, most

    def forget_weights(self):
        """Forgets the leads: the zones' weights have changed."""
        self._apart.clear()

    def _no_zone_is_starved(self):
        known, self._sat_out = self._sat_out, {}
        for work in self._engine.running:
            subject = work.zone if self._engine.is_in_prompt(work) else work
            computed = work.zone in self._granted if subject is work.zone else work not in self._withheld
            if not computed:
                self._sat_out[subject] = max(self._sat_out.get(subject, 0), known.get(subject, 0) + (not self._useless))
                assert self._sat_out[subject] <= SITS_OUT_AT_MOST + len(self._history.requests), f"{work} is starved"


def seconds_of(load):
    """Returns the seconds that a step takes."""
    return BASE + PER_TOKEN * load.prompt_tokens + PER_DECODE * load.decodes
