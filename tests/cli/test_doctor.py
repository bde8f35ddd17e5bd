"""What ``doctor`` finds, of facts that are healthy but for one thing. All pure."""

import base64
import gzip
import io
from dataclasses import replace
from typing import Any

import pytest

from tenantzone_cli.doctor.diagnosis import diagnose
from tenantzone_cli.doctor.facts import (
    CONFIG_RIGHT,
    PODS_RIGHT,
    POOLS_RIGHT,
    REPORTS_RIGHT,
    ZONES_RIGHT,
    Clock,
    needed_rights,
)
from tenantzone_cli.doctor.finding import Finding, Level, lines, name_some
from tenantzone_cli.doctor.shipped import Right
from tenantzone_contract.config_text import dump_config
from tenantzone_contract.packing import PackedHead
from tenantzone_contract.report import Rejection
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
    SHIPPED,
    config_map,
    definition,
    deployment,
    heard,
    lease,
    pod,
    pool,
    schema_of_zones,
    zone,
)
from tests.cli.reports import answer


def definitions(zones: Any) -> dict[str, Any]:
    return {**HEALTHY.definitions, "tenantzones.tenantzone.io": zones}


def without_grace() -> dict[str, Any]:
    schema = schema_of_zones()
    del schema["properties"]["spec"]["properties"]["lending"]["properties"]["grace"]
    return schema


def with_another_minimum() -> dict[str, Any]:
    schema = schema_of_zones()
    schema["properties"]["spec"]["properties"]["weight"]["minimum"] = 0
    return schema


def packed(at_least: int) -> dict[str, Any]:
    """A ConfigMap with a compressed config of so many bytes. Most are a file's name, which gzip has room for."""
    head = PackedHead(generation=CONFIG.generation, hash=CONFIG.hash).model_dump_json(by_alias=True)
    content = io.BytesIO()
    with gzip.GzipFile(filename="x" * at_least, mode="wb", fileobj=content) as file:
        file.write(CONFIG.pool.text.encode())
    return config_map(head, binaryData={"config.jsonl.gz": base64.b64encode(content.getvalue()).decode()})


def test_nothing_is_wrong_with_a_healthy_set_up():
    findings = diagnose(HEALTHY)

    assert [finding for finding in findings if finding.level is not Level.OK] == []
    assert [(finding.subject, finding.message) for finding in findings] == [
        ("API server", "answers, v1.36.3"),
        ("clock", "this machine's is within 5s of the API server's"),
        ("CRD tenantzones", "installed, v1alpha1, as this version ships it"),
        ("CRD zonepools", "installed, v1alpha1, as this version ships it"),
        ("your rights", "you may read all that there is to check in namespace shop"),
        ("operator", "2 of 2 pods are ready"),
        ("leader", "operator-0, renewed 2s ago"),
        ("operator's rights", f"all {len(SHIPPED.rights)} that it uses are granted"),
        (POOL, "100 blocks in the smallest engine; 1 zones accepted, 0 rejected"),
        (CONFIG_SUBJECT, "generation 3, 0 zones, 0 KiB, written 3m ago"),
        (ENGINES, "1 ready, all have acknowledged the config; 1 answered just now"),
        ("zones", "all 1 are Ready"),
    ]


def test_rights_of_a_service_account_that_no_leader_needs_are_no_failure():
    without_rights = replace(HEALTHY, deployment=MISSING, operator_rights=dict.fromkeys(SHIPPED.rights, False))
    unled = replace(without_rights, lease=lease(holderIdentity=""))

    levels = [
        {finding.subject: finding.level for finding in diagnose(facts)}["operator's rights"]
        for facts in (without_rights, unled)
    ]

    assert levels == [Level.WARN, Level.FAIL]


def test_what_is_not_known_yet_is_not_made_up():
    unsized = replace(HEALTHY, namespace=None, pools=[pool(capacityBlocks=None)])
    unsized = replace(unsized, configs={KEY: config_map() | {"metadata": {}}})

    messages = {finding.subject: finding.message for finding in diagnose(unsized)}

    assert messages["your rights"].endswith("in all namespaces")
    assert messages[POOL].startswith("size not known yet")
    assert messages[CONFIG_SUBJECT].endswith("written an unknown time ago")


