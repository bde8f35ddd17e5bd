"""Every field has an effect: each leaf of the CRDs reaches contract and core, or the pool reports that it does not.

A field that is added to a CRD fails here until it is in one of the tables below, and then until its value makes a
difference on the way to the engine.
"""

from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config, parse_config
from tenantzone_contract.zone_config.tiers import TIER_NAMES
from tenantzone_contract.zone_config.unknown_tenants import MAX_TENANTS_OF_A_LEVEL, TenantLevel
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_runtime.zones.config.configure import zone_specs
from tenantzone_runtime.zones.config.registration import spec_for
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.tiers.tier_config import tier_config
from tests.operator.objects import pool, zone

CRDS = Path(__file__).parents[2] / "crds"
CAPACITY = 1000
SEATS = 100

ZONE: dict[str, tuple[Any, Any]] = {
    "priority": (0, 7),
    "reserved": ("20%", "10%"),
    "limit": (None, "50%"),
    "weight": (1, 3),
    "lending.lendable": ("100%", "50%"),
    "lending.borrowers": ("SameOrHigherPriority", "AnyPriority"),
    "lending.maxLoan": (None, "10m"),
    "lending.grace": ("30s", "5s"),
    "idle.after": ("60s", "5s"),
    "idle.evictAfter": (None, "10m"),
    "idle.release.share": ("50%", "20%"),
    "idle.release.every": ("1m", "2m"),
    "evictionPolicy": ("LRU", "Clock"),
    "scrub": ("Never", "OnTransfer"),
    "seats.reserved": (None, "20%"),
    "seats.limit": (None, 5),
    "queue.requests": (None, 100),
    "queue.tokens": (None, 100_000),
    "requestLimits.maxTokens": (None, 100),
    "fairness.header": (None, "x-user-id"),
    "latency.tokenTime": (None, "50ms"),
    "latency.firstToken": (None, "1s"),
    "retention.ttl": (None, "10m"),
    "retention.noStore": (None, True),
    "offload": ("All", "Prompt"),
}
"""Fields of a TenantZone that the engine enforces, with two values of each that must make a difference."""

OF_TIERS: dict[str, tuple[Any, Any]] = {
    "tiers.[].tier": ("cpu", "disk"),
    "tiers.[].reserved": ("200k", "10%"),
    "tiers.[].limit": (None, "500k"),
    "tiers.[].ttl": (None, "10m"),
    "tiers.[].admission": (None, "SeenTwice"),
}
"""The same for fields that tiers below the engine's blocks enforce."""

OF_THE_FRONTEND: dict[str, tuple[Any, Any]] = {
    "requestLimits.choices": (None, 2),
    "requestLimits.logprobs": (None, 0),
    "requestLimits.bodyBytes": (None, 10_000),
    "requestLimits.prompts": (None, 4),
    "requestLimits.structuredOutputs": ("Any", "Schemas"),
    "adapters.[]": ("sql", "poetry"),
    "requestPriority.min": (None, -5),
    "requestPriority.max": (None, 5),
}
"""The same for fields that the frontend enforces. tests/frontend/test_terms.py and test_adapters.py show that it acts
on each of them."""

ZONE_PLACE = {"pool", "tenant"}
"""The zone's place and owner: each test here would fail without them."""

POOL: dict[str, tuple[Any, Any]] = {
    "watermarks.low": (0.0, 0.1),
    "watermarks.high": (0.2, 0.3),
    "unknownTenants.mode": ("Reject", "AutoRegister"),
    "unknownTenants.template.limit": (None, "50%"),
    "unknownTenants.template.priority": (0, 7),
    "unknownTenants.template.idle.after": ("60s", "5s"),
    "unknownTenants.template.idle.evictAfter": (None, "10m"),
    "unknownTenants.template.idle.forgetAfter": (None, "10m"),
    "unknownTenants.template.idle.release.share": ("50%", "20%"),
    "unknownTenants.template.idle.release.every": ("1m", "2m"),
    "unknownTenants.levels.[].name": ("gold", "silver"),
    "unknownTenants.levels.[].tenants.[]": ("silver-*", "gold-*"),
    "unknownTenants.levels.[].reserved": (0, "10%"),
    "unknownTenants.levels.[].limit": (None, "60%"),
    "unknownTenants.levels.[].weight": (1, 3),
    "unknownTenants.levels.[].priority": (0, 7),
}
"""The same for a ZonePool."""

