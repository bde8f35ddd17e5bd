"""Measures the cost of scraping an engine's metrics at each level: series per zone, bytes, time, and lock holds.

vLLM's real scheduler runs without a model, with zones whose counters are all non-zero (``lock_holds``). The bench
copies its figures between steps. Then it adds two latency targets and shares of three tiers to each zone, so that each
zone has all possible series, and renders the figures in Prometheus' text format.

The holds of the scheduler's lock do not depend on the level, because rendering does not need the lock. Copying holds
the lock for a hundred zones at a time.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, get_args

from bench.scheduler.lock_holds import Engine
from tenantzone_contract.reports.words import EvictionReason
from tenantzone_contract.zone_config.tiers import SHARED_TIER, TIER_NAMES, AnyTierName
from tenantzone_runtime.metrics.exposition import encode
from tenantzone_runtime.metrics.figures import EngineFigures, TierFigures, ZoneTierFigures
from tenantzone_runtime.metrics_levels import LEVELS, MAX_ZONE_SERIES, Level
from tenantzone_runtime.zones.model.outcomes import TargetName, TargetOutcome
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts, TierTotals, WriteRefusal

MAX_BASIC_BYTES: Final = 2_000_000
"""Maximum size of a scrape at level basic with a thousand zones, in bytes."""
MAX_HOLD_MS: Final = 5.0
CHUNK_BYTES: Final = 2**20
_TIERS: Final[tuple[AnyTierName, ...]] = (*TIER_NAMES, SHARED_TIER)
_OUTCOME: Final = TargetOutcome(0.05, 0.07, met=False, reason="OwnLoad")


def with_all_features(figures: EngineFigures) -> EngineFigures:
    """Returns the figures with latency targets and tiers added to each zone."""
    counts = TierCounts(
        hits=12_345,
        written=123_456,
        refused_writes=dict.fromkeys(get_args(WriteRefusal), 123),
        corrupt=1,
        vanished=1_234,
        write_failures=1_234,
        read_failures=1_234,
        late=1_234,
    )
    evictions = dict.fromkeys(get_args(EvictionReason), 12_345)
    tiers = tuple(ZoneTierFigures(name, CHUNK_BYTES, 100, 200, 150, 1e6, evictions, counts) for name in _TIERS)
    outcomes: dict[TargetName, TargetOutcome] = dict.fromkeys(get_args(TargetName), _OUTCOME)
    return dataclasses.replace(
        figures,
        zones=tuple(zone._replace(outcomes=outcomes, tiers=tiers) for zone in figures.zones),
        tiers=tuple(TierFigures(name, 2**30, 2**29, CHUNK_BYTES, "", TierTotals()) for name in _TIERS),
    )


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Returns the wall-clock time and the thread's CPU time of some work, in seconds."""
    wall, processor = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - wall, time.thread_time() - processor


def main() -> None:
    """Measure, print a table, and fail if a bound is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--turns", type=int, default=60, help="scrapes whose copies are timed (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(options.zones, Path(folder))
        for _ in range(options.turns):
            engine.step()
            figures = engine.figures()
        engine.close()
    holds = [(1000 * wall, 1000 * processor) for wall, processor in engine.lock.holds["figures"]]
    whole = with_all_features(figures)
    print(f"{len(figures.zones):,} zones that have counted all there is, with latency targets and three tiers each\n")
    print(f"{'level':<10}{'series a zone':>14}{'at most':>9}{'bytes':>12}{'rendered in ms':>16}{'processor, ms':>15}")
    sizes = {level: _print(level, whole) for level in LEVELS}
    wall, processor = (sorted(clock) for clock in zip(*holds, strict=True))
    print(f"\nholds of the scheduler's lock by a scrape, {len(holds):,} in {options.turns} scrapes, in ms")
    print(f"on the wall: median {statistics.median(wall):.2f}, longest {wall[-1]:.2f}")
    print(f"processor:   median {statistics.median(processor):.2f}, longest {processor[-1]:.2f}")
    # With few zones, the help texts are most of the size, so the bound does not shrink below a thousand zones.
    if sizes["basic"] > MAX_BASIC_BYTES * max(options.zones, 1000) / 1000 or processor[-1] > MAX_HOLD_MS:
        raise SystemExit(f"more than {MAX_BASIC_BYTES:,} bytes for a thousand zones, or than {MAX_HOLD_MS:g} ms")


def _print(level: Level, figures: EngineFigures) -> int:
    body = b""

    def render() -> None:
        nonlocal body
        body = encode(figures, "text/plain", level)[1]

    wall, processor = min(_seconds(render) for _ in range(3))
    series = sum(b',zone="' in line for line in body.splitlines()) / len(figures.zones)
    print(
        f"{level:<10}{series:>14.1f}{MAX_ZONE_SERIES[level]:>9}{len(body):>12,}{1000 * wall:>16.0f}"
        f"{1000 * processor:>15.0f}"
    )
    return len(body)


if __name__ == "__main__":
    main()
