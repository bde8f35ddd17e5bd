"""The content of a scrape, over real HTTP, read back with prometheus_client's parsers and Prometheus' own promtool."""

import subprocess

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from hack.debian import ensure
from tenantzone_contract.reports.report import ConfigStatus, Rejection
from tenantzone_runtime.metrics import families
from tenantzone_runtime.metrics.exposition import choose
from tenantzone_runtime.metrics.family import ZONE_LABELS
from tenantzone_runtime.metrics.protobuf import PROTOBUF_TYPE
from tenantzone_runtime.metrics.text import OPENMETRICS_TYPE, TEXT_TYPE
from tenantzone_runtime.metrics_levels import LEVELS
from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.histogram import BOUNDS
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts
from tests.runtime.scraping import figures, get, in_tier, scrape, scraped, series, tier, zone

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def value(scraped, name, **labels):
    return scraped[f"tenantzone_{name}", frozenset(labels.items())]


def of_acme(scraped, name, **labels):
    return value(scraped, f"zone_{name}", pool="shared", zone="acme-zone", tenant="acme", **labels)


def by(label, scraped, name):
    """The sums of a metric by a label; None: a series does not have it."""
    found = {}
    for (known, labels), number in scraped.items():
        if known == f"tenantzone_{name}":
            found[dict(labels).get(label)] = found.get(dict(labels).get(label), 0) + number
    return found


def test_a_scrape_shows_the_engine():
    reported = scrape()
    engine = {"vllm_version": "0.32.0", "pod": "engine-0", "pool": "shared", "pool_namespace": "team"}
    assert value(reported, "engine_info", **engine) == 1
    assert value(reported, "engine_capacity_blocks") == 255
    assert value(reported, "engine_free_blocks") == 220
    assert value(reported, "engine_block_size_tokens") == 16
    assert value(reported, "engine_start_time_seconds") == 900
    assert value(reported, "report_time_seconds") == 1000
    assert value(reported, "engine_refused_requests_total", reason="unbound") == 1
    assert value(reported, "engine_refused_requests_total", reason="too_long") == 0


def test_a_scrape_shows_the_config():
    reported = scrape()
    assert value(reported, "config_generation") == 5
    assert value(reported, "config_last_reload_successful") == 1
    assert value(reported, "config_last_reload_success_timestamp_seconds") == 990
    assert value(reported, "config_rejected") == 0
    assert value(reported, "config_reloads_total", result="applied") == 5
    assert value(reported, "config_reloads_total", result="rejected") == 2


def test_a_scrape_shows_that_the_newest_config_was_refused():
    refused = ConfigStatus(applied_generation=5, rejected=Rejection(error="zones[0].weight: bad", unix_time=1.0))
    reported = scrape(config=refused)
    assert value(reported, "config_last_reload_successful") == 0
    assert value(reported, "config_rejected") == 1
    assert value(reported, "config_generation") == 5


def test_a_scrape_shows_that_there_is_no_config():
    reported = scrape(config=ConfigStatus(), pool="", pool_namespace="", zones=())
    assert value(reported, "config_generation") == 0
    assert value(reported, "config_last_reload_successful") == 0
    assert value(reported, "config_last_reload_success_timestamp_seconds") == 0
    assert not [name for name, _ in reported if name.startswith("tenantzone_zone_")]


OF_EACH_ZONE = [
    ("blocks_in_use", 10),
    ("blocks_cached", 25),
    ("blocks_reserved", 40),
    ("blocks_limit", 100),
    ("blocks_lent", 5),
    ("blocks_borrowed", 6),
    ("blocks_overdue", 1),
    ("blocks_short", 3),
    ("loans", 2),
    ("waiting_requests", 2),
    ("running_requests", 1),
    ("weight", 8),
    ("priority", -4),
    ("prefix_query_tokens_total", 400),
    ("prefix_hit_tokens_total", 300),
    ("prompt_tokens_total", 500),
    ("generation_tokens_total", 60),
    ("computed_tokens_total", 260),
    ("withheld_tokens_total", 70),
    ("preemptions_total", 4),
    ("taken_blocks_total", 2),
    ("starved_seconds_total", 1.5),
    ("violations_total", 0),
    ("scrubbed_blocks_total", 0),
    ("block_seconds_total", 12.5),
    ("lent_block_seconds_total", 2.5),
    ("borrowed_block_seconds_total", 0.5),
]
"""The metrics without further labels of a zone made by :func:`zone`."""


def test_each_metric_of_a_zone_is_looked_at_here():
    plain = [family.name for family in families("full") if family.labels == ZONE_LABELS and family.type != "histogram"]
    assert sorted(plain) == sorted(f"tenantzone_zone_{name}" for name, _ in OF_EACH_ZONE)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("computed_first", 210), ("recomputed", 90), ("draft_rejected", 30), ("loaded", 16), ("hit", 320)],
)
def test_a_scrape_shows_how_each_zones_tokens_were_processed(kind, expected):
    assert of_acme(scrape(), "processed_tokens_total", kind=kind) == expected


@pytest.mark.parametrize(("name", "expected"), OF_EACH_ZONE)
def test_a_scrape_shows_each_zone(name, expected):
    assert of_acme(scrape(), name) == expected


