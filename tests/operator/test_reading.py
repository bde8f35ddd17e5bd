"""Durations, selectors and objects as users write them."""

import pytest

from tenantzone_contract.duration import parse_duration
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel
from tenantzone_contract.zone_config.zone_terms import Idle, Release
from tenantzone_operator.kube.selectors import matches
from tests.operator.objects import entry, pool, zone


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("60s", 60.0, id="seconds"),
        pytest.param("5m", 300.0, id="minutes"),
        pytest.param("1h30m", 5400.0, id="hours and minutes"),
        pytest.param("250ms", 0.25, id="milliseconds"),
        pytest.param("1.5h", 5400.0, id="a fraction"),
        pytest.param("0s", 0.0, id="none"),
        pytest.param(".5s", 0.5, id="a fraction without a whole number"),
        pytest.param("2.s", 2.0, id="a whole number with a point"),
        pytest.param("100000us", 0.1, id="many microseconds"),
        pytest.param("100000μs", 0.1, id="a Greek letter"),
        pytest.param("1.9ns", 1e-9, id="a nanosecond and a fraction"),
        pytest.param("1s500us", 1.0005, id="microseconds"),
    ],
)
def test_a_duration(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["0.5ns", "0.0001us", "0.4ns0.4ns"])
def test_a_duration_that_rounds_to_nothing_is_refused(text):
    with pytest.raises(ValueError, match="a duration of at least 1ns"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "5", "s", ".s", "5 m", "-5s", "5m!", "1d"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


def expression(operator, *values):
    return {"matchExpressions": [{"key": "app", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        pytest.param({"matchLabels": {"app": "vllm"}}, {"app": "vllm", "x": "y"}, True, id="the label is there"),
        pytest.param({"matchLabels": {"app": "vllm"}}, {"app": "web"}, False, id="with another value"),
        pytest.param({"matchLabels": {"app": "vllm", "x": "y"}}, {"app": "vllm"}, False, id="all labels are needed"),
        pytest.param(expression("In", "vllm", "sglang"), {"app": "sglang"}, True, id="in a list"),
        pytest.param(expression("In", "vllm"), {}, False, id="an absent label is in no list"),
        pytest.param(expression("NotIn", "vllm"), {}, True, id="so it is not in it"),
        pytest.param(expression("NotIn", "vllm"), {"app": "vllm"}, False, id="not in a list"),
        pytest.param(expression("Exists"), {"app": ""}, True, id="an empty value exists"),
        pytest.param(expression("DoesNotExist"), {}, True, id="absent"),
        pytest.param({}, {"app": "vllm"}, False, id="an empty selector selects nothing"),
    ],
)
def test_a_selector(selector, labels, expected):
    assert matches(selector, labels) is expected


def test_a_zone_is_named_after_its_tenant_unless_it_says_otherwise():
    assert zone("acme").tenant == "acme"
    assert zone("acme", tenant="customer-7").tenant == "customer-7"


def test_a_zones_spec_becomes_an_entry():
    found = zone(
        "acme", generation=3, priority=5, reserved="40%", limit=200, weight=2, scrub="OnTransfer",
        lending={"lendable": "50%", "borrowers": "AnyPriority", "maxLoan": "10m", "grace": "1m30s"},
        idle={"after": "5m", "evictAfter": "1h"}, evictionPolicy="Clock",
    ).config  # fmt: skip

    assert found is not None
    assert found.model_dump() == {
        "name": "acme",
        "tenant": "acme",
        "generation": 3,
        "priority": 5,
        "reserved": "40%",
        "limit": 200,
        "weight": 2,
        "lending": {
            "lendable": "50%",
            "borrowers": "AnyPriority",
            "max_loan_seconds": 600.0,
            "grace_seconds": 90.0,
        },
        "idle": {"after_seconds": 300.0, "evict_after_seconds": 3600.0, "forget_after_seconds": None},
        "eviction_policy": "Clock",
        "scrub": "OnTransfer",
    }


def test_the_steps_of_a_release_become_the_contracts():
    found = zone("acme", idle={"after": "5m", "release": {"share": "25%", "every": "1h30m"}}).config

    assert found is not None
    assert found.idle == Idle(after_seconds=300.0, release=Release(share="25%", every_seconds=5400.0))


def test_what_a_spec_does_not_say_is_left_to_the_contract():
    assert zone("acme").config == entry("acme")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"reserved": "a lot"}, "reserved", id="an amount"),
        pytest.param({"idle": {"after": "soon"}}, "idle.after: expected a duration", id="a duration"),
        pytest.param(
            {"idle": {"release": {"share": "25%", "every": "often"}}},
            "idle.release.every: expected a duration",
            id="a duration of a release",
        ),
        pytest.param({"idle": {"release": {"share": "25%"}}}, "everySeconds: Field required", id="half a release"),
        pytest.param({"lending": {"grace": "long"}}, "lending.grace: expected a duration", id="a duration of a loan"),
        pytest.param({"reserved": 20, "limit": 10}, "reserved (20) must not exceed limit (10)", id="a contradiction"),
    ],
)
def test_what_an_older_schema_let_through_makes_a_zone_invalid(spec, message):
    found = zone("acme", **spec)

    assert found.config is None
    assert message in found.invalid


def test_a_pools_spec_becomes_the_pools_part_of_the_config():
    found = pool(
        unknownTenants={
            "mode": "AutoRegister",
            "template": {
                "limit": "20%",
                "priority": -1,
                "idle": {"after": "1m", "forgetAfter": "24h", "release": {"share": "10%", "every": "10m"}},
            },
        },
        watermarks={"low": 0.1, "high": 0.2},
    ).config

    assert found is not None
    assert found.unknown_tenants.mode == "AutoRegister"
    template = found.unknown_tenants.template
    assert (template.limit, template.priority) == ("20%", -1)
    assert (template.idle.after_seconds, template.idle.forget_after_seconds) == (60.0, 86400.0)
    assert template.idle.release == Release(share="10%", every_seconds=600.0)
    assert (found.watermarks.low, found.watermarks.high) == (0.1, 0.2)
    assert found.unknown_tenants.levels == ()


def test_the_levels_of_unknown_tenants_become_the_contracts_in_their_order():
    found = pool(
        unknownTenants={
            "levels": [
                {"name": "gold", "tenants": ["gold-*"], "reserved": "5%", "limit": 900, "weight": 3, "priority": 7},
                {"name": "rest", "tenants": ["*"]},
            ]
        }
    ).config

    assert found is not None
    assert found.unknown_tenants.levels == (
        TenantLevel(name="gold", tenants=("gold-*",), reserved="5%", limit=900, weight=3, priority=7),
        TenantLevel(name="rest", tenants=("*",)),
    )


def test_a_level_that_contradicts_itself_makes_the_pool_invalid():
    found = pool(unknownTenants={"levels": [{"name": "gold", "tenants": ["*"], "reserved": 20, "limit": 10}]})

    assert found.config is None
    assert "reserved (20) must not exceed limit (10)" in found.invalid
