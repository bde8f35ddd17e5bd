"""A run: sends a load to an engine, with config changes and restarts in between."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.simulator.checks import Checks, Violation
from bench.simulator.configs import ConfigDraw, draw_population
from bench.simulator.engine import Engine, Model
from bench.simulator.inspection import Inspection
from bench.simulator.liveness import Liveness
from bench.simulator.load import LONGEST_ANSWER, LONGEST_PROMPT, GeneratedLoad
from bench.simulator.request import BLOCK_TOKENS, Request
from bench.simulator.summary import Summary
from bench.simulator.trace import replay
from tenantzone_contract.zone_config.config import EvictionPolicy, RuntimeConfig
from tenantzone_contract.zone_config.fitting import grants
from tenantzone_runtime.zones.audit.events import RefusalReason

UPKEEP_SECONDS = 0.1
_RECONNECT_SECONDS = 1.0
_TRACE_LONGEST_REQUEST = 126_195 + 2_000
_GENERATED_LONGEST_REQUEST = LONGEST_PROMPT + LONGEST_ANSWER


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a run; equal plans give equal runs."""

    requests: int = 100_000
    tenants: int = 200
    seed: int = 1
    trace: bool = False
    lending: bool = True
    eviction_policy: EvictionPolicy | None = None
    """Eviction policy of all zones; if None, each zone draws its own."""
    speed: float = 1.0
    model: Model = field(default_factory=Model)
    full_check_every: int = 500
    """Number of steps between two full checks."""

    @property
    def largest_request(self) -> int:
        """Size of the largest request, in blocks."""
        longest = _TRACE_LONGEST_REQUEST if self.trace else _GENERATED_LONGEST_REQUEST
        return -(-longest // BLOCK_TOKENS)


class Simulation:
    """A run of a plan; each restart replaces the engine.

    Args:
        plan: the parameters of the run.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        tenants = [f"tenant-{number}" for number in range(plan.tenants)]
        population = draw_population(plan.seed, tenants)
        self.checks = Checks()
        self.inspection = Inspection(self.checks, plan.full_check_every)
        self.liveness = Liveness()
        self.engine = Engine(plan.model, 0.0, self.checks)
        self.summary = Summary(population, self.inspection)
        self.submitted = 0
        self._load = self._make_load(tenants, population.sleepers)
        self._next = next(self._load, None)
        self._resubmitted: list[Request] = []
        self._configs = ConfigDraw(
            plan.seed,
            population,
            capacity=plan.model.capacity,
            largest_request=plan.largest_request,
            lending=plan.lending,
            eviction_policy=plan.eviction_policy,
        )
        self._config = self._configs.next()
        self.engine.apply(self._config)
        self._events = self._schedule()
        self._upkeep_due = 0.0
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Digest of all events, in order."""
        return self._digest.hexdigest()[:16]

    def run(self) -> Iterator[None]:
        """Run to the end; yields after each step, so that the caller can show progress.

        Raises:
            Violation: an invariant does not hold; the message has seed, step, time and the state of the zones.
        """
        try:
            while self._next is not None or self._resubmitted or not self.engine.is_idle:
                self._turn()
                yield
            self.inspection.full(self.engine)
            self.summary.note_events(self.engine)
            self.summary.check_that_all_ended(self.submitted)
        except (Violation, AssertionError) as error:
            raise Violation(self._describe(error)) from error

    def _turn(self) -> None:
        engine = self.engine
        if engine.now >= self._upkeep_due:
            engine.upkeep()
            self._upkeep_due = engine.now + UPKEEP_SECONDS
        self._send_what_is_due()
        if engine is not self.engine:
            return
        engine.schedule()
        self.inspection.after_schedule(engine)
        elapsed = engine.compute()
        self.inspection.after_step(engine)
        for request in engine.failed:
            self._refuse(request, "too_long")
        for request in engine.finished:
            self.summary.finished(request, engine.now + elapsed)
            self._note(f"{request.number} {engine.now!r} {request.hit_tokens} {request.preemptions}")
        self.liveness.after_step(engine, elapsed, is_load_over=self._next is None and not self._resubmitted)
        engine.now += elapsed or UPKEEP_SECONDS
        if self.inspection.steps % 100 == 0:
            self.summary.note_events(engine)

    def _make_load(self, tenants: list[str], sleepers: list[str]) -> Iterator[Request]:
        plan = self.plan
        if plan.trace:
            return replay(plan.requests, tenants, plan.speed)
        return GeneratedLoad(plan.seed, tenants, sleepers, plan.speed).requests(plan.requests)

    def _schedule(self) -> dict[int, str]:
        """Returns the name of the event that precedes a request, by the request's number."""
        names = ["reload", "overcommitted", "reload", "reject", "reload", "restart", "reload", "reload"]
        every = self.plan.requests / (len(names) + 1)
        return {int(every * (index + 1)): name for index, name in enumerate(names)}

    def _send_what_is_due(self) -> None:
        now = self.engine.now
        while self._resubmitted and self._resubmitted[0].arrival <= now:
            self._submit(self._resubmitted.pop(0))
        while self._next is not None and self._next.arrival <= now:
            event = self._events.pop(self._next.number, None)
            if event is not None:
                self._happen(event)
            self._submit(self._next)
            self.submitted += 1
            self._next = next(self._load, None)

    def _submit(self, request: Request) -> None:
        reason = self.engine.submit(request)
        if reason is not None:
            self.engine.ledger.trail.refused(None, reason)
            self._refuse(request, reason)

    def _refuse(self, request: Request, reason: RefusalReason) -> None:
        self.summary.refused(reason)
        self._note(f"{request.number} {reason}")

    def _happen(self, event: str) -> None:
        self._note(event)
        if event == "restart":
            self._restart()
        elif event == "overcommitted":
            self._apply_overcommitted(self._configs.overcommitted(self._config))
        else:
            self._config = self._configs.next(unknown_tenants=event != "reject")
            self.engine.apply(self._config)
        self.summary.happened(event)

    def _apply_overcommitted(self, config: RuntimeConfig) -> None:
        """Check I8 with a config for which the engine is too small, then apply the previous config again.

        The engine must enforce the reservations that fit, in the config's order, each fully or not at all.
        """
        self.engine.apply(config)
        held = zip(config.zones, grants(config.zones, self.plan.model.capacity), strict=True)
        expected = {zone.tenant: grant.reserved for zone, grant in held}
        zones = self.engine.ledger.zones
        if any(zones[tenant].spec.quota.reserved != reserved for tenant, reserved in expected.items()):
            raise Violation("I8: of a config that the engine is too small for, something else is in force than fits")
        self.engine.apply(self._config)

    def _restart(self) -> None:
        """Replace the engine by a new one; clients send unanswered requests again."""
        old = self.engine
        self.summary.note_events(old)
        self.inspection.forget()
        for request in sorted([*old.running, *old.waiting], key=lambda each: each.number):
            request.forget_progress()
            request.arrival = old.now + _RECONNECT_SECONDS
            self._resubmitted.append(request)
        self.engine = Engine(self.plan.model, old.now, self.checks)
        self.engine.apply(self._config)

    def _note(self, text: str) -> None:
        self._digest.update(text.encode() + b"\n")

    def _describe(self, error: AssertionError) -> str:
        engine, plan = self.engine, self.plan
        lines = [
            f"{error}",
            f"seed {plan.seed}, {'trace' if plan.trace else 'generated load'}, lending {plan.lending}, "
            f"{plan.tenants} tenants; step {self.inspection.steps}, {engine.now:.1f} s, {self.submitted} requests sent",
            f"{len(engine.pool.free)} of {plan.model.capacity} blocks free, {len(engine.running)} requests running, "
            f"{len(engine.waiting)} waiting",
            f"{'zone':<14}{'priority':>9}{'reserved':>9}{'lendable':>9}{'limit':>7}{'in use':>7}{'cached':>7}"
            f"{'requests':>9}{'quiet':>7}{'leaving':>8}",
        ]
        by_held = sorted(engine.ledger.zones.values(), key=lambda zone: -zone.held)
        for zone in by_held[:25]:
            spec = zone.spec
            lines.append(
                f"{spec.tenant:<14}{spec.priority:>9}{spec.quota.reserved:>9}{spec.quota.lendable:>9}"
                f"{spec.quota.limit:>7}{zone.in_use:>7}{len(zone.cached):>7}{zone.requests:>9}"
                f"{zone.quiet!s:>7}{zone.leaving!s:>8}"
            )
        return "\n".join(lines)