@pytest.mark.parametrize(
    ("change", "level", "subject", "said"),
    [
        # The clock.
        pytest.param({"clock": Clock(NOW, NOW + 9, NOW + 9)}, "WARN", "clock", "8s ahead of", id="our clock is ahead"),
        pytest.param({"clock": Clock(NOW, NOW - 9, NOW - 8)}, "WARN", "clock", "8s behind", id="our clock is behind"),
        pytest.param(
            {"clock": Clock(None, NOW, NOW)}, "WARN", "clock", "does not say", id="a server that does not say the time"
        ),
        # The CRDs.
        pytest.param({"definitions": definitions(MISSING)}, "FAIL", "CRD tenantzones", "is not installed", id="no CRD"),
        pytest.param(
            {"definitions": definitions(definition(schema_of_zones(), established="False"))},
            "FAIL",
            "CRD tenantzones",
            "not established",
            id="a CRD that is not established",
        ),
        pytest.param(
            {"definitions": definitions(definition(schema_of_zones(), version="v1"))},
            "FAIL",
            "CRD tenantzones",
            "does not serve version v1alpha1",
            id="a CRD without our version",
        ),
        pytest.param(
            {"definitions": definitions(definition(without_grace()))},
            "FAIL",
            "CRD tenantzones",
            "it lacks spec.lending.grace",
            id="an older CRD",
        ),
        pytest.param(
            {"definitions": definitions(definition(with_another_minimum()))},
            "WARN",
            "CRD tenantzones",
            "at spec.weight.minimum",
            id="another CRD",
        ),
        pytest.param(
            {"definitions": definitions(FORBIDDEN)}, "WARN", "CRD tenantzones", "not compared", id="no right to CRDs"
        ),
        pytest.param(
            {"definitions": definitions(FORBIDDEN), "served": MISSING},
            "FAIL",
            "CRD tenantzones",
            "serves no tenantzone.io/v1alpha1",
            id="no right to CRDs, and nothing is served",
        ),
        pytest.param(
            {"definitions": definitions(FORBIDDEN), "served": {"resources": [{"name": "zonepools"}]}},
            "FAIL",
            "CRD tenantzones",
            "is not installed",
            id="no right to CRDs, and one kind is served",
        ),
        # Rights.
        pytest.param(
            {"user_rights": {ZONES_RIGHT: False}}, "FAIL", "your rights", "may not list tenantzones", id="a blind user"
        ),
        pytest.param({"user_rights": {POOLS_RIGHT: False}}, "WARN", "your rights", "list zonepools", id="no pools"),
        pytest.param({"user_rights": {PODS_RIGHT: False}}, "WARN", "your rights", "list pods", id="no pods"),
        pytest.param({"user_rights": {REPORTS_RIGHT: False}}, "WARN", "your rights", "pods/proxy", id="no reports"),
        pytest.param({"user_rights": {CONFIG_RIGHT: False}}, "WARN", "your rights", "get configmaps", id="no configs"),
        pytest.param(
            {"operator_rights": dict.fromkeys(SHIPPED.rights, False)},
            "FAIL",
            "operator's rights",
            "may not list tenantzones.tenantzone.io",
            id="an operator without rights",
        ),
        pytest.param(
            {"operator_rights": dict.fromkeys(SHIPPED.rights, FORBIDDEN)},
            "WARN",
            "operator's rights",
            "were not checked: no",
            id="no right to review rights",
        ),
        # The operator.
        pytest.param(
            {"deployment": MISSING, "lease": MISSING}, "FAIL", "operator", "there is no Deployment", id="no operator"
        ),
        pytest.param(
            {"deployment": MISSING},
            "WARN",
            "operator",
            "leads as a process, without a Deployment",
            id="a process that leads",
        ),
        pytest.param({"deployment": FORBIDDEN}, "WARN", "operator", "can't be looked at: no", id="a hidden operator"),
        pytest.param({"deployment": deployment(0, 0)}, "FAIL", "operator", "scaled to 0", id="an operator put away"),
        pytest.param({"deployment": deployment(2, 1)}, "WARN", "operator", "1 of 2 pods", id="half an operator"),
        pytest.param(
            {"deployment": deployment(1, 0), "operator_pods": [pod("operator-0", "ImagePullBackOff")]},
            "FAIL",
            "operator",
            "(operator-0: ImagePullBackOff)",
            id="an operator that does not start",
        ),
        pytest.param(
            {"deployment": MISSING, "lease": lease(holderIdentity=None)},
            "FAIL",
            "operator",
            "there is no Deployment",
            id="an operator that was removed",
        ),
        pytest.param(
            {"lease": lease(renewTime=None)}, "FAIL", "leader", "no operator leads", id="a Lease never renewed"
        ),
        pytest.param({"lease": MISSING}, "FAIL", "leader", "no operator has led yet", id="no Lease"),
        pytest.param({"lease": FORBIDDEN}, "WARN", "leader", "can't be read: no", id="a hidden Lease"),
        pytest.param({"lease": lease(holderIdentity="")}, "FAIL", "leader", "no operator leads", id="no leader"),
        pytest.param(
            {"lease": lease(renewTime="2026-01-01T00:59:30.000000Z")},
            "FAIL",
            "leader",
            "operator-0 has not renewed the Lease for 30s; it lasts 15s",
            id="a leader that is gone",
        ),
        # Pools.
        pytest.param({"pools": [], "configs": {}, "pods": {}}, "WARN", "pools", "no ZonePool in", id="no pool"),
        pytest.param({"pools": BROKEN}, "FAIL", "pools", "can't be listed: broken", id="pools that can't be listed"),
        pytest.param(
            {"pools": [pool(observedGeneration=None)]}, "FAIL", POOL, "no operator has looked", id="a pool not seen"
        ),
        pytest.param({"pools": [pool(generation=2)]}, "WARN", POOL, "generation 1 of 2", id="a pool not seen again"),
        pytest.param({"pools": [pool("False")]}, "FAIL", POOL, "watermarks: no", id="a pool that is refused"),
        # Configs.
        pytest.param({"configs": {KEY: MISSING}}, "FAIL", CONFIG_SUBJECT, "no ConfigMap", id="no config"),
        pytest.param({"configs": {KEY: BROKEN}}, "WARN", CONFIG_SUBJECT, "can't be read", id="a broken answer"),
        pytest.param(
            {"configs": {KEY: config_map(dump_config(CONFIG).replace('"low":0', '"low":1'))}},
            "FAIL",
            CONFIG_SUBJECT,
            "engines keep the one before",
            id="an edited config",
        ),
        pytest.param(
            {"pools": [pool(configHash="sha256:old")]}, "WARN", CONFIG_SUBJECT, "names another", id="a late status"
        ),
        pytest.param(
            {"configs": {KEY: packed(800_000)}},
            "WARN",
            CONFIG_SUBJECT,
            "above 878 KiB are not accepted",
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
        pytest.param({"pods": {KEY: [pod(told="sha256:old")]}}, "WARN", ENGINES, "not told of the newest", id="untold"),
        pytest.param(
            {"answers": [answer(None, error="refused")]},
            "WARN",
            ENGINES,
            "can't be asked (refused): engine-0",
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
            {"zones": [zone(generation=2)]}, "WARN", "zones", "not seen the present generation of acme", id="not seen"
        ),
    ],
)
def test_one_thing_that_is_wrong_is_found_and_nothing_else(change: dict[str, Any], level: str, subject: str, said: str):
    found = [finding for finding in diagnose(replace(HEALTHY, **change)) if finding.level is not Level.OK]

    (finding,) = [finding for finding in found if finding.subject == subject]
    assert finding.level == level
    assert said in finding.message
    # A missing operator is one without a leader, too.
    assert {finding.subject for finding in found} - {subject} <= ({"leader"} if "lease" in change else set())


@pytest.mark.parametrize("change", [{"zones": FORBIDDEN}, {"pools": FORBIDDEN}, {"configs": {KEY: FORBIDDEN}}])
def test_what_the_user_may_not_read_is_said_once_as_a_right(change: dict[str, Any]):
    assert all(finding.level is Level.OK for finding in diagnose(replace(HEALTHY, **change)))


def test_a_young_pool_is_given_time():
    young = replace(pool(observedGeneration=None), created=NOW - 5)

    assert Finding(
        Level.WARN, POOL, "no operator has looked at it for 5s", "see whether the operator runs"
    ) in diagnose(replace(HEALTHY, pools=[young]))


def test_engines_with_the_same_trouble_share_a_line():
    pods = [pod(f"engine-{index}", "Pending") for index in range(8)]

    findings = diagnose(replace(HEALTHY, pods={KEY: pods}, answers=[]))

    (finding,) = [finding for finding in findings if finding.subject == ENGINES]
    assert finding.message == "not ready (Pending): " + name_some([entry.name for entry in pods])
    assert finding.message.endswith("engine-4 and 3 more")


def test_each_line_says_its_level_and_what_to_do_stands_below():
    shown = list(lines([Finding(Level.FAIL, "operator", "is away", "fetch it"), Finding(Level.OK, "clock", "ticks")]))

    assert shown == [
        "FAIL  operator  is away",
        "                -> fetch it",
        "OK    clock     ticks",
        "",
        "1 ok, 0 warnings, 1 failures",
    ]


def test_what_the_operator_may_do_for_pools_is_asked_of_each_pool():
    """The rights of an installation that lists its pools go no further."""
    rights = [
        Right("", "pods", "patch"),
        Right("", "configmaps", "get"),
        Right("", "configmaps", "create"),
        Right("tenantzone.io", "tenantzones", "list"),
        Right("coordination.k8s.io", "leases", "get", "tenantzone-system", "tenantzone-operator"),
    ]

    assert list(needed_rights(rights, [pool()], None, "elsewhere")) == [
        Right("", "pods", "patch", "shop"),
        Right("", "configmaps", "get", "shop", "tenantzone-demo"),
        Right("", "configmaps", "create", "shop"),
        Right("tenantzone.io", "tenantzones", "list"),
        Right("coordination.k8s.io", "leases", "get", "elsewhere", "tenantzone-operator"),
    ]
