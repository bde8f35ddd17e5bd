"""Writes docs/metrics.md, the reference of all metrics, from what the code declares.

Run it after a change of a metric's name, labels or help: make metrics-page
"""

from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any, get_args

from tenantzone_contract.reports.report import DEFAULT_ADMIN_PORT
from tenantzone_manager.metrics import Metrics
from tenantzone_operator.serving import exposition as operator
from tenantzone_runtime.frontend.responses import refusals as frontend
from tenantzone_runtime.metrics.families import ALL_FAMILIES
from tenantzone_runtime.metrics_levels import LEVELS, MAX_ZONE_SERIES
from tenantzone_runtime.settings import DEFAULT_MAX_AUTO_REGISTERED_SERIES
from tenantzone_runtime.zones.model.counters import EVICTIONS_FOR, Outcome
from tenantzone_runtime.zones.model.histogram import BOUNDS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

_PAGE = Template("""\
# Metrics

<!-- Written by `make metrics-page` from what the code declares. Do not edit by hand. -->

Four processes export metrics. A counter's name ends with `_total`; units are in the names; a counter
is there with 0 from the start, so that a rate has something to rise from, but for zones' series [by label](#levels).

| where | what |
|---|---|
| the engine's admin port ($port), `/metrics` | blocks, requests and durations by zone; the config in force |
| vLLM's own port, `/metrics` | vLLM's own metrics, and what the frontend refuses |
| the operator's `--metrics-port` | pools, and the operator's own work |
| the KV-cache manager's HTTP port, `/metrics` | queries, writes, quotas and storages, by group |

## The engine

The admin port answers in Prometheus' text format, in OpenMetrics and in protobuf, as the scraper asks. One scrape is
one snapshot: the numbers are copied between steps of the scheduler, a hundred zones at a time, and no step waits for
more than that. All numbers of one zone are of one moment, and so are those of the engine. Two zones may be of moments
some milliseconds apart: a block that changed hands in between is counted with both or with neither, so that sums over
zones may differ from the capacity by that much. What zones have lent adds up to what zones have borrowed. An engine
that hangs still answers, with numbers that grow old: `tenantzone_report_time_seconds` says from when they are.

### Levels

`--metrics-level` of `tenantzone-runtime serve`, or `TENANTZONE_METRICS_LEVEL`, bounds the series of each zone:

| level | | series of a zone, at most |
|---|---|---|
| `basic` (default) | what alerts and everyday questions need | $basic |
| `detailed` | all that is counted, by reason, outcome and tier; durations as sum and count | $detailed |
| `full` | whom evictions were for, and histograms of durations, too | $full |

The bounds are those of a zone with latency targets and all three tiers, in which all that is counted has happened. At
each level zeros by `reason`, `beneficiary`, `outcome`, `kind` and `state` of a zone are left out; a rate misses the
increment with which such a series appears. What the shipped alerts ask for is there from the start at each level. With
1,000 zones that each have all their series, a scrape of the default level is below 2 MB
([measured](measurements.md#a-scrape)).

### Its metrics

A metric that has more labels at a higher level has a row for each level.

$engine

**Labels.** `pool`, `zone` and `tenant` bound the series by the config. A pool may register tenants automatically, in
any number: the first $cap of them have series of their own (`--max-auto-registered-series`), and all others are added
up in one zone, `zone="overflow", tenant="overflow"`. Which zone is in it is decided when the zone is registered, and
stays so until it is forgotten or declared by a TenantZone. The overflow's counters never decrease. The series of a zone
that is removed disappear.

**Evictions.** `reason` says by which rule a cached block was evicted, and `beneficiary` for whom, by priority against
the zone that lost it. These pairs occur:

$evictions

**Outcomes.** $outcomes.
`refused` counts requests that are larger than a zone may ever hold; requests for which no zone is found are in
`tenantzone_engine_refused_requests_total` only.

**Stalls.** `tenantzone_zone_stalled_seconds_total` is like `some` in Linux' pressure stall information: time in which
the zone had something to do and no blocks, or no seat, to do it with. Each step says it anew of the zones whose next
request it looks at. While no seat is free no zone is looked at; then the time counts as `seats` for all that wait and
were not denied their blocks before.

**Durations** begin with vLLM's arrival time of the request, in the API server: the way to the engine core and the wait
for the step that was under way are a part of them, which vLLM's own queue time leaves out. The classic buckets end at
$bounds seconds. To a Prometheus that
asks for protobuf (2.40 and later, with `--enable-feature=native-histograms`) the same metrics are native histograms of
schema 3, whose buckets are no more than 9 % wide.

## The frontend

$frontend

## The operator

$operator

## The KV-cache manager

$manager

`process_…` are those of prometheus_client.
""")


def page() -> str:
    """The page's content."""
    return _PAGE.substitute(
        port=DEFAULT_ADMIN_PORT,
        cap=DEFAULT_MAX_AUTO_REGISTERED_SERIES,
        basic=MAX_ZONE_SERIES["basic"],
        detailed=MAX_ZONE_SERIES["detailed"],
        full=MAX_ZONE_SERIES["full"],
        engine=_table(ALL_FAMILIES, levels=True),
        evictions="\n".join(
            ["| reason | beneficiary |", "|---|---|"]
            + [f"| `{reason}` | {_code(beneficiaries)} |" for reason, beneficiaries in EVICTIONS_FOR.items()]
        ),
        outcomes=_code(get_args(Outcome)),
        bounds=", ".join(f"{bound:g}" for bound in BOUNDS),
        frontend=_table(frontend.families()),
        operator=_table(operator.families()),
        manager=_table(Metrics().families),
    )


def _table(families: Iterable[Any], *, levels: bool = False) -> str:
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    if levels:
        lines = ["| metric | type | labels | level | meaning |", "|---|---|---|---|---|"]
    for family in families:
        text = family.help.replace("|", r"\|")
        level = f" {'all' if family.levels == LEVELS else ', '.join(family.levels)} |" if levels else ""
        lines.append(f"| `{family.name}` | {family.type} | {_code(family.labels)} |{level} {text} |")
    return "\n".join(lines)


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    PAGE.write_text(page())
