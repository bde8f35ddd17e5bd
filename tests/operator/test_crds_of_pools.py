"""The schema of ZonePool: what the API server refuses, and with which words."""

import pytest

from hack.controlplane import Cluster
from tests.operator.crd_objects import manifest, pool, refused

PROOF = {"secretHeader": {"name": "x-proof"}}


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        pytest.param(
            pool(unknownTenants={"template": {"idle": {"evictAfter": "90m", "forgetAfter": "1h"}}}),
            "forgetAfter (1h) must not be below evictAfter (90m)",
            id="forgetting before evicting",
        ),
        pytest.param(
            pool(unknownTenants={"template": {"idle": {"release": {"share": "25%", "every": "0s"}}}}),
            "release.every (0s) must not be below 1s",
            id="a release of a template all at once",
        ),
        pytest.param(
            pool(unknownTenants={"levels": [{"name": "gold", "tenants": ["a"]}, {"name": "gold", "tenants": ["b"]}]}),
            "two levels have the same name; rename one",
            id="two levels of one name",
        ),
        pytest.param(
            pool(unknownTenants={"levels": [{"name": "gold", "tenants": ["*"], "reserved": "40%", "limit": "8%"}]}),
            "limit (8%) must not be below reserved (40%)",
            id="a level that reserves more than its limit",
        ),
        pytest.param(
            pool(unknownTenants={"levels": [{"name": "gold", "tenants": ["*"], "reserved": 40, "limit": 8}]}),
            "limit (8 blocks) must not be below reserved (40 blocks)",
            id="the same in blocks",
        ),
        pytest.param(
            pool(unknownTenants={"levels": [{"name": "gold", "tenants": ["*-gold"]}]}),
            "spec.unknownTenants.levels[0].tenants[0]",
            id="a star in front",
        ),
        pytest.param(
            pool(unknownTenants={"levels": [{"name": "gold", "tenants": []}]}),
            "spec.unknownTenants.levels[0].tenants",
            id="a level without tenants",
        ),
        pytest.param(
            pool(advice={"mode": "Auto"}),
            "mode Auto changes only the fields in advice.bounds",
            id="no bounds to change in",
        ),
        pytest.param(pool(advice={"mode": "Auto", "bounds": {}}), "spec.advice.bounds", id="bounds of nothing"),
        pytest.param(pool(advice={"mode": "Off"}), '"Never", "Recommend", "Auto"', id="another mode"),
        pytest.param(pool(advice={"window": "5s"}), "advice.window (5s) must be from 10s to 24h", id="a short window"),
        pytest.param(pool(advice={"window": "25h"}), "advice.window (25h) must be", id="a long window"),
        *(
            pytest.param(
                pool(advice={"bounds": {field: {"min": more, "max": less}}}),
                f"bounds.{field}.min must not be above bounds.{field}.max",
                id=f"{field} from more to less",
            )
            for field, more, less in (
                ("limit", "9%", "8%"),
                ("weight", 9, 8),
                ("ttl", "90m", "1h"),
                ("watermarks", 0.2, 0.1),
            )
        ),
        pytest.param(
            pool(advice={"bounds": {"ttl": {"min": "500ms", "max": "1h"}}}),
            "bounds.ttl.min must not be below 1s",
            id="a time that is none",
        ),
        pytest.param(pool(advice={"bounds": {"evictionPolicies": ["FIFO"]}}), '"LRU", "Clock"', id="an unknown policy"),
        pytest.param(
            pool(tiers={"cpu": {"bytes": "0Gi"}}), "tiers.cpu.bytes must be 1 or more", id="a tier of nothing"
        ),
        pytest.param(pool(tiers={"cpu": {"bytes": "10%"}}), "spec.tiers.cpu.bytes", id="a tier in percent"),
        pytest.param(pool(tiers={"disk": {"bytes": 1}}), "spec.tiers.disk.folder", id="a disk without a folder"),
        pytest.param(
            pool(tiers={"disk": {"bytes": 1, "folder": "cache"}}), "spec.tiers.disk.folder", id="a folder from nowhere"
        ),
        pytest.param(pool(tiers={"manager": {}}), "serviceAccountName", id="engines without a service account"),
        pytest.param(pool(selector={}), "name at least one label", id="a selector for all pods"),
        pytest.param(
            pool(selector={"matchExpressions": [{"key": "app", "operator": "In"}]}),
            "In and NotIn need values",
            id="an expression without values",
        ),
        pytest.param(
            pool(watermarks={"low": 0.2, "high": 0.1}), "lower low or raise high", id="watermarks the wrong way round"
        ),
        pytest.param(
            pool(identity={"trustedHeader": {"name": "x-tenant", "proof": PROOF, "from": ["10.0.0.0/33"]}}),
            "expected a network in CIDR notation",
            id="a network that is none",
        ),
        pytest.param(
            pool(
                identity={
                    "trustedHeader": {"name": "x-tenant", "proof": PROOF},
                    "apiKeys": {"secretSelector": {"matchLabels": {"app": "keys"}}},
                }
            ),
            "exactly one of apiKeys, trustedHeader and jwt",
            id="two sources of identity",
        ),
        pytest.param(
            pool(identity={"apiKeys": {}, "jwt": {"issuer": "https://issuer", "audiences": ["models"]}}),
            "exactly one of apiKeys, trustedHeader and jwt",
            id="API keys and tokens",
        ),
        pytest.param(
            pool(identity={"trustedHeader": {"name": "x-tenant", "from": ["10.0.0.0/8"]}}),
            "trustedHeader needs a proof",
            id="a header that nothing proves",
        ),
        pytest.param(
            pool(identity={"trustedHeader": {"name": "x-tenant", "proof": {}}}),
            "proof takes exactly one of secretHeader and clientCertificate",
            id="a proof of nothing",
        ),
        pytest.param(
            pool(identity={"trustedHeader": {"name": "x-tenant", "proof": {"secretHeader": {"name": "X-Tenant"}}}}),
            "proof.secretHeader.name must not be the tenant's header",
            id="one header for both",
        ),
        pytest.param(
            pool(identity={"jwt": {"issuer": "https://issuer"}}), "spec.identity.jwt.audiences", id="for anybody"
        ),
        pytest.param(
            pool(identity={"jwt": {"issuer": "https://issuer", "audiences": ["a"], "algorithms": ["HS256"]}}),
            'Unsupported value: "HS256"',
            id="a symmetric algorithm",
        ),
        pytest.param(
            pool(identity={"jwt": {"issuer": "https://issuer", "audiences": ["a"], "leeway": "6m"}}),
            "jwt.leeway (6m) must not be above 5m",
            id="a long leeway",
        ),
        pytest.param(
            manifest("ZonePool", {"selector": {"matchLabels": {"app": "vllm"}}}, name="x" * 64),
            "at most 63 characters",
            id="a pool with a long name",
        ),
    ],
)
def test_what_the_api_server_refuses(control_plane: Cluster, body: str, refusal: str):
    assert refusal in refused(control_plane, body)


@pytest.mark.controlplane
def test_a_pool_that_takes_unknown_tenants_in_is_taken(control_plane: Cluster):
    body = pool(
        watermarks={"low": 0.1, "high": 0.2},
        tiers={"cpu": {"bytes": 2**40}, "disk": {"folder": "/data", "bytes": "10T"}},
        unknownTenants={
            "mode": "AutoRegister",
            "template": {"limit": "20%", "idle": {"evictAfter": "1h", "forgetAfter": "1.5h"}},
            "levels": [
                {"name": "gold", "tenants": ["gold-*", "acme"], "reserved": 10, "limit": "20%", "weight": 2},
                {"name": "rest", "tenants": ["*"], "priority": -5},
            ],
        },
    )
    control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=body)
