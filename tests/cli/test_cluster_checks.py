"""What ``doctor`` finds wrong with the cluster, with the caller's rights, and with the operator. All pure."""

from typing import Any

import pytest

from tenantzone_cli.doctor.facts import (
    CONFIG_RIGHT,
    PODS_RIGHT,
    POOLS_RIGHT,
    REPORTS_RIGHT,
    ZONES_RIGHT,
    Clock,
    needed_rights,
)
from tenantzone_cli.doctor.shipped import Right
from tests.cli.healthy import (
    FORBIDDEN,
    HEALTHY,
    MISSING,
    NOW,
    SHIPPED,
    definition,
    deployment,
    lease,
    pod,
    pool,
    schema_of_zones,
    troubles,
)


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


@pytest.mark.parametrize(
    ("change", "level", "subject", "said"),
    [
        # The clock.
        pytest.param({"clock": Clock(NOW, NOW + 9, NOW + 9)}, "WARN", "clock", "8s ahead of", id="our clock is ahead"),
        pytest.param({"clock": Clock(NOW, NOW - 9, NOW - 8)}, "WARN", "clock", "8s behind", id="our clock is behind"),
        pytest.param(
            {"clock": Clock(None, NOW, NOW)}, "WARN", "clock", "has no time", id="a server that does not say the time"
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
            "older version without spec.lending.grace",
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
            "does not serve tenantzone.io/v1alpha1",
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
            "runs as a process without a Deployment",
            id="a process that leads",
        ),
        pytest.param(
            {"deployment": FORBIDDEN}, "WARN", "operator", "its Deployment can't be read: no", id="a hidden operator"
        ),
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
        pytest.param(
            {"lease": lease(leaseDurationSeconds=2**31 - 1, renewTime="2026-01-01T00:58:00.000000Z")},
            "FAIL",
            "leader",
            "has not renewed the Lease for",
            id="a Lease that claims to last for ever",
        ),
        pytest.param({"lease": lease(holderIdentity="")}, "FAIL", "leader", "no operator leads", id="no leader"),
        pytest.param(
            {"lease": lease(renewTime="2026-01-01T00:59:30.000000Z")},
            "FAIL",
            "leader",
            "operator-0 has not renewed the Lease for 30s; the Lease lasts 15s",
            id="a leader that is gone",
        ),
    ],
)
def test_one_thing_that_is_wrong_is_found_and_nothing_else(change: dict[str, Any], level: str, subject: str, said: str):
    found = troubles(**change)

    (finding,) = [finding for finding in found if finding.subject == subject]
    assert finding.level == level
    assert said in finding.message
    # A missing operator is one without a leader, too.
    assert {finding.subject for finding in found} - {subject} <= ({"leader"} if "lease" in change else set())


def test_what_the_operator_may_do_for_pools_is_asked_of_each_pool():
    """The rights of an installation that lists its pools cover only those."""
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
