"""The goals of a GPU run, and whether it met them. To add a goal, append a function to its phase in ``MEASURES``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.gpu.report.figures import (
    SOLO,
    STOCK,
    TARGETS,
    WITH_TARGET,
    ZONES,
    faults_of_arm,
    faults_of_cell,
    first_token_to_solo,
    flood_to_stock,
    pooled,
    reclaim_rows,
    results_of,
    seeds_of,
    throughput_to_stock,
)
from bench.gpu.results import EqualRow, Run
from tenantzone_runtime.zones.tokens.latency_bounds import token_time_bound

RECLAIMED_TOKENS: Final = 36_000
PREEMPTION: Final = "after preemption"
CASES: Final = ("cold", "cached", PREEMPTION, "after tier load")
LARGEST_DIFFERENCE: Final = 0.25
"""Maximum difference of log probabilities, in nats: two bf16 steps between 16 and 32, where the largest logits are."""
SAME_AS_STOCK: Final = "same as stock"
"""Prefix of the columns in groups other than the default that count answers with the same tokens as stock."""
MET: Final = "met"
MISSED: Final = "missed"
NOT_MEASURED: Final = "not measured"
NOT_JUDGED: Final = "not judged: no GPU"
"""Outcome of a goal without a GPU, because all goals are for GPUs."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A goal, with the measurement and outcome in a run.

    Args:
        goal: the goal as text.
        measured: the figure, or the reason why there is no figure.
        outcome: ``met``, ``missed``, or ``not measured`` or ``not judged`` with the reason.
    """

    goal: str
    measured: str
    outcome: str


def at_most(goal: str, limit: float, value: float | None, unit: str = "", faults: Sequence[str] = ()) -> Measure:
    """Returns a measure that is met if the value is at most the limit, and not measured if there are faults."""
    goal = f"{goal}: at most {limit:g}{unit}"
    return _compared(goal, value, unit, faults, met=value is not None and value <= limit)


def at_least(goal: str, limit: float, value: float | None, unit: str = "", faults: Sequence[str] = ()) -> Measure:
    """Returns a measure that is met if the value is at least the limit, and not measured if there are faults."""
    goal = f"{goal}: at least {limit:g}{unit}"
    return _compared(goal, value, unit, faults, met=value is not None and value >= limit)


def _compared(goal: str, value: float | None, unit: str, faults: Sequence[str], *, met: bool) -> Measure:
    measured = "" if value is None else f"{value:.3f}{unit}"
    if faults:
        return Measure(goal, measured, f"{NOT_MEASURED}: {'; '.join(faults)}")
    return Measure(goal, measured, (MET if met else MISSED) if measured else NOT_MEASURED)


def arm_faults(run: Run, *arms: str) -> list[str]:
    """Returns the faults of arms of the noisy-neighbour phase, each with the arm's name."""
    return [f"{arm}: {fault}" for arm in arms for fault in faults_of_arm(run, arm)]


def first_token_with_target(run: Run) -> Measure:
    """Measures the time to first token, during the flood, of tenants with a latency target."""
    value = first_token_to_solo(run, TARGETS, (WITH_TARGET,))
    faults = arm_faults(run, SOLO[TARGETS], TARGETS)
    return at_most("TTFT p99 with a target, to solo", 1.15, value, faults=faults)


def first_token_without_target(run: Run) -> Measure:
    """Measures the time to first token during the flood if no tenant has a latency target."""
    faults = arm_faults(run, SOLO[ZONES], ZONES)
    return at_most("TTFT p99 without a target, to solo", 3.4, first_token_to_solo(run, ZONES), faults=faults)


def token_time_with_target(run: Run) -> Measure:
    """Compares the time between two tokens of tenants with a latency target with the bound that is promised.

    The bound needs the time of the tenant's own prefill. The time to first token without the flood, minus two steps, is
    used for it, because the prefill takes at least that long.
    """
    target = next((seed["target_seconds"] for seed in seeds_of(run, TARGETS)), None)
    times = pooled(run, TARGETS, "token", (WITH_TARGET,))
    solo, first = (pooled(run, SOLO[TARGETS], what) for what in ("token", "first_token"))
    if target is None or times is None or solo is None or first is None:
        return Measure("token p99 with a target", "", NOT_MEASURED)
    bound = token_time_bound(target, solo_step=solo.p50, own_prefill=max(0.0, first.p50 - 2 * solo.p50))
    faults = arm_faults(run, SOLO[TARGETS], TARGETS)
    return at_most("token p99 with a target, the formula", 1000 * bound, 1000 * times.p99, " ms", faults)


def flood_without_target(run: Run) -> Measure:
    """Measures the flood's throughput relative to stock if no tenant has a latency target."""
    faults = arm_faults(run, STOCK, ZONES)
    return at_least("flood's tokens/s without a target, to stock", 0.85, flood_to_stock(run, ZONES), faults=faults)


def flood_with_target(run: Run) -> Measure:
    """Measures the flood's throughput relative to stock while other tenants have a latency target."""
    faults = arm_faults(run, STOCK, TARGETS)
    return at_least("flood's tokens/s with a target, to stock", 0.6, flood_to_stock(run, TARGETS), faults=faults)