OPERATORS_OWN: dict[str, Any] = {
    "selector.matchLabels": {"app": "other"},
    "selector.matchExpressions.[].key": "tier",
    "selector.matchExpressions.[].operator": "DoesNotExist",
    "selector.matchExpressions.[].values.[]": "gold",
    "adminPort": 9000,
    "blocksPerEngine": 500,
    "advice.mode": "Auto",
    "advice.window": "5m",
    "advice.bounds.limit.min": "30%",
    "advice.bounds.limit.max": "70%",
    "advice.bounds.weight.min": 2,
    "advice.bounds.weight.max": 9,
    "advice.bounds.ttl.min": "5m",
    "advice.bounds.ttl.max": "5h",
    "advice.bounds.evictionPolicies.[]": "LFU",
    "advice.bounds.watermarks.min": 0.1,
    "advice.bounds.watermarks.max": 0.2,
    "tiers.manager.serviceAccountName": "engines",
}
"""Fields of a ZonePool that the operator handles: no engine knows them."""

IDENTITIES: dict[str, dict[str, tuple[Any, Any]]] = {
    "trustedHeader": {
        "name": ("x-tenant", "x-other"),
        "from.[]": ("10.0.0.0/8", "10.0.0.0/9"),
        "proof.secretHeader.name": ("x-proof", "x-proof-2"),
    },
    "trustedHeader with a certificate": {
        "name": ("x-tenant", "x-other"),
        "proof.clientCertificate.subjects.[]": ("gateway", "gateway-2"),
    },
    "jwt": {
        "issuer": ("https://issuer", "https://issuer-2"),
        "audiences.[]": ("models", "models-2"),
        "algorithms.[]": ("RS256", "ES256"),
        "leeway": ("30s", "1m"),
        "tenantClaim.[]": ("tenant", "org"),
    },
}
"""The same for a ZonePool's identity, with one method set at a time. tests/frontend/test_identities.py shows that the
frontend acts on each of them."""

TIERS: dict[str, tuple[Any, Any]] = {
    "tiers.cpu.bytes": ("1Gi", "2Gi"),
    "tiers.disk.folder": ("/data", "/cache"),
    "tiers.disk.bytes": ("1Ti", 10**12),
}
"""The same for the tiers of a ZonePool's engines: they are in the config, and reservations must fit into them.
tests/operator/test_tiers.py shows that."""

NOT_ENFORCED = {"identity.apiKeys.secretSelector": {"matchLabels": {"app": "keys"}}}
"""Fields without effect; the pool's condition names them."""


_OF_TEXTS = ("adapters", "tenants", "from", "subjects", "audiences", "algorithms", "tenantClaim")
"""Fields that hold a list of texts."""


