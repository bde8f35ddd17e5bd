"""The summary of a run, with counts that do not depend on the machine."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.simulator.checks import Violation
from bench.simulator.configs import CLASSES, Population
from bench.simulator.engine import Engine
from bench.simulator.inspection import Inspection
from bench.simulator.request import Request
from tenantzone_contract.reports.words import WaitReason
from tenantzone_runtime.zones.audit.events import Evicted, Lent, Preempted, Repaid


@dataclass(slots=True)
class ClassTotals:
    """The totals of the zones of one class."""

    requests: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    seconds_waited: float = 0.0

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / max(1, self.prompt_tokens)

    @property
    def mean_wait(self) -> float:
        return self.seconds_waited / max(1, self.requests)


class Summary:
    """Adds up the results of all engines of a run.

    Args:
        population: the class of each tenant.
        inspection: counts steps, and measures fairness.
    """

    def __init__(self, population: Population, inspection: Inspection) -> None:
        self.classes: defaultdict[str, ClassTotals] = defaultdict(ClassTotals)
        self.refusals: Counter[str] = Counter()
        self.evictions: Counter[str] = Counter()
        self.preemptions: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.loans = self.lent_blocks = self.repaid_overdue = 0
        self.simulated_seconds = 0.0
        self._class_of = population.class_of
        self._inspection = inspection

    @property
    def ended(self) -> int:
        return sum(totals.requests for totals in self.classes.values())

    @property
    def overall(self) -> ClassTotals:
        """Returns the totals of all zones."""
        every = self.classes.values()
        return ClassTotals(
            requests=sum(each.requests for each in every),
            prompt_tokens=sum(each.prompt_tokens for each in every),
            hit_tokens=sum(each.hit_tokens for each in every),
            seconds_waited=sum(each.seconds_waited for each in every),
        )

    @property
    def waits(self) -> Counter[WaitReason]:
        """Number of steps in which a zone's next request waited for blocks, by reason."""
        return self._inspection.waits

    def finished(self, request: Request, now: float) -> None:
        """Count a request that has generated all its tokens."""
        assert request.admitted is not None
        totals = self.classes[self._class_of[request.tenant]]
        totals.requests += 1
        totals.prompt_tokens += request.prompt_tokens
        totals.hit_tokens += request.hit_tokens
        totals.seconds_waited += request.admitted - request.arrival
        self.simulated_seconds = now

    def refused(self, reason: str) -> None:
        self.refusals[reason] += 1

    def happened(self, event: str) -> None:
        self.events[event] += 1

    def note_events(self, engine: Engine) -> None:
        """Count the events that the core has recorded."""
        for event in engine.ledger.trail.collect():
            if isinstance(event, Evicted):
                self.evictions[event.reason] += event.blocks
            elif isinstance(event, Preempted):
                self.preemptions[event.reason] += event.requests
            elif isinstance(event, Lent):
                self.loans += 1
                self.lent_blocks += event.blocks
            elif isinstance(event, Repaid) and event.overdue:
                self.repaid_overdue += event.blocks

    def check_that_all_ended(self, submitted: int) -> None:
        """Check that no request is lost.

        Raises:
            Violation: a request neither ended nor was refused.
        """
        if self.ended + self.refusals.total() != submitted:
            raise Violation(
                f"lost: {submitted} requests were sent, {self.ended} ended, {self.refusals.total()} refused"
            )

    def lines(self) -> list[str]:
        """Returns the summary as readable lines."""
        fairness = self._inspection.fairness
        loans = f"{self.loans:,} of {self.lent_blocks:,} blocks, {self.repaid_overdue:,} repaid overdue"
        gap, zones = fairness.largest_gap, fairness.max_competing
        lines = [
            f"{self.ended:,} requests ended, refused: {_counts(self.refusals)}; "
            f"{self._inspection.steps:,} steps, {self.simulated_seconds:,.0f} simulated seconds",
            f"happened: {_counts(self.events)}",
            "",
            f"{'zones':<20}{'requests':>10}{'hit rate':>10}{'mean wait':>12}",
        ]
        for name in CLASSES:
            lines.append(_row(name, self.classes[name]))
        lines.append(_row("all", self.overall))
        return [
            *lines,
            "",
            f"evicted blocks:       {_counts(self.evictions)}",
            f"loans:                {loans}",
            f"preempted requests:   {_counts(self.preemptions)}",
            f"zones waited, in steps: {_counts(self.waits)}",
            f"difference in service: {2 * gap:,.0f} at most over any time, between up to {zones} zones that compete; "
            f"bound {fairness.bound:,.0f}",
        ]


def _row(name: str, totals: ClassTotals) -> str:
    return f"{name:<20}{totals.requests:>10,}{totals.hit_rate:>10.1%}{totals.mean_wait:>10.2f} s"


def _counts(counter: Mapping[Any, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counter.items())) or "none"
