"""The header that names a tenant's user is read by nothing else: CRD, operator and engine all check that."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantzone_contract.zone_config.config import ConfigError, RuntimeConfig
from tenantzone_contract.zone_config.user_header import READ_BY_OTHERS
from tenantzone_contract.zone_config.zone_terms import Fairness
from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import Plan, make_plan
from tenantzone_runtime.zones.config.configure import zone_specs
from tests.operator.objects import pool, snapshot, zone

CRDS = Path(__file__).parents[2] / "crds"


def behind_a_gateway(header: str = "X-Tenant", secret: str = "X-Hop-Secret") -> Pool:
    return pool(identity={"trustedHeader": {"name": header, "proof": {"secretHeader": {"name": secret}}}})


def of_users(header: str, name: str = "acme", **more: Any) -> Zone:
    return zone(name, fairness={"header": header}, **more)


def planned(of: Pool, *zones: Zone, in_force: RuntimeConfig | None = None) -> Plan:
    return make_plan(of, zones, in_force=in_force, last_generation=0, size=100, room=ConfigRoom())


@pytest.mark.parametrize(
    ("header", "field"),
    [("x-tenant", "identity.trustedHeader.name"), ("x-hop-secret", "identity.trustedHeader.proof.secretHeader.name")],
)
def test_a_header_that_the_pool_knows_tenants_by_is_refused_by_name(header, field):
    plan = planned(behind_a_gateway(), of_users(header), of_users("x-user-id", "burst"))
    decision = plan.decisions["acme"]
    assert decision.reason == Reason.INVALID
    assert f"fairness.header ('{header}')" in decision.message
    assert field in decision.message
    assert plan.decisions["burst"].accepted
    assert plan.config is not None
    assert [entry.name for entry in plan.config.zones] == ["burst"]


def test_a_header_is_the_same_in_capitals_and_goes_to_engines_in_small_letters():
    plan = planned(behind_a_gateway("x-tenant"), of_users("X-Tenant"), of_users("X-User-Id", "burst"))
    assert plan.decisions["acme"].reason == Reason.INVALID
    assert plan.config is not None
    assert [entry.fairness.header for entry in plan.config.zones] == ["x-user-id"]
    assert plan.config.zones == planned(behind_a_gateway(), of_users("x-user-id", "burst")).config.zones


def test_what_was_accepted_stays_when_the_pool_takes_its_header_and_comes_back_when_it_lets_go():
    acme = of_users("x-tenant", reserved="10%")
    before = snapshot(1, acme)
    taken = planned(behind_a_gateway(), acme, in_force=before)
    assert taken.decisions["acme"].reason == Reason.INVALID
    assert taken.config is not None
    assert [(entry.reserved, entry.fairness) for entry in taken.config.zones] == [("10%", Fairness())]
    zone_specs(taken.config, 100, 10)
    again = planned(behind_a_gateway("x-other"), acme, in_force=taken.config)
    assert again.decisions["acme"].accepted
    assert again.config is not None
    assert again.config.zones[0].fairness.header == "x-tenant"


def test_a_zone_that_asks_for_such_a_header_later_keeps_the_one_that_it_has():
    before = planned(behind_a_gateway(), of_users("x-user-id")).config
    assert before is not None
    plan = planned(behind_a_gateway(), of_users("x-tenant", generation=2), in_force=before)
    assert plan.decisions["acme"].message.endswith("Generation 1 stays in force")
    assert plan.config == before


def test_an_engine_refuses_it_too():
    config = snapshot(1, of_users("x-tenant"))
    behind = behind_a_gateway().config
    assert behind is not None
    with pytest.raises(ConfigError, match=r"zones\[0\]\.fairness\.header \('x-tenant'\)"):
        zone_specs(config.model_copy(update={"pool": behind}), 100, 10)


@pytest.mark.parametrize("header", sorted(READ_BY_OTHERS))
def test_what_others_read_makes_a_zone_invalid(header):
    for spelled in (header, header.title()):
        found = of_users(spelled)
        assert found.config is None
        assert f"fairness.header ('{header}')" in found.invalid


def test_the_crd_refuses_the_same_headers():
    crd = yaml.safe_load((CRDS / "tenantzones.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    (rule,) = spec["properties"]["fairness"]["properties"]["header"]["x-kubernetes-validations"]
    assert set(re.findall(r"'([^']+)'", rule["rule"])) == READ_BY_OTHERS


def test_whatever_shows_a_key_is_read_by_others():
    assert {"authorization", "x-api-key", "api-key", "x-vllm-priority"} <= READ_BY_OTHERS
