"""Measures how long work outside of steps holds the scheduler's lock, which each step needs.

vLLM's real scheduler runs without a model. Half of the zones have lent their reservations. The other half have borrowed
them and fill the pool with cached blocks, and some of their requests run. Every zone has non-zero values in all
counters. Then steps and housekeeping alternate. Each hold of the lock is timed from acquisition to release, by the wall
clock and as CPU time of its thread, which excludes other load on the machine.

Python's garbage collector runs as in an engine, which freezes the objects that exist after the scheduler was created.
In this bench the zones are created later, so the collector traverses them.
"""

import argparse
import gc
import random
import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from vllm.utils.gc_utils import freeze_gc_heap

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.reports.words import WaitReason
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.housekeeping.report.reporting import make_figures, make_report
from tenantzone_runtime.metrics.figures import EngineFigures
from tenantzone_runtime.zones.audit.events import Event
from tenantzone_runtime.zones.model.counters import EVICTIONS_FOR, Counters, Outcome

CAPACITY = 65_536
RUNNING = 128
PROMPT_BLOCKS = 64
OBSERVATIONS = 200
"""Number of observations that fill a zone's histograms."""
RESERVED = 0.9
"""Fraction of the pool that is reserved."""


class TimedLock:
    """A replacement for the scheduler's lock that times each hold while ``operation`` is set."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.operation = ""
        self.holds: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        """Wall-clock time and CPU time of each hold in seconds, by operation."""
        self.collections: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """Number of garbage collections while the lock was held, by operation and generation."""

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            self._began = time.perf_counter(), time.thread_time()

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self.operation:
            wall, processor = self._began
            self.holds[self.operation].append((time.perf_counter() - wall, time.thread_time() - processor))
        self._lock.release()

    @contextmanager
    def timing(self, operation: str) -> Iterator[None]:
        self.operation = operation
        yield
        self.operation = ""

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Count a garbage collection; used in ``gc.callbacks``."""
        if phase == "start" and self._depth and self.operation:
            self.collections[self.operation][info["generation"]] += 1


