"""What ``doctor`` finds wrong with pools, their configs, engines and zones. All pure."""

import base64
import gzip
import io
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tenantzone_cli.doctor.diagnosis import diagnose
from tenantzone_cli.doctor.facts import is_served, needed_rights
from tenantzone_cli.doctor.finding import Finding, Level, name_some
from tenantzone_cli.doctor.shipped import Right
from tenantzone_cli.live import EngineAnswer
from tenantzone_contract.reports.report import ApiServerReport, Rejection
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_contract.zone_config.packing import PackedHead
from tests.cli.healthy import (
    BROKEN,
    CONFIG,
    CONFIG_SUBJECT,
    ENGINES,
    FORBIDDEN,
    HEALTHY,
    KEY,
    MISSING,
    NOW,
    POOL,
    config_map,
    heard,
    pod,
    pool,
    troubles,
    zone,
)
from tests.cli.reports import answer


def with_api_servers(*lags: tuple[str, ...], missing: int = 0) -> EngineAnswer:
    """The answer of an engine whose API server processes, numbered from 1, differ in ``lags``."""
    found = heard()
    assert found.report is not None
    processes = tuple(ApiServerReport(process=number, lags=each) for number, each in enumerate(lags, start=1))
    return replace(found, report=structs.replace(found.report, api_servers=processes, missing_api_servers=missing))


def refused(reason: str) -> list[dict[str, str]]:
    """The conditions of a zone that is not accepted."""
    return [{"type": "Accepted", "status": "False", "reason": reason}, {"type": "Ready", "status": "False"}]


SALT_NOT_SHARED = {
    "type": "SaltNotShared",
    "status": "True",
    "reason": "SaltKeysDiffer",
    "message": "engines have different keys: engine-0 has 01, engine-1 has 02",
}

OVERLAPS = {
    "type": "SelectorOverlaps",
    "status": "True",
    "reason": "PodsSelectedTwice",
    "message": "engine-0: selected by this pool and by ZonePool old, which is older and owns them",
}

NOT_SERVED = pool(
    conditions=[
        {
            "type": "Accepted",
            "status": "False",
            "reason": "PoolNotServed",
            "message": "this pool is not served: the pool's pods can't be listed",
        }
    ]
)

NOT_SECURED = {
    "type": "AdminPortNotSecured",
    "status": "True",
    "reason": "AdminPortOpen",
    "message": "any client of their admin ports can read the usage of all tenants: engine-0",
}


NO_TIER = {
    "type": "TiersEnforced",
    "status": "False",
    "reason": "TierMissing",
    "message": "engine-0 has no tier cpu; start it with the connector",
}


def packed(at_least: int) -> dict[str, Any]:
    """A ConfigMap with a compressed config of at least that many bytes, mostly of a well-compressing file name."""
    head = PackedHead(generation=CONFIG.generation, hash=CONFIG.hash).model_dump_json(by_alias=True)
    content = io.BytesIO()
    with gzip.GzipFile(filename="x" * at_least, mode="wb", fileobj=content) as file:
        file.write(CONFIG.pool.text.encode())
    return config_map(head, binaryData={"config.jsonl.gz": base64.b64encode(content.getvalue()).decode()})


