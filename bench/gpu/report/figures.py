"""Pure functions that compute the figures of a GPU run: pooled times, mean rates and ratios."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from bench.figures import percentile
from bench.gpu.results import NoisyArm, ReclaimRow, Run, Tenants, ThroughputRow
from bench.gpu.shapes import SHAPES

STOCK: Final = "stock"
ZONES: Final = "zones"
TARGETS: Final = "zones with targets"
SOLO: Final = {STOCK: "solo, stock", ZONES: "solo, zones", TARGETS: "solo, zones"}
"""Arm without the flood on the same engine, by arm with the flood."""
ARMS: Final = (SOLO[STOCK], STOCK, SOLO[ZONES], ZONES, TARGETS)
WITH_TARGET: Final = "target"
KINDS: Final = ("plain", WITH_TARGET)
"""Kinds of measured tenants: tenants without a latency target, and tenants with one."""


@dataclass(frozen=True, slots=True)
class Times:
    """A distribution of times, in seconds.

    Args:
        p50: the median.
        p99: the 99th percentile.
        raw: all measured times; empty if the run kept only the percentiles.
    """

    p50: float
    p99: float
    raw: tuple[float, ...] = ()


def results_of(run: Run, group: str, name: str) -> Mapping[str, Any]:
    """Returns the results of a phase, even if it did not complete; empty if the phase did not run."""
    for phase in run["phases"]:
        if (phase["group"], phase["name"]) == (group, name):
            return phase["results"]
    return {}


def seeds_of(run: Run, arm: str) -> list[NoisyArm]:
    """Returns the results of an arm of the noisy-neighbour phase, one per seed; empty if the arm did not run."""
    return [each for each in results_of(run, "default", "noisy").get("arms", ()) if each["arm"] == arm]


def kinds_of(run: Run, arm: str) -> list[str]:
    """Returns the kinds of tenants that an arm measured."""
    return [kind for kind in KINDS if any(kind in seed["tenants"] for seed in seeds_of(run, arm))]


def pooled(run: Run, arm: str, what: Literal["first_token", "token"], kinds: Sequence[str] = KINDS) -> Times | None:
    """Pool the times of an arm over its seeds and over kinds of tenants.

    Args:
        run: the whole run.
        arm: an arm of the noisy-neighbour phase.
        what: ``first_token`` or ``token``.
        kinds: the kinds of tenants to include.

    Returns:
        The pooled times; None if nothing was measured, or if several results have percentiles but no raw times, because
        percentiles can't be pooled.
    """
    parts = [seed["tenants"][kind] for seed in seeds_of(run, arm) for kind in kinds if kind in seed["tenants"]]
    stated = [part.get(what) for part in parts]
    if len(stated) == 1 and stated[0]:
        return Times(stated[0]["p50"], stated[0]["p99"])
    if any(stated):
        return None
    raw = tuple(each for part in parts for each in _raw(part, what))
    return Times(percentile(raw, 50), percentile(raw, 99), raw) if raw else None


def _raw(tenants: Tenants, what: Literal["first_token", "token"]) -> Sequence[float]:
    if what == "first_token":
        return tenants.get("first_token_seconds", [])
    return tenants.get("token_seconds", [])


def interval_share(run: Run, arm: str, kind: str) -> float | None:
    """Returns the number of measured times between tokens, divided by the number that complete answers should have.

    The share is below 1 if some events carried several tokens. None if the run kept no raw times.
    """
    parts = [seed["tenants"][kind] for seed in seeds_of(run, arm) if kind in seed["tenants"]]
    measured = sum(len(_raw(part, "token")) for part in parts)
    answers = sum(len(_raw(part, "first_token")) for part in parts)
    return ratio(measured, answers * (_answer_tokens(run) - 1))


def _answer_tokens(run: Run) -> int:
    """Returns the length of a measured tenant's answer; models that are no shape had the load of the usual shape."""
    usual = "8b" if run["environment"]["card"] else "nano"
    return SHAPES.get(run["model"]["name"], SHAPES[usual]).load.answer


def faults_of_arm(run: Run, arm: str) -> list[str]:
    """Returns faults that make the figures of an arm unreliable: failed requests, and seeds without tokens."""
    seeds = seeds_of(run, arm)
    parts = [part for seed in seeds for part in seed["tenants"].values()]
    idle = [seed["seed"] for seed in seeds if _is_idle(seed)]
    requests, failed = (sum(part[key] for part in parts) for key in ("requests", "failed"))
    return _faults(f"{failed:,} of {requests:,} requests failed" if failed else "", parts, idle)