OF_EACH_ZONE_IN_A_TIER = [
    ("held_bytes", 900),
    ("reserved_bytes", 400),
    ("limit_bytes", 2_000),
    ("loaded_bytes_total", 600),
    ("stored_bytes_total", 1_100),
    ("not_admitted_bytes_total", 300),
    ("byte_seconds_total", 125),
]
"""The same for a zone in a tier, and for tiers."""
OF_EACH_TIER = [
    ("capacity_bytes", 5_000),
    ("held_bytes", 1_700),
    ("chunk_bytes", 100),
    ("failing", 0),
    ("stored_bytes_total", 1_300),
    ("corrupt_chunks_total", 2),
]


def test_each_metric_of_a_tier_is_looked_at_here():
    plain = [family.name for family in families("full") if family.labels in (("tier",), (*ZONE_LABELS, "tier"))]
    known = [f"tenantzone_zone_tier_{name}" for name, _ in OF_EACH_ZONE_IN_A_TIER]
    assert sorted(plain) == sorted([*known, *(f"tenantzone_tier_{name}" for name, _ in OF_EACH_TIER)])


@pytest.mark.parametrize(("name", "expected"), OF_EACH_ZONE_IN_A_TIER)
def test_a_scrape_shows_each_zone_in_each_tier(name, expected):
    assert of_acme(scrape(), f"tier_{name}", tier="disk") == expected


@pytest.mark.parametrize(("name", "expected"), OF_EACH_TIER)
def test_a_scrape_shows_each_tier(name, expected):
    assert value(scrape(), f"tier_{name}", tier="disk") == expected


def test_a_scrape_shows_the_fate_of_chunks_and_leaves_out_what_has_not_happened_except_for_alerts():
    reported = scrape()
    assert value(reported, "tier_refused_chunks_total", tier="disk", reason="room") == 4
    assert value(reported, "tier_refused_chunks_total", tier="disk", reason="reserved") == 0
    assert of_acme(reported, "tier_refused_chunks_total", tier="disk", reason="room") == 2
    assert of_acme(reported, "tier_refused_chunks_total", tier="disk", reason="reserved") == 0
    assert of_acme(reported, "tier_evicted_chunks_total", tier="disk", reason="quiet") == 3
    assert by("reason", reported, "zone_tier_evicted_chunks_total") == {"quiet": 3}
    assert by("reason", reported, "zone_tier_refused_chunks_total") == {"room": 2, "reserved": 0}
    assert by("reason", reported, "zone_tier_lost_chunks_total") == {"corrupt": 1, "late": 5}
    quiet = scrape(zones=(zone(tiers=(in_tier(counts=TierCounts(), evictions={}),)),))
    assert by("reason", quiet, "zone_tier_refused_chunks_total") == {"room": 0, "reserved": 0}
    assert by("reason", quiet, "zone_tier_lost_chunks_total") == {"corrupt": 0}


def test_a_scrape_shows_that_a_tier_fails():
    failing = tier(problem="writes fail: no space left")
    assert value(scrape(tiers=(failing,)), "tier_failing", tier="disk") == 1


def test_an_engine_without_tiers_has_no_series_of_them():
    reported = scrape(tiers=(), zones=(zone(tiers=()),))
    assert not [name for name, labels in reported if "tier" in dict(labels)]


def test_a_scrape_shows_what_has_happened_by_its_labels_and_leaves_out_what_has_not():
    reported = scrape()
    assert by("state", reported, "zone_state") == {"Active": 1}
    assert by("reason", reported, "zone_evicted_blocks_total") == {"own": 7, "quiet": 2}
    assert by("beneficiary", reported, "zone_evicted_blocks_total") == {"self": 7, "higher_priority": 2}
    assert by("outcome", reported, "zone_requests_total") == {"stop": 3, "abort": 1}
    assert by("reason", reported, "zone_stalled_seconds_total") == {"reserved": 1.5}


def test_beneficiaries_of_evictions_are_shown_in_full_only_and_reasons_in_detail():
    lost = {("quiet", "same_priority"): 1, ("quiet", "lower_priority"): 2, ("ttl", "none"): 4}
    zones = (zone(counters=Counters(evictions=lost, requests={"stop": 3, "abort": 1})),)
    detailed = scrape("detailed", zones=zones)
    assert by("reason", detailed, "zone_evicted_blocks_total") == {"quiet": 3, "ttl": 4}
    assert by("beneficiary", detailed, "zone_evicted_blocks_total") == {None: 7}
    basic = scrape("basic", zones=zones)
    assert (of_acme(basic, "evicted_blocks_total"), of_acme(basic, "taken_blocks_total")) == (7, 3)
    assert of_acme(basic, "requests_total") == 4


def test_a_detailed_scrape_shows_durations_as_sum_and_count():
    reported = scrape("detailed")
    assert of_acme(reported, "queue_time_seconds_count") == 5
    assert of_acme(reported, "queue_time_seconds_sum") == pytest.approx(5000.76)
    assert not [name for name, _ in reported if name.endswith("_bucket")]