@pytest.mark.parametrize(
    ("change", "level", "subject", "said"),
    [
        # Pools.
        pytest.param({"pools": [], "configs": {}, "pods": {}}, "WARN", "pools", "no ZonePool in", id="no pool"),
        pytest.param({"pools": BROKEN}, "FAIL", "pools", "can't be listed: broken", id="pools that can't be listed"),
        pytest.param(
            {"pools": [pool(observedGeneration=None)]}, "FAIL", POOL, "no operator has handled", id="a pool not seen"
        ),
        pytest.param({"pools": [pool(generation=2)]}, "WARN", POOL, "generation 1 of 2", id="a pool not seen again"),
        pytest.param({"pools": [pool("False")]}, "FAIL", POOL, "watermarks: no", id="a pool that is refused"),
        pytest.param(
            {"pools": [pool(conditions=[*pool().status["conditions"], SALT_NOT_SHARED])]},
            "WARN",
            "salt key shop/demo",
            "engines have different keys: engine-0 has 01, engine-1 has 02",
            id="engines with different salt keys",
        ),
        pytest.param(
            {"pools": [pool(conditions=[*pool().status["conditions"], NOT_SECURED])]},
            "WARN",
            "admin port shop/demo",
            "can read the usage of all tenants: engine-0",
            id="engines with an open admin port",
        ),
        pytest.param(
            {"pools": [pool(conditions=[*pool().status["conditions"], NO_TIER])]},
            "WARN",
            "tiers shop/demo",
            "engine-0 has no tier cpu",
            id="engines without a tier",
        ),
        pytest.param(
            {"pools": [pool(conditions=[*pool().status["conditions"], OVERLAPS])], "pods": {KEY: []}, "answers": []},
            "WARN",
            "selector shop/demo",
            "selected by this pool and by ZonePool old",
            id="a pool whose pods an older pool has",
        ),
        pytest.param(
            {"pools": [NOT_SERVED], "configs": {KEY: FORBIDDEN}, "pods": {KEY: []}, "answers": []},
            "WARN",
            POOL,
            "this pool is not served: the pool's pods can't be listed",
            id="a pool that the operator has no rights for",
        ),
        # Configs.
        pytest.param({"configs": {KEY: MISSING}}, "FAIL", CONFIG_SUBJECT, "no ConfigMap", id="no config"),
        pytest.param({"configs": {KEY: BROKEN}}, "WARN", CONFIG_SUBJECT, "can't be read", id="a broken answer"),
        pytest.param(
            {"configs": {KEY: config_map(dump_config(CONFIG).replace('"low":0', '"low":1'))}},
            "FAIL",
            CONFIG_SUBJECT,
            "engines keep their previous config",
            id="an edited config",
        ),
        pytest.param(
            {"pools": [pool(configHash="sha256:old")]},
            "WARN",
            CONFIG_SUBJECT,
            "has the hash of another",
            id="a late status",
        ),
        pytest.param(
            {"configs": {KEY: packed(800_000)}},
            "WARN",
            CONFIG_SUBJECT,
            "zones are refused if the config would exceed 878 KiB",
            id="a config that is almost too large",
        ),
        pytest.param(
            {"configs": {KEY: config_map(packed(0)["data"]["config.json"])}},
            "FAIL",
            CONFIG_SUBJECT,
            "config.jsonl.gz is missing",
            id="a config without its content",
        ),
        # Engines.
        pytest.param({"pods": {KEY: []}}, "WARN", ENGINES, "no pod has the labels app=vllm", id="no engine"),
        pytest.param({"pods": {KEY: BROKEN}}, "WARN", ENGINES, "can't be listed: broken", id="unlisted engines"),
        pytest.param(
            {"pods": {KEY: [pod(trouble="Pending")]}}, "WARN", ENGINES, "not ready (Pending): engine-0", id="unready"
        ),
        pytest.param(
            {"pods": {KEY: [pod(reported="sha256:old")]}}, "WARN", ENGINES, "not annotated with the newest", id="untold"
        ),
        pytest.param(
            {"answers": [answer(None, error="refused")]},
            "WARN",
            ENGINES,
            "did not answer (refused): engine-0",
            id="a silent engine",
        ),
        pytest.param(
            {"answers": [heard(rejected=Rejection(error="zones[0]: no", unix_time=0.0))]},
            "FAIL",
            ENGINES,
            "refuses the newest config (zones[0]: no): engine-0",
            id="an engine that refuses",
        ),
        pytest.param(
            {"answers": [heard(rejected=Rejection(error="no signature", untrusted=True, unix_time=0.0))]},
            "FAIL",
            ENGINES,
            "does not trust the config that it finds (no signature): engine-0",
            id="an engine that does not trust the config",
        ),
        pytest.param(
            {"answers": [heard(demands_signature=False)]},
            "WARN",
            ENGINES,
            "accept configs that the operator did not sign: engine-0",
            id="an engine that demands no signature",
        ),
        pytest.param(
            {"answers": [heard(applied_hash="sha256:old", applied_generation=2)]},
            "WARN",
            ENGINES,
            "has generation 2, not the newest",
            id="an engine that is late",
        ),
        pytest.param(
            {"answers": [heard(applied_hash=None, applied_generation=None)]},
            "WARN",
            ENGINES,
            "has no config, not the newest",
            id="an engine without a config",
        ),
        pytest.param(
            {"answers": [with_api_servers((), ("silent", "a\nnew one"))]},
            "FAIL",
            ENGINES,
            "API server process 2 does not report what the engine core enforces (silent, a new one): engine-0",
            id="an API server process that says nothing",
        ),
        pytest.param(
            {"answers": [with_api_servers((), missing=2)]},
            "FAIL",
            ENGINES,
            "number of API server processes that do not report their config: 2: engine-0",
            id="API server processes that never said anything",
        ),
        pytest.param(
            {"answers": [heard(published=NOW - 60)]}, "FAIL", ENGINES, "report is 60s old", id="an engine that hangs"
        ),
        pytest.param(
            {"answers": [heard(published=NOW + 60)]}, "WARN", ENGINES, "clock is 60s ahead", id="an engine ahead"
        ),
        pytest.param(
            {"pools": [pool(enginesAcknowledged=0)]}, "WARN", ENGINES, "0 of 1 have acknowledged", id="no ack"
        ),
        # Zones.
        pytest.param({"zones": BROKEN}, "FAIL", "zones", "can't be listed: broken", id="zones that can't be listed"),
        pytest.param(
            {"zones": [zone(), zone("burst", "False")]}, "WARN", "zones", "1 of 2 are not Ready: burst", id="not Ready"
        ),
        pytest.param(
            {"zones": [zone(), zone("burst", conditions=refused("TenantConflict"))]},
            "FAIL",
            "zones",
            "1 of 2 are not accepted, so they are not enforced: burst (TenantConflict)",
            id="refused",
        ),
        pytest.param(
            {"zones": [zone(), zone("burst", conditions=refused("PoolNotServed"))]},
            "WARN",
            "zones",
            "1 of 2 are not accepted, so they are not enforced: burst (PoolNotServed)",
            id="of a pool that the operator has no rights for",
        ),
        pytest.param(
            {"zones": [zone(), zone("burst", conditions=refused("Deleting"))]},
            "WARN",
            "zones",
            "1 of 2 are not Ready: burst",
            id="being deleted",
        ),
        pytest.param(
            {"zones": [zone(), zone("burst", conditions=[*zone().status["conditions"], NO_TIER])]},
            "WARN",
            "zones",
            "1 do not have their reservations in tiers: burst",
            id="a zone without its share of a tier",
        ),
        pytest.param(
            {"zones": [zone(generation=2)]}, "WARN", "zones", "not seen the current generation of acme", id="not seen"
        ),
    ],
)
def test_one_thing_that_is_wrong_is_found_and_nothing_else(change: dict[str, Any], level: str, subject: str, said: str):
    (finding,) = troubles(**change)

    assert (finding.level, finding.subject) == (level, subject)
    assert said in finding.message