def leaves(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    if "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from leaves(inner, (*path, name))
    elif schema.get("type") == "array":
        yield from leaves(schema["items"], (*path, "[]"))
    else:
        yield ".".join(path)


def spec_of(kind: str) -> dict[str, Any]:
    """The schema of the kind's spec."""
    (version,) = yaml.safe_load((CRDS / f"{kind}.yaml").read_text())["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def leaves_of(kind: str) -> set[str]:
    return set(leaves(spec_of(kind)))


def with_value(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The spec with this value at the path; None: without a value there."""
    changed = deepcopy(spec)
    at: Any = changed
    *outer, last = path.split(".")
    for part in outer:
        at = at[0] if part == "[]" else at[part]
    if last == "[]":
        at[:] = [value]
    elif value is None:
        at.pop(last, None)
    else:
        at[last] = value
    return changed


def whole(table: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """A spec with the first values of all fields."""
    spec: dict[str, Any] = {}
    for path, (first, _) in table.items():
        at: Any = spec
        parts = path.split(".")
        for part, inner in pairwise(parts):
            empty: Any = [{}] if inner == "[]" and part not in _OF_TEXTS else {}
            at = at[0] if part == "[]" else at.setdefault(part, [] if part in _OF_TEXTS else empty)
        if parts[-1] == "[]":
            at.append(first)
        elif first is not None:
            at[parts[-1]] = first
    return spec


def test_each_leaf_of_a_tenantzone_is_known():
    assert leaves_of("tenantzones") == ZONE.keys() | OF_TIERS.keys() | OF_THE_FRONTEND.keys() | ZONE_PLACE


def test_each_leaf_of_a_zonepool_is_known():
    ways = {f"identity.{way.split()[0]}.{field}" for way, fields in IDENTITIES.items() for field in fields}
    found = {leaf for leaf in leaves_of("zonepools") if not leaf.startswith(tuple(NOT_ENFORCED))}
    assert found == POOL.keys() | OPERATORS_OWN.keys() | TIERS.keys() | ways


@pytest.mark.parametrize("field", ZONE)
def test_a_field_of_a_tenantzone_reaches_the_core(field: str):
    spec = whole(ZONE)
    made = [zone("acme", **with_value(spec, field, value)) for value in ZONE[field]]

    assert made[0].config != made[1].config, "the operator does not read it"
    assert enforced(made[0]) != enforced(made[1]), "the core does not know it"


@pytest.mark.parametrize("field", OF_TIERS)
def test_a_field_about_tiers_reaches_the_core_of_a_tier(field: str):
    spec = whole(ZONE | OF_TIERS)
    made = [zone("acme", **with_value(spec, field, value)) for value in OF_TIERS[field]]

    assert made[0].config != made[1].config, "the operator does not read it"
    assert in_tiers(made[0]) != in_tiers(made[1]), "the core of a tier does not know it"


def in_tiers(declared: Zone) -> list[Any]:
    """What tiers make of the zone, with chunks of 1,000 bytes each."""
    assert declared.config is not None, declared.invalid
    config = read_by_an_engine(PoolConfig(namespace="models", name="main"), declared.config)
    admission = [tier.admission for zone in config.zones for tier in zone.tiers]
    return [admission, *(zone_specs(tier_config(config, name, 1000), CAPACITY, SEATS) for name in TIER_NAMES)]


@pytest.mark.parametrize("field", OF_THE_FRONTEND)
def test_a_field_that_the_frontend_enforces_reaches_what_the_frontend_reads(field: str):
    spec = whole(ZONE | OF_THE_FRONTEND)
    made = [zone("acme", **with_value(spec, field, value)).config for value in OF_THE_FRONTEND[field]]

    assert None not in made
    read = [read_by_an_engine(PoolConfig(namespace="models", name="main"), each).zones for each in made if each]
    assert read[0] != read[1]


def enforced(declared: Zone) -> list[Any]:
    assert declared.config is not None, declared.invalid
    return zone_specs(read_by_an_engine(PoolConfig(namespace="models", name="main"), declared.config), CAPACITY, SEATS)


def read_by_an_engine(shared: PoolConfig, *zones: ZoneConfig) -> RuntimeConfig:
    """What an engine reads from the operator's text: a field may be left out of it, its value may not."""
    return parse_config(dump_config(make_config(1, shared, zones)))


@pytest.mark.parametrize("field", POOL)
def test_a_field_of_a_zonepool_reaches_the_core(field: str):
    spec = whole(POOL)
    made = [pool(**with_value(spec, field, value)) for value in POOL[field]]

    assert made[0].config != made[1].config, "the operator does not read it"
    assert shown(made[0]) != shown(made[1]), "the core does not know it"


def shown(declared: Pool) -> list[Any]:
    """How an engine uses the pool: for tenants without a zone, and when few blocks are free."""
    assert declared.config is not None, declared.invalid
    tenancy = Tenancy(CAPACITY + 1, CAPACITY)
    config = read_by_an_engine(declared.config)
    tenancy.apply(config, 0.0)
    unknown = config.pool.unknown_tenants
    specs = [spec_for(unknown, tenant, CAPACITY, CAPACITY) for tenant in ("gold-1", "silver-1", "stranger")]
    return [specs, tenancy.enforcement.watermarks, tenancy.zone_for("stranger", 0.0) is None]


def test_a_level_has_as_many_tenants_in_the_crd_as_in_the_contract():
    level = spec_of("zonepools")["properties"]["unknownTenants"]["properties"]["levels"]["items"]
    read = TenantLevel.model_json_schema()["properties"]["tenants"]

    assert level["properties"]["tenants"]["maxItems"] == MAX_TENANTS_OF_A_LEVEL == read["maxItems"]


def test_what_the_operator_answers_for_it_reads():
    selector = {"matchLabels": {"app": "vllm"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    bounds = {
        "limit": {"min": "20%", "max": "80%"},
        "weight": {"min": 1, "max": 8},
        "ttl": {"min": "1m", "max": "1h"},
        "evictionPolicies": ["LRU"],
        "watermarks": {"min": 0.0, "max": 0.5},
    }
    spec = {
        "selector": selector,
        "advice": {"mode": "Recommend", "window": "10m", "bounds": bounds},
        "tiers": {"manager": {}},
    }
    for field, value in OPERATORS_OWN.items():
        assert pool(**with_value(spec, field, value)) != pool(**spec), field


@pytest.mark.parametrize(("way", "field"), [(way, field) for way, fields in IDENTITIES.items() for field in fields])
def test_a_field_of_an_identity_reaches_the_config(way: str, field: str):
    spec = whole(IDENTITIES[way])
    values = IDENTITIES[way][field]
    made = [pool(identity={way.split()[0]: with_value(spec, field, value)}).config for value in values]

    assert None not in made
    assert made[0] != made[1], "the operator does not read it"


@pytest.mark.parametrize("field", TIERS)
def test_a_field_about_the_pools_tiers_reaches_the_config(field: str):
    made = [pool(**with_value(whole(TIERS), field, value)).config for value in TIERS[field]]

    assert None not in made
    assert made[0] != made[1], "the operator does not read it"


def test_what_nothing_acts_on_is_named():
    for field, value in NOT_ENFORCED.items():
        assert field in pool(**whole({field: (value, None)})).not_enforced