class Engine:
    """A scheduler with many zones under load."""

    def __init__(self, zones: int, folder: Path) -> None:
        self._driver = Driver(make_scheduler(vllm_config(folder, sequences=256, max_batched_tokens=8192), CAPACITY))
        self._scheduler = self._driver.scheduler
        self._random = random.Random(zones)
        self._names = [f"tenant-{number}" for number in range(zones)]
        self.lenders, self._borrowers = self._names[: zones // 2], self._names[zones // 2 :]
        self.lock = self._scheduler.zone_lock = TimedLock()
        freeze_gc_heap()
        gc.callbacks.append(self.lock.collected)
        self._times_changed = [0] * zones
        with self.lock.timing("apply_config, all zones new"):
            self._declare()
        self._fill()

    def close(self) -> None:
        gc.callbacks.remove(self.lock.collected)

    @property
    def loans(self) -> int:
        return sum(1 for _ in self._scheduler.tenancy.loans)

    def figures(self) -> EngineFigures:
        """Returns the figures for a scrape, which are copied under the timed lock."""
        with self.lock.timing("figures"):
            return make_figures(self._driver.served, ConfigStatus(), {}, pod="bench", started_unix_time=0.0)

    def step(self) -> None:
        """Run one step."""
        self._keep_running()
        self._driver.step()

    def turn(self, number: int) -> None:
        """Run one step and all housekeeping."""
        self.step()
        with self.lock.timing("let_time_pass"):
            self._scheduler.let_time_pass()
        with self.lock.timing("notes for the journal"), self.lock:
            self._scheduler.tenancy.ledger.trail.take()
        with self.lock.timing("report"):
            make_report(self._driver.served, ConfigStatus(), pod="bench", started_unix_time=0.0)
        self.figures()
        if number % 10 == 0:
            with self.lock.timing("usage for the journal"):
                self._tell_usage()
            with self.lock.timing("apply_config, one zone changed"):
                self._declare(change=1)
        if number % 20 == 0:
            with self.lock.timing("apply_config, all zones changed"):
                self._declare(change=len(self._names))

    def _tell_usage(self) -> None:
        usage = self._scheduler.tenancy.usage_in_slices()
        events: Iterator[Event] | None = iter(())
        while events is not None:
            with self.lock:
                events = next(usage, None)

    def _declare(self, change: int = 0) -> None:
        """Give the engine a config that changes the configured number of zones."""
        for number in range(change):
            self._times_changed[number] += 1
        share = int(CAPACITY * RESERVED) // len(self.lenders)

        def zone(number: int, name: str) -> ZoneConfig:
            is_lender = number < len(self.lenders)
            evict_after = 3600.0 + self._times_changed[number]
            idle = Idle(after_seconds=0.0 if is_lender else 3600.0, evict_after_seconds=evict_after)
            return ZoneConfig(name=name, tenant=name, generation=1, reserved=share if is_lender else 0, idle=idle)

        self._driver.declare(*(zone(number, name) for number, name in enumerate(self._names)))

    def _fill(self) -> None:
        for name in self.lenders:
            self._driver.send(name, prompt(1))
        self._finish()
        # Now the lenders are idle, so they lend.
        self._scheduler.let_time_pass()
        for number in range(CAPACITY // PROMPT_BLOCKS):
            self._driver.send(self._borrowers[number % len(self._borrowers)], prompt(PROMPT_BLOCKS))
        for name in self._borrowers:
            self._driver.send(name, prompt(8))
        self._finish()
        for zone in self._scheduler.tenancy.ledger.zones.values():
            self._count(zone.counters)
        self._keep_running()
        self._driver.step()
        self._scheduler.let_time_pass()

    def _finish(self) -> None:
        while self._scheduler.has_unfinished_requests():
            self._driver.step()
        self._driver.finished.clear()

    def _keep_running(self) -> None:
        while len(self._scheduler.requests) < RUNNING:
            answer = self._random.randrange(50, 200)
            self._driver.send(self._random.choice(self._borrowers), prompt(4), max_tokens=answer)

    def _count(self, counters: Counters) -> None:
        """Set all counters of a zone to values as after some days."""
        draw = self._random
        for reason, beneficiaries in EVICTIONS_FOR.items():
            for beneficiary in beneficiaries:
                counters.evictions[reason, beneficiary] = draw.randrange(1, 1_000_000)
        for outcome in get_args(Outcome):
            counters.requests[outcome] = draw.randrange(1, 1_000_000)
        for reason in get_args(WaitReason):
            counters.stalled_seconds[reason] = draw.random() * 10_000
        for histogram in (counters.queue_time, counters.time_to_first_token):
            for _ in range(OBSERVATIONS):
                histogram.observe(draw.lognormvariate(-2.0, 1.5))


def main() -> None:
    """Time the holds of the scheduler's lock with each number of zones, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, nargs="+", default=[1000, 5000], help="(default: 1000 5000)")
    parser.add_argument("--turns", type=int, default=200, help="timed turns with each (default: %(default)s)")
    options = parser.parse_args()
    for zones in options.zones:
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(zones, Path(folder))
            for number in range(options.turns):
                engine.turn(number)
            _print(zones, engine)
            engine.close()


def _print(zones: int, engine: Engine) -> None:
    print(f"\n{zones:,} zones, {engine.loans:,} loans")
    clock = f"{'median':>9}{'p99':>8}{'longest':>9}"
    print(f"{'':<31}{'':>7}{'on the wall, ms':>26}{'processor, ms':>26}{'collections':>14}")
    print(f"{'':<31}{'holds':>7}{clock}{clock}{'0/1/2':>14}")
    for operation, holds in sorted(engine.lock.holds.items()):
        runs = engine.lock.collections[operation]
        wall, processor = (sorted(1000 * hold[clock] for hold in holds) for clock in (0, 1))
        print(f"{operation:<31}{len(holds):>7,}{_row(wall)}{_row(processor)}{f'{runs[0]}/{runs[1]}/{runs[2]}':>14}")


def _row(times: list[float]) -> str:
    return f"{statistics.median(times):>9.2f}{times[int(len(times) * 0.99)]:>8.2f}{times[-1]:>9.2f}"


if __name__ == "__main__":
    main()