def test_a_refused_zone_hides_no_other_zone_and_no_zone_is_called_ready():
    unready = zone("burst", "False")
    refusal = zone("burst", conditions=refused("TenantConflict"))

    found = diagnose(replace(HEALTHY, zones=[refusal, replace(unready, namespace="lab")]))
    assert [(each.level, each.message) for each in found if each.subject == "zones"] == [
        (Level.FAIL, "1 of 2 are not accepted, so they are not enforced: burst (TenantConflict)"),
        (Level.WARN, "1 of 2 are not Ready: burst"),
    ]
    found = diagnose(replace(HEALTHY, zones=[zone(), refusal]))
    assert [each.level for each in found if each.subject == "zones"] == [Level.FAIL]


def test_tiers_that_are_enforced_are_reported():
    reported = {"type": "TiersEnforced", "status": "True", "reason": "Enforced", "message": "1 engine have the tiers"}
    facts = replace(HEALTHY, pools=[pool(conditions=[*pool().status["conditions"], reported])])

    assert Finding(Level.OK, "tiers shop/demo", "1 engine have the tiers") in diagnose(facts)
    assert not [found for found in diagnose(HEALTHY) if found.subject.startswith("tiers")]


def test_a_young_pool_is_given_time():
    young = replace(pool(observedGeneration=None), created=NOW - 5)

    assert troubles(pools=[young]) == [
        Finding(Level.WARN, POOL, "no operator has handled the pool for 5s", "check that the operator runs")
    ]


def test_engines_with_the_same_trouble_share_a_line():
    pods = [pod(f"engine-{index}", "Pending") for index in range(8)]

    (finding,) = troubles(pods={KEY: pods}, answers=[])

    assert finding.subject == ENGINES
    assert finding.message == "not ready (Pending): " + name_some([entry.name for entry in pods])
    assert finding.message.endswith("engine-4 and 3 more")


def test_no_rights_are_asked_for_a_pool_that_the_operator_does_not_serve():
    rights = [Right("", "pods", "list"), Right("", "configmaps", "get")]

    assert [is_served(each) for each in (pool(), NOT_SERVED)] == [True, False]
    needed = needed_rights(rights, filter(is_served, [NOT_SERVED]), "shop", "tenantzone-system")
    assert list(needed) == []