def reclaim(run: Run) -> Measure:
    """Measures the slowest first token over all seeds when a tenant reclaims its reservation."""
    slowest = [row["slowest_seconds"] for row in reclaim_rows(run, ZONES) if row["tokens"] == RECLAIMED_TOKENS]
    return at_most(f"reclaim of {RECLAIMED_TOKENS:,} tokens", 0.5, max(slowest, default=None), " s")


def throughput_of_one_zone(run: Run) -> Measure:
    """Measures throughput relative to stock with 1 zone."""
    return _throughput_at_256(run, 1, "1 zone")


def throughput_of_many_tenants(run: Run) -> Measure:
    """Measures throughput relative to stock with 1,000 tenants."""
    return _throughput_at_256(run, 1000, "1,000 tenants")


def _throughput_at_256(run: Run, tenants: int, named: str) -> Measure:
    faults = [f"{engine}: {fault}" for engine in (STOCK, ZONES) for fault in faults_of_cell(run, engine, tenants, 256)]
    value = throughput_to_stock(run, tenants, 256)
    return at_least(f"tokens/s at 256 requests, {named}, to stock", 0.98, value, faults=faults)


def equal_answers(run: Run) -> Measure:
    """Measures whether zones give the same answers as stock in each case."""
    rows = {row["case"]: row for row in results_of(run, "default", "equal").get("rows", ())}
    judged = [(case, *_judged_case(rows.get(case))) for case in CASES]
    outcomes = {outcome for _, _, outcome in judged}
    outcome = next(each for each in (MISSED, NOT_MEASURED, MET) if each in outcomes)
    return Measure(
        "the same answers as stock, in each case", "; ".join(f"{case}: {said}" for case, said, _ in judged), outcome
    )


def further_answers(run: Run) -> Iterable[Measure]:
    """Measures whether zones give the same answers as stock, for each phase outside the default group that compares."""
    for phase in run["phases"]:
        rows = [row for row in phase["results"].get("rows", ()) if row.get("engine") == ZONES]
        columns = dict.fromkeys(name for row in rows for name in row if name.startswith(SAME_AS_STOCK))
        if phase["group"] == "default" or not columns:
            continue
        answers = sum(row["answers"] for row in rows)
        same = {name.removeprefix(SAME_AS_STOCK).strip(", "): sum(row[name] for row in rows) for name in columns}
        said = "; ".join(f"{case}: {count} of {answers}".removeprefix(": ") for case, count in same.items())
        outcome = MET if answers and all(count == answers for count in same.values()) else MISSED
        if phase["status"] != "done":
            outcome = f"{NOT_MEASURED}: {phase['name']}: {phase['status']}"
        yield Measure(f"the same answers as stock, {phase['name']}", said, outcome)


def _judged_case(row: EqualRow | None) -> tuple[str, str]:
    """Returns the measurement in a case of the equality phase, and its outcome."""
    if row is None or not row["answers"] or not row.get("happened", True):
        return NOT_MEASURED, NOT_MEASURED
    said = f"{row['same_tokens']} of {row['answers']}"
    difference = row.get("largest_difference", 0.0)
    if difference > LARGEST_DIFFERENCE:
        return f"{said}, log probabilities {difference:.3g} apart", MISSED
    return said, MET if row["same_tokens"] >= expected_same(row) else MISSED


def expected_same(row: EqualRow) -> int:
    """Returns how many answers must be the same: all of them, except after a preemption.

    After a preemption the engines' batches differ, so zones need only as many equal answers as stock has between
    requests sent alone and requests sent in a batch.
    """
    return row.get("stock_same_tokens", row["answers"]) if row["case"] == PREEMPTION else row["answers"]


def judged(run: Run) -> Iterable[Measure]:
    """Yields all measures. Figures of phases that did not complete, and of runs without a GPU, are not judged."""
    for measure in (*_of_default_group(run), *further_answers(run)):
        if not run["environment"]["card"] and measure.outcome in (MET, MISSED):
            yield replace(measure, outcome=NOT_JUDGED)
        else:
            yield measure


def _of_default_group(run: Run) -> Iterable[Measure]:
    statuses = {phase["name"]: phase["status"] for phase in run["phases"] if phase["group"] == "default"}
    for phase, goals in MEASURES.items():
        status = statuses.get(phase, "done")
        for measure in (goal(run) for goal in goals):
            yield measure if status == "done" else replace(measure, outcome=f"{NOT_MEASURED}: {phase}: {status}")


MEASURES: Final[Mapping[str, tuple[Callable[[Run], Measure], ...]]] = {
    "noisy": (
        first_token_with_target,
        first_token_without_target,
        token_time_with_target,
        flood_without_target,
        flood_with_target,
    ),
    "reclaim": (reclaim,),
    "throughput": (throughput_of_one_zone, throughput_of_many_tenants),
    "equal": (equal_answers,),
}
"""Measures of the default group, by phase."""
