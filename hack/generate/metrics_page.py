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

Four processes export metrics. Names include the unit; names of counters end with `_total`. Except for [some series of
zones](#levels), counters are exported as 0 from the start, so that a rate does not miss the first increment.

| where | what |
|---|---|
| the engine's admin port ($port), `/metrics` | blocks, requests and durations by zone; the config in effect |
| vLLM's own port, `/metrics` | vLLM's own metrics, and the frontend's refusals |
| the operator's `--metrics-port` | pools, and the operator's own work |
| the KV-cache manager's HTTP port, `/metrics` | queries, writes, quotas and storages, by group |

## The engine

The admin port answers in the format that the scraper requests: Prometheus' text format, OpenMetrics or protobuf.
Figures are copied between steps of the scheduler, a hundred zones at a time, so a step waits for at most one such copy.
All figures of one zone are from the same moment, and so are the engine's own. Figures of two zones may be some
milliseconds apart. If a block moves from one zone to the other in between, both zones count it or neither does, so sums
over zones may differ from the capacity by such blocks. The sums of lent and of borrowed blocks are always equal. An
engine that hangs still answers, but with old figures; `tenantzone_report_time_seconds` is their time.

### Levels

`--metrics-level` of `tenantzone-runtime serve`, or `TENANTZONE_METRICS_LEVEL`, sets how many series a zone can have:

| level | what it exports | most series of a zone |
|---|---|---|
| `basic` (default) | what alerts and daily operation need | $basic |
| `detailed` | all counts, by reason, outcome and tier; durations as sum and count | $detailed |
| `full` | also the beneficiaries of evictions, and histograms of durations | $full |

A zone has the most series if it has latency targets and all three tiers, and every kind of event has occurred. At each
level, a zone's series with the label `reason`, `beneficiary`, `outcome`, `kind` or `state` are omitted while they are
0, so a rate misses their first increment. Series that the shipped alerts use exist from the start. With 1,000 zones
that each have all their series, a scrape at the default level is smaller than 2 MB
([measured](measurements.md#a-scrape)).

### Its metrics

A metric that has more labels at a higher level has a row for each level.

$engine

**Labels.** The config determines the values of `pool`, `zone` and `tenant`, and so limits the series. A pool may
register any number of tenants automatically. The first $cap have their own series (`--max-auto-registered-series`); the
figures of all others are added up as `zone="overflow", tenant="overflow"`. Whether a zone is in the overflow is decided
when it is registered, and does not change until the engine forgets the zone or a TenantZone declares it. The overflow's
counters never decrease. When a zone is removed, its series disappear.

**Evictions.** `reason` is the rule by which a cached block was evicted. `beneficiary` says whether the zone that
needed the block has a higher, equal or lower priority than the zone that lost it. These pairs occur:

$evictions

**Outcomes.** $outcomes. `refused` counts requests that were refused on arrival, for example
because they need more blocks than their zone may ever hold. Requests without
a zone count only in `tenantzone_engine_refused_requests_total`.

**Stalls.** `tenantzone_zone_stalled_seconds_total` is like `some` in Linux' pressure stall information: the time in
which the zone had waiting requests, but no blocks or no seat for them. A step decides this only for zones whose next
request it examines. While no seat is free, steps examine no zone; then the time counts as `seats` for each zone that
has waiting requests and was not waiting for blocks before.

**Durations** start when the request arrives in the API server. So they include the transfer to the engine core and the
wait for the step in progress, which vLLM's own queue time omits. The upper bounds of the classic buckets are $bounds
seconds. A Prometheus that requests protobuf (2.40 and later, with `--enable-feature=native-histograms`) gets native
histograms of schema 3 instead, whose buckets are at most 9 % wide.

## The frontend

$frontend

## The operator

$operator

## The KV-cache manager

$manager

The metrics `process_…` come from prometheus_client.
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
