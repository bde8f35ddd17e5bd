"""Records the engine's metrics over simulated time, in a file that Prometheus can import."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TextIO

from bench.simulator.request import BLOCK_TOKENS
from bench.simulator.simulation import Simulation
from tenantzone_runtime.zones.model.zone import Zone

SCRAPE_SECONDS = 15.0
BEGINNING = 1_700_000_000
"""Unix time of the simulation's start."""

_ENGINE = 'namespace="simulator",pod="engine-0"'


class History:
    """Records the metrics that the engine's admin port would have at each scrape.

    Args:
        simulation: the scraped engine, which is run step by step.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._samples: defaultdict[str, list[str]] = defaultdict(list)
        self._due = 0.0

    def note(self) -> None:
        """Scrape the metrics if a scrape is due; to be called after each step."""
        if self._simulation.engine.now >= self._due:
            self._due += SCRAPE_SECONDS
            self._scrape()

    def write(self, file: TextIO) -> None:
        """Write the samples in the OpenMetrics format, one metric after the other as it requires."""
        for name, lines in self._samples.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            file.write(f"# TYPE {name.removesuffix('_total')} {kind}\n")
            file.writelines(lines)
        file.write("# EOF\n")

    def _scrape(self) -> None:
        engine = self._simulation.engine
        self._add("tenantzone_engine_capacity_blocks", _ENGINE, engine.model.capacity)
        self._add("tenantzone_engine_block_size_tokens", _ENGINE, BLOCK_TOKENS)
        for zone in engine.ledger.zones.values():
            engine.tenancy.count(zone)
            labels = f'{_ENGINE},pool="pool",zone="{zone.spec.name}",tenant="{zone.spec.tenant}"'
            for name, value in _values(zone):
                self._add(f"tenantzone_zone_{name}", labels, value)

    def _add(self, name: str, labels: str, value: float) -> None:
        at = BEGINNING + self._simulation.engine.now
        self._samples[name].append(f"{name}{{{labels}}} {value} {at:.3f}\n")


def _values(zone: Zone) -> Iterator[tuple[str, float]]:
    quota, counters = zone.spec.quota, zone.counters
    yield "blocks_in_use", zone.in_use
    yield "blocks_cached", len(zone.cached)
    yield "blocks_reserved", quota.reserved
    yield "blocks_limit", quota.limit
    yield "blocks_overdue", zone.overdue
    yield "blocks_short", zone.short
    yield "taken_blocks_total", counters.taken_blocks
    yield "starved_seconds_total", counters.starved_seconds
    yield "prefix_query_tokens_total", counters.prefix_query_tokens
    yield "prefix_hit_tokens_total", counters.prefix_hit_tokens
    yield "violations_total", counters.violations
    yield "scrubbed_blocks_total", counters.scrubbed_blocks
