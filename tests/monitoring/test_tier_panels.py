"""The dashboard's panels about tiers have data if an engine has tiers.

(The end-to-end test runs all other queries of the dashboard; its engine has none.)
"""

import math
from pathlib import Path
from typing import TextIO

from bench.alerts.history import BEGINNING, SCRAPE_SECONDS
from bench.alerts.queries import serving
from hack.monitoring.panels.panel import Panel
from hack.monitoring.panels.tiers import tiers
from tests.runtime.scraping import scrape

VARIABLES = {"$__rate_interval": "2m", "$namespace": ".*", "$pool": ".*", "$zone": ".*"}
SCRAPES = 20
SHARED = {"tenantzone_tier_held_bytes": 7, "tenantzone_tier_capacity_bytes": 0}
"""Metrics of a tier that no engine has a part of."""


class Scraped:
    """Prometheus' data of an engine with a tier after some scrapes. The engine's counters grow with each."""

    def write(self, file: TextIO) -> None:
        reported = scrape("full")
        for name in sorted({name for name, _ in reported if "tier_" in name or name == "tenantzone_engine_info"}):
            is_counter = name.endswith("_total")
            file.write(f"# TYPE {name.removesuffix('_total')} {'counter' if is_counter else 'gauge'}\n")
            for (found, labels), value in reported.items():
                if found == name:
                    pairs = {"namespace": "shop", "pod": "engine-0"} | dict(labels)
                    written = ",".join(f'{label}="{text}"' for label, text in pairs.items())
                    for number in range(SCRAPES):
                        at = BEGINNING + SCRAPE_SECONDS * number
                        file.write(f"{name}{{{written}}} {value * number if is_counter else value} {at:.3f}\n")
                    if name in SHARED:
                        shared = written.replace('tier="disk"', 'tier="shared"')
                        for number in range(SCRAPES):
                            at = BEGINNING + SCRAPE_SECONDS * number
                            file.write(f"{name}{{{shared}}} {SHARED[name]} {at:.3f}\n")
        file.write("# EOF\n")


def test_each_panel_about_tiers_has_data(tmp_path: Path):
    end = BEGINNING + SCRAPE_SECONDS * (SCRAPES - 1)
    last: dict[str, float] = {}
    with serving(Scraped(), tmp_path) as prometheus:
        for panel, expression in _queries():
            found = prometheus.ask(expression, end, end, 15)
            values = [value for series in found.values() for _, value in series]
            assert values, f"{panel.title}: {expression}"
            assert all(map(math.isfinite, values)), f"{panel.title}: {expression}"
            last[panel.title] = values[-1]
    assert last["Tiers in use"] == 1_700 / 5_000
    assert last["Tiers that fail"] == 0


def _queries() -> list[tuple[Panel, str]]:
    queries = []
    for panel in tiers().panels:
        for query in panel.queries:
            expression = query.expression
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            queries.append((panel, expression))
    return queries