def test_a_scrape_shows_how_latency_targets_are_met_and_nothing_unknown():
    reported = scrape()
    assert of_acme(reported, "latency_target_seconds", target="tokenTime") == 0.05
    assert of_acme(reported, "latency_target_seconds", target="firstToken") == 0.5
    assert of_acme(reported, "latency_seconds", target="tokenTime") == 0.07
    assert of_acme(reported, "latency_target_met", target="tokenTime") == 0
    names = [(name, dict(labels).get("target")) for name, labels in reported]
    assert ("tenantzone_zone_latency_seconds", "firstToken") not in names
    assert ("tenantzone_zone_latency_target_met", "firstToken") not in names


def test_a_scrape_shows_how_well_steps_were_predicted():
    reported = scrape()
    assert value(reported, "engine_predicted_steps_total") == 100
    assert value(reported, "engine_step_seconds_total") == 2.5
    assert value(reported, "engine_predicted_step_seconds_total") == 2.25
    assert value(reported, "engine_step_prediction_error_seconds_total") == 0.5


def test_a_histogram_counts_what_is_not_above_each_bound():
    reported = scrape()
    name = "queue_time_seconds"
    below = {0.025: 1, 0.05: 3, 0.5: 3, 1.0: 4, 1280.0: 4}
    assert {bound: of_acme(reported, f"{name}_bucket", le=str(bound)) for bound in below} == below
    assert of_acme(reported, f"{name}_bucket", le="+Inf") == of_acme(reported, f"{name}_count") == 5
    assert of_acme(reported, f"{name}_sum") == pytest.approx(5000.76)
    assert len([key for key in reported if key[0] == f"tenantzone_zone_{name}_bucket"]) == len(BOUNDS) + 1


def test_series_of_a_removed_zone_disappear():
    zones = [(zone(), zone(name="burst", tenant="burst")), (zone(),)]
    with scraped(lambda: figures(zones=zones.pop(0))) as url:
        before, after = (series(get(f"{url}/metrics")[2].decode()) for _ in range(2))
    gone = before.keys() - after.keys()
    assert gone == {key for key in before if ("tenant", "burst") in key[1]}
    assert gone
    assert after.keys() < before.keys()


def test_a_zone_that_has_done_nothing_has_the_same_series_by_default_as_one_that_has():
    assert scrape("basic", zones=(zone(counters=Counters()),)).keys() == scrape("basic").keys()


AWKWARD = 'a "quoted" back\\slash\nand a new line'


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("accept", "parse"), [("text/plain", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_both_text_formats_show_every_family_as_it_is_declared_and_any_name(accept, parse, level):
    with scraped(lambda: figures(pool=AWKWARD), level=level) as url:
        text = get(f"{url}/metrics", Accept=accept)[2].decode()
    reported = {family.name: family for family in parse(text)}
    assert len(reported) == len(families(level))
    for declared in families(level):
        family = reported[declared.name.removesuffix("_total").removesuffix("_info" if accept == OPENMETRICS else "")]
        assert family.documentation == declared.help
        assert family.type == ("gauge" if (declared.type, accept) == ("info", "text/plain") else declared.type)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(declared.labels)
            assert sample.labels.get("pool", AWKWARD) == AWKWARD


@pytest.mark.parametrize("level", LEVELS)
def test_promtool_finds_nothing_to_complain_of(level):
    with scraped(level=level) as url:
        text = get(f"{url}/metrics")[2]
    checked = subprocess.run([ensure("promtool"), "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@pytest.mark.parametrize("level", LEVELS)
def test_names_and_units_follow_the_conventions(level):
    for family in families(level):
        assert family.name.startswith("tenantzone_")
        assert family.help.endswith(".")
        assert (family.type == "counter") == family.name.endswith("_total")
        assert (family.type == "info") == family.name.endswith("_info")
        assert family.type not in ("histogram", "summary") or family.name.endswith("_seconds")
    assert len({family.name for family in families(level)}) == len(families(level))


NATIVE = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param("", TEXT_TYPE, id="no wish"),
        pytest.param("*/*", TEXT_TYPE, id="anything"),
        pytest.param("text/html", TEXT_TYPE, id="a browser"),
        pytest.param("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", TEXT_TYPE, id="text"),
        pytest.param(f"{OPENMETRICS},text/plain;q=0.5", OPENMETRICS_TYPE, id="Prometheus"),
        pytest.param(f"{NATIVE},{OPENMETRICS};q=0.8,text/plain;q=0.5", PROTOBUF_TYPE, id="with native histograms"),
        pytest.param(f"{OPENMETRICS};q=0.6,{NATIVE};q=0.5", OPENMETRICS_TYPE, id="protobuf is liked less"),
        pytest.param("application/vnd.google.protobuf,text/plain;q=0.5", TEXT_TYPE, id="another protobuf"),
        pytest.param("text/plain;q=much", TEXT_TYPE, id="no number"),
    ],
)
def test_a_scraper_gets_the_format_that_it_likes_best(accept, expected):
    assert choose(accept) == expected
    with scraped() as url:
        assert get(f"{url}/metrics", Accept=accept)[1] == expected
