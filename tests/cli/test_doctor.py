"""The whole output of ``doctor``, for facts that are healthy or not known. All pure."""

from dataclasses import replace
from typing import Any

import pytest

from tenantzone_cli.doctor.diagnosis import diagnose
from tenantzone_cli.doctor.finding import Finding, Level, lines
from tests.cli.healthy import (
    CONFIG_SUBJECT,
    ENGINES,
    FORBIDDEN,
    HEALTHY,
    KEY,
    MISSING,
    POOL,
    SHIPPED,
    config_map,
    lease,
    pool,
    troubles,
)


def test_nothing_is_wrong_with_a_healthy_set_up():
    assert troubles() == []
    assert [(finding.subject, finding.message) for finding in diagnose(HEALTHY)] == [
        ("API server", "answers, v1.36.3"),
        ("clock", "this machine's clock is within 5s of the API server's"),
        ("CRD kvcachegroups", "installed, v1alpha1, same as in this version"),
        ("CRD kvstorages", "installed, v1alpha1, same as in this version"),
        ("CRD tenantzones", "installed, v1alpha1, same as in this version"),
        ("CRD zonepools", "installed, v1alpha1, same as in this version"),
        ("your rights", "you may read everything that is checked in namespace shop"),
        ("operator", "2 of 2 pods are ready"),
        ("leader", "operator-0, renewed 2s ago"),
        ("operator's rights", f"all {len(SHIPPED.rights)} required rights are granted"),
        (POOL, "100 planned blocks per engine; 1 zones accepted, 0 rejected"),
        (CONFIG_SUBJECT, "generation 3, 0 zones, 0 KiB, written 3m ago"),
        (ENGINES, "1 ready, all have acknowledged the config; 1 answered now"),
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
    assert messages[POOL].startswith("size not yet known")
    assert messages[CONFIG_SUBJECT].endswith("written an unknown time ago")


@pytest.mark.parametrize("change", [{"zones": FORBIDDEN}, {"pools": FORBIDDEN}, {"configs": {KEY: FORBIDDEN}}])
def test_what_the_user_may_not_read_is_said_once_as_a_right(change: dict[str, Any]):
    assert troubles(**change) == []


def test_each_line_says_its_level_and_what_to_do_stands_below():
    shown = list(lines([Finding(Level.FAIL, "operator", "is away", "fetch it"), Finding(Level.OK, "clock", "ticks")]))

    assert shown == [
        "FAIL  operator  is away",
        "                -> fetch it",
        "OK    clock     ticks",
        "",
        "1 ok, 0 warnings, 1 failures",
    ]
