"""The goals of a GPU run, and whether it met them. To add a goal, append a function to ``MEASURES``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.gpu.figures import (
    SOLO,
    TARGETS,
    WITH_TARGET,
    ZONES,
    first_token_to_solo,
    flood_to_stock,
    pooled,
    reclaim_rows,
    results_of,
    seeds_of,
    throughput_to_stock,
)
from bench.gpu.results import EqualRow, Run
from tenantzone_runtime.zones.latency_bounds import token_time_bound

RECLAIMED_TOKENS: Final = 36_000
CASES: Final = ("cold", "cached", "after preemption", "after tier load")
NOT_MEASURED: Final = "not measured"


@dataclass(frozen=True, slots=True)
class Measure:
    """A goal and what a run says about it.

    Args:
        goal: what should hold.
        measured: the figure, or why there is none.
        outcome: ``met``, ``missed`` or ``not measured``.
    """

    goal: str
    measured: str
    outcome: str


def at_most(goal: str, limit: float, value: float | None, unit: str = "") -> Measure:
    """A measure that is met by any value up to the limit."""
    return _compared(f"{goal}: at most {limit:g}{unit}", value, unit, met=value is not None and value <= limit)


def at_least(goal: str, limit: float, value: float | None, unit: str = "") -> Measure:
    """A measure that is met by the limit and any value above."""
    return _compared(f"{goal}: at least {limit:g}{unit}", value, unit, met=value is not None and value >= limit)


def _compared(goal: str, value: float | None, unit: str, *, met: bool) -> Measure:
    if value is None:
        return Measure(goal, "", NOT_MEASURED)
    return Measure(goal, f"{value:.3f}{unit}", "met" if met else "missed")


def first_token_with_target(run: Run) -> Measure:
    """The time to first token of tenants with a latency target, during the flood."""
    value = first_token_to_solo(run, TARGETS, (WITH_TARGET,))
    return at_most("TTFT p99 with a target, to solo", 1.15, value)


def first_token_without_target(run: Run) -> Measure:
    """The time to first token during the flood where no tenant has a latency target."""
    return at_most("TTFT p99 without a target, to solo", 3.4, first_token_to_solo(run, ZONES))


def token_time_with_target(run: Run) -> Measure:
    """The time between two tokens of tenants with a latency target, against the promised formula.

    The median time to first token without the flood stands for the own prefill, which is shorter than it.
    """
    target = next((seed["target_seconds"] for seed in seeds_of(run, TARGETS)), None)
    times = pooled(run, TARGETS, "token", (WITH_TARGET,))
    solo, first = (pooled(run, SOLO[TARGETS], what) for what in ("token", "first_token"))
    if target is None or times is None or solo is None or first is None:
        return Measure("token p99 with a target", "", NOT_MEASURED)
    bound = token_time_bound(target, solo_step=solo.p50, own_prefill=first.p50)
    return at_most("token p99 with a target, the formula", 1000 * bound, 1000 * times.p99, " ms")


def flood_without_target(run: Run) -> Measure:
    """What the flood keeps of its throughput on stock where no tenant has a latency target."""
    return at_least("flood's tokens/s without a target, to stock", 0.85, flood_to_stock(run, ZONES))


def flood_with_target(run: Run) -> Measure:
    """What the flood keeps of its throughput on stock while other tenants have a latency target."""
    return at_least("flood's tokens/s with a target, to stock", 0.6, flood_to_stock(run, TARGETS))


def reclaim(run: Run) -> Measure:
    """The slowest first token of all seeds, when a tenant reclaims its reservation."""
    slowest = [row["slowest_seconds"] for row in reclaim_rows(run, ZONES) if row["tokens"] == RECLAIMED_TOKENS]
    return at_most(f"reclaim of {RECLAIMED_TOKENS:,} tokens", 0.5, max(slowest, default=None), " s")


def throughput_of_one_zone(run: Run) -> Measure:
    """Throughput against stock with 1 zone."""
    return at_least("tokens/s at 256 requests, 1 zone, to stock", 0.98, throughput_to_stock(run, 1, 256))


def throughput_of_many_tenants(run: Run) -> Measure:
    """Throughput against stock with 1,000 tenants."""
    return at_least("tokens/s at 256 requests, 1,000 tenants, to stock", 0.98, throughput_to_stock(run, 1000, 256))


def equal_answers(run: Run) -> Measure:
    """Whether zones answer as stock does, as often as stock agrees with itself, in each case."""
    rows = {row["case"]: row for row in results_of(run, "default", "equal").get("rows", ()) if row["answers"]}
    missing = [case for case in CASES if case not in rows]
    different = [case for case, row in rows.items() if row["same_tokens"] < expected_same(row)]
    said = [f"{case}: {row['same_tokens']} of {row['answers']}" for case, row in rows.items()]
    outcome = "missed" if different else NOT_MEASURED if missing else "met"
    measured = "; ".join(said + [f"{case}: {NOT_MEASURED}" for case in missing])
    return Measure("the same answers as stock, in each case", measured, outcome)


def expected_same(row: EqualRow) -> int:
    """How many answers must be the same: as many as stock gives equally alone and in a batch, if the run knows it."""
    return row.get("stock_same_tokens", row["answers"])


MEASURES: Final[tuple[Callable[[Run], Measure], ...]] = (
    first_token_with_target,
    first_token_without_target,
    token_time_with_target,
    flood_without_target,
    flood_with_target,
    reclaim,
    throughput_of_one_zone,
    throughput_of_many_tenants,
    equal_answers,
)