def _is_idle(seed: NoisyArm) -> bool:
    """Returns whether a kind of tenants, or the flood, got no tokens."""
    answered = [part["requests"] - part["failed"] for part in seed["tenants"].values()]
    return not all(answered) or (seed["flood"] is not None and not seed["flood"]["tokens_per_second"])


def faults_of_cell(run: Run, engine: str, tenants: int, concurrency: int) -> list[str]:
    """Returns the faults of a cell of the throughput phase, whose rows do not have the number of requests."""
    rows = throughput_rows(run, engine, tenants, concurrency)
    idle = [row["seed"] for row in rows if not row["tokens_per_second"]]
    failed = sum(row["failed"] for row in rows)
    return _faults(f"failed requests: {failed:,}" if failed else "", rows, idle)


def _faults(failed: str, parts: Sequence[Mapping[str, Any]], idle: Sequence[int]) -> list[str]:
    """Returns the faults as text; the first error of each part follows the number of failed requests."""
    errors = dict.fromkeys(error for part in parts for error in part.get("errors", ())[:1])
    reason = f" ({'; '.join(errors)})" if failed and errors else ""
    seeds = f"no tokens with seed {', '.join(map(str, idle))}" if idle else ""
    return [fault for fault in (f"{failed}{reason}", seeds) if fault]


def first_token_to_solo(run: Run, arm: str, kinds: Sequence[str] = KINDS) -> float | None:
    """Returns the p99 of the time to first token with the flood, divided by the same tenants' p99 without the flood.

    Both arms ran on the same engine. If the arm without the flood did not measure these kinds of tenants, all of its
    tenants count.
    """
    if arm not in SOLO:
        return None
    flooded = pooled(run, arm, "first_token", kinds)
    alone = pooled(run, SOLO[arm], "first_token", kinds) or pooled(run, SOLO[arm], "first_token")
    return flooded.p99 / alone.p99 if flooded and alone else None


def flood_rate(run: Run, arm: str) -> float | None:
    """Returns the flood's tokens per second, as the mean over seeds; None if a seed has no rate."""
    return _mean([seed["flood"]["tokens_per_second"] for seed in seeds_of(run, arm) if seed["flood"]])


def flood_to_stock(run: Run, arm: str) -> float | None:
    """Returns the flood's tokens per second in an arm, divided by the flood's tokens per second on stock."""
    return ratio(flood_rate(run, arm), flood_rate(run, STOCK))


def throughput_rows(run: Run, engine: str, tenants: int, concurrency: int) -> list[ThroughputRow]:
    """Returns the rows of a cell of the throughput phase, one per seed."""
    wanted = (engine, tenants, concurrency)
    rows = results_of(run, "default", "throughput").get("rows", ())
    return [row for row in rows if (row["engine"], row["tenants"], row["concurrency"]) == wanted]


def token_rate(run: Run, engine: str, tenants: int, concurrency: int) -> float | None:
    """Returns a throughput cell's tokens per second, as the mean over seeds; None if a seed has no rate."""
    return _mean([row["tokens_per_second"] for row in throughput_rows(run, engine, tenants, concurrency)])


def _mean(rates: Sequence[float]) -> float | None:
    return statistics.fmean(rates) if rates and all(rates) else None


def throughput_to_stock(run: Run, tenants: int, concurrency: int) -> float | None:
    """Returns the tokens per second with zones, divided by the tokens per second of stock."""
    return ratio(*(token_rate(run, engine, tenants, concurrency) for engine in (ZONES, STOCK)))


def cells_of(run: Run) -> list[tuple[int, int]]:
    """Returns the cells of the throughput phase as pairs of tenants and concurrency, in ascending order."""
    rows = results_of(run, "default", "throughput").get("rows", ())
    return sorted({(row["tenants"], row["concurrency"]) for row in rows})


def reclaim_rows(run: Run, engine: str) -> list[ReclaimRow]:
    """Returns the rows of the reclaim phase on an engine, one per seed."""
    return [row for row in results_of(run, "default", "reclaim").get("rows", ()) if row["engine"] == engine]


def busiest_client(rows: Sequence[NoisyArm] | Sequence[ThroughputRow]) -> float | None:
    """Returns the largest share of one core that a load process used; None if the run did not record the shares."""
    return max((row["client_cpu_share"] for row in rows if "client_cpu_share" in row), default=None)


def ratio(value: float | None, reference: float | None) -> float | None:
    """Returns the value divided by the reference; None if either was not measured, or if the reference is 0."""
    return value / reference if value is not None and reference else None
