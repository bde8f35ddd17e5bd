"""Measures the load and the duration of each step of the engine while a zone has a latency target."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from tenantzone_contract.zone_config.config import ConfigError, RuntimeConfig
from tenantzone_runtime.engine.blocks.requests import state_of, zone_of
from tenantzone_runtime.zones.model.step_time import StepLoad
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.schedule.arbiter import Arbiter

JUDGE_SECONDS: Final = 1.0
"""Interval in seconds at which latency targets are evaluated."""


def check_latency(config: RuntimeConfig, *, chunked: bool) -> None:
    """Check that latency targets can be enforced.

    Raises:
        ConfigError: a zone has a target, but the engine runs without chunked prefill, so a step may take any time.
    """
    for index, zone in enumerate(config.zones):
        targets = zone.latency
        if not chunked and (targets.token_time_seconds is not None or targets.first_token_seconds is not None):
            raise ConfigError(
                f"zones[{index}].latency: targets need chunked prefill; start the engine without "
                "--no-enable-chunked-prefill, or unset spec.latency"
            )


class StepWatch:
    """Reports step durations and token times to the zone core. Does nothing if no zone has targets.

    Args:
        scheduler: the scheduler whose steps are watched.
        arbiter: receives the reports.
    """

    def __init__(self, scheduler: Scheduler, arbiter: Arbiter[Request]) -> None:
        self._scheduler = scheduler
        self._arbiter = arbiter
        self._targets = scheduler.tenancy.ledger.totals.with_targets
        self._judged = 0.0

    def scheduled(self, output: SchedulerOutput, now: float) -> None:
        """Record a scheduled step."""
        if self._targets and output.num_scheduled_tokens:
            self._arbiter.dispatched(output, self._load(output), now)

    def completed(self, output: SchedulerOutput, first_tokens: Iterable[tuple[Zone, float]], now: float) -> None:
        """Record a completed step.

        Args:
            output: the scheduler's output for the step.
            first_tokens: for each request that got its first token, its zone and the time to first token in seconds.
            now: the monotonic time in seconds.
        """
        steps = self._arbiter.steps_in_flight
        if not self._targets:
            steps.clear()
        steps.complete(output, now, is_busy=bool(self._scheduler.running))
        if self._targets:
            for zone, seconds in first_tokens:
                if zone in self._targets:
                    self._arbiter.latency.first_token_came(zone, seconds, now)
            self._note_tokens(output, now)

    def judge(self, now: float) -> Iterator[None]:
        """Evaluate the latency targets, at most once per ``JUDGE_SECONDS``. Any state may change during a pause."""
        if now - self._judged >= JUDGE_SECONDS:
            self._judged = now
            yield from self._arbiter.latency.judge(now)

    def _load(self, output: SchedulerOutput) -> StepLoad:
        load = StepLoad()
        for id, tokens in output.num_scheduled_tokens.items():
            request = self._scheduler.requests[id]
            computed = request.num_computed_tokens - tokens
            if computed < request.num_prompt_tokens:
                load.add_prompt(tokens, computed)
            else:
                load.add_decode(tokens, computed)
        return load

    def _note_tokens(self, output: SchedulerOutput, now: float) -> None:
        # Counts equal intervals together, because most tokens of a step have the same interval to the previous token.
        tokens: Counter[tuple[Zone, float]] = Counter()
        for id in output.num_scheduled_tokens:
            request = self._scheduler.requests.get(id)
            zone = None if request is None else zone_of(request)
            if zone is None or zone not in self._targets or not request.num_output_tokens:
                continue
            state = state_of(request)
            came, known, spec = state.last_token
            if request.num_output_tokens > known:
                # If the spec has changed, the zone may have had no target meanwhile, and earlier tokens were not noted.
                if spec is zone.spec:
                    tokens[zone, now - came] += 1
                state.last_token = now, request.num_output_tokens, zone.spec
        for (zone, seconds), times in tokens.items():
            self._arbiter.latency.tokens_came(zone, seconds, now, times)
