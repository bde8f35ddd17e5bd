"""An engine's made-up figures, and an admin port that reports them."""

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families

from tenantzone_contract.reports.report import ConfigStatus, EngineReport
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tenantzone_runtime.metrics import EngineFigures, ZoneFigures
from tenantzone_runtime.metrics.figures import StepFigures, TierFigures, ZoneTierFigures
from tenantzone_runtime.metrics_levels import Level
from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.outcomes import TargetOutcome
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts, TierTotals
from tests.reported import SETTINGS

PUBLISHED = 1_000.0


def counters() -> Counters:
    made = Counters(
        prefix_query_tokens=400,
        prefix_hit_tokens=300,
        prompt_tokens=500,
        generation_tokens=60,
        computed_tokens=260,
        computed_first_tokens=210,
        recomputed_tokens=90,
        rejected_draft_tokens=30,
        loaded_tokens=16,
        hit_tokens=320,
        withheld_tokens=70,
        preemptions=4,
        block_seconds=12.5,
        lent_block_seconds=2.5,
        borrowed_block_seconds=0.5,
        evictions={("own", "self"): 7, ("quiet", "higher_priority"): 2},
        requests={"stop": 3, "abort": 1},
        stalled_seconds={"reserved": 1.5},
    )
    for seconds in (0.0, 0.03, 0.03, 0.7, 5000.0):
        made.queue_time.observe(seconds)
    made.time_to_first_token.observe(0.2)
    return made


def in_tier(**fields: object) -> ZoneTierFigures:
    known = {
        "tier": "disk",
        "chunk_bytes": 100,
        "reserved": 4,
        "limit": 20,
        "held": 9,
        "chunk_seconds": 1.25,
        "evictions": {"quiet": 3},
        "counts": TierCounts(hits=6, written=11, not_admitted=3, refused_writes={"room": 2}, corrupt=1, late=5),
    }
    return ZoneTierFigures(**{**known, **fields})


def tier(**fields: object) -> TierFigures:
    known = {
        "tier": "disk",
        "capacity_bytes": 5_000,
        "held_bytes": 1_700,
        "chunk_bytes": 100,
        "problem": "",
        "totals": TierTotals(written=13, corrupt=2, refused_writes={"room": 4}),
    }
    return TierFigures(**{**known, **fields})


def zone(**fields: object) -> ZoneFigures:
    known = {
        "name": "acme-zone",
        "tenant": "acme",
        "in_use": 10,
        "cached": 25,
        "reserved": 40,
        "limit": 100,
        "lent": 5,
        "borrowed": 6,
        "overdue": 1,
        "short": 3,
        "loans": 2,
        "waiting_requests": 2,
        "running_requests": 1,
        "weight": 8,
        "priority": -4,
        "state": "Active",
        "outcomes": {
            "token_time": TargetOutcome(0.05, 0.07, met=False, reason="OwnLoad"),
            "first_token": TargetOutcome(0.5, None, met=None, reason="NoTraffic"),
        },
        "counters": counters(),
        "tiers": (in_tier(),),
    }
    return ZoneFigures(**{**known, **fields})


EVERYBODY = AdminAccess(None)


def figures(**fields: object) -> EngineFigures:
    known = {
        "engine_version": "0.32.0",
        "pod": "engine-0",
        "pool": "shared",
        "pool_namespace": "team",
        "capacity_blocks": 255,
        "free_blocks": 220,
        "block_size_tokens": 16,
        "started_unix_time": 900.0,
        "taken_unix_time": PUBLISHED,
        "config": ConfigStatus(applied_generation=5, applied_hash="sha256:00", applied_unix_time=990.0),
        "reloads": {"applied": 5, "rejected": 2},
        "refusals": {"unbound": 1, "unknown_tenant": 0, "too_long": 0, "unsupported": 0, "queue_full": 0},
        "refused_at_admin_port": 3,
        "steps": StepFigures(steps=100, actual_seconds=2.5, predicted_seconds=2.25, error_seconds=0.5),
        "tiers": (tier(),),
        "zones": (zone(),),
    }
    return EngineFigures(**{**known, **fields})


def report() -> EngineReport:
    return EngineReport(
        engine_version="0.32.0",
        pod="engine-0",
        capacity_blocks=255,
        block_size_tokens=16,
        free_blocks=220,
        config=ConfigStatus(applied_generation=5),
        **SETTINGS,
        started_unix_time=900.0,
        published_unix_time=PUBLISHED,
    )


@contextmanager
def scraped(
    read_figures: Callable[[], EngineFigures] = figures, access: AdminAccess = EVERYBODY, level: Level = "full"
) -> Iterator[str]:
    """The address of an admin port."""
    server = AdminServer(
        "127.0.0.1",
        0,
        report,
        access=access,
        read_figures=read_figures,
        metrics_level=level,
        now=lambda: PUBLISHED,
    )
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def get(url: str, **headers: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
            return response.status, response.headers["Content-Type"], response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(level: Level = "full", **fields: object) -> Series:
    with scraped(lambda: figures(**fields), level=level) as url:
        return series(get(f"{url}/metrics")[2].decode())
