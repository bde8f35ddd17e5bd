"""The schemas: what the API server refuses, and in which words; what it fills in; what it explains."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import Cluster
from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.tier_summary import TierSummary
from tenantzone_operator.cache_manager.declared import read_group, read_storage
from tenantzone_operator.kube.resources import read_pool, read_zone

CRDS = Path(__file__).parents[2] / "crds"
SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
PROOF = {"secretHeader": {"name": "x-proof"}}
READ = {"TenantZone": read_zone, "ZonePool": read_pool, "KVStorage": read_storage, "KVCacheGroup": read_group}
USES = sorted((SAMPLES / "uses").glob("*.yaml"))


def manifest(kind: str, spec: dict[str, Any], name: str = "sample") -> str:
    return json.dumps({"apiVersion": "tenantzone.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def zone(**spec: Any) -> str:
    return manifest("TenantZone", {"pool": "demo"} | spec)


def pool(**spec: Any) -> str:
    return manifest("ZonePool", {"selector": {"matchLabels": {"app": "vllm"}}} | spec)


def storage(kind: str, **spec: Any) -> str:
    return manifest("KVStorage", {"type": kind} | spec)


def group(**spec: Any) -> str:
    return manifest("KVCacheGroup", {"storages": ["nfs"]} | spec)


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        pytest.param(
            zone(reserved="40%", limit="10%"),
            "limit (10%) must not be below reserved (40%); raise limit or lower reserved",
            id="a limit below the reservation, in percent",
        ),
        pytest.param(
            zone(reserved="9%", limit="8%"), "limit (8%) must not be below reserved (9%)", id="compared as numbers"
        ),
        pytest.param(
            zone(reserved=40, limit=10), "limit (10 blocks) must not be below reserved (40 blocks)", id="in blocks"
        ),
        pytest.param(
            zone(reserved=10, lending={"lendable": 11}),
            "lending.lendable (11 blocks) must not exceed reserved (10 blocks)",
            id="lending more than is reserved",
        ),
        pytest.param(zone(reserved="40 %"), "spec.reserved", id="a percentage with a space"),
        pytest.param(zone(reserved="101%"), "spec.reserved", id="more than everything"),
        pytest.param(zone(reserved=-1), "spec.reserved", id="a negative reservation"),
        pytest.param(zone(limit="0%"), "spec.limit", id="a limit of nothing"),
        pytest.param(zone(weight=0), "spec.weight", id="no weight"),
        pytest.param(zone(idle={"after": "1 minute"}), "spec.idle.after", id="a duration in words"),
        pytest.param(zone(scrub="Maybe"), '"OnTransfer", "Never"', id="an unknown way to scrub"),
        pytest.param(zone(evictionPolicy="FIFO"), '"LRU", "Clock"', id="an unknown eviction policy"),
        pytest.param(
            zone(lending={"borrowers": "Friends"}), '"SameOrHigherPriority", "AnyPriority"', id="unknown borrowers"
        ),
        pytest.param(zone(lending={"grace": "a while"}), "spec.lending.grace", id="a grace in words"),
        pytest.param(
            zone(idle={"forgetAfter": "1h"}),
            'unknown field "spec.idle.forgetAfter"',
            id="forgetting a zone that is declared",
        ),
        pytest.param(
            pool(unknownTenants={"template": {"idle": {"evictAfter": "90m", "forgetAfter": "1h"}}}),
            "forgetAfter (1h) must not be below evictAfter (90m)",
            id="forgetting before evicting",
        ),
        pytest.param(
            zone(idle={"release": {"share": "25%", "every": "250ms"}}),
            "release.every (250ms) must not be below 1s",
            id="a release in steps too fast to count",
        ),
        pytest.param(
            zone(idle={"release": {"share": "0%", "every": "1m"}}), "release.share", id="a release of nothing"
        ),
        pytest.param(zone(idle={"release": {"share": "25%"}}), "release.every", id="a release without a pace"),
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
            id="a level for nobody",
        ),
        pytest.param(
            pool(advice={"mode": "Auto"}),
            "mode Auto changes only what advice.bounds names",
            id="no bounds to change in",
        ),
        pytest.param(pool(advice={"mode": "Auto", "bounds": {}}), "spec.advice.bounds", id="bounds of nothing"),
        pytest.param(pool(advice={"mode": "Off"}), '"Never", "Recommend", "Auto"', id="another mode"),
        pytest.param(pool(advice={"window": "5s"}), "advice.window (5s) must be from 10s to 24h", id="a short window"),
        pytest.param(pool(advice={"window": "25h"}), "advice.window (25h) must be", id="a long window"),
        pytest.param(
            pool(advice={"bounds": {"limit": {"min": "9%", "max": "8%"}}}),
            "bounds.limit.min must not be above bounds.limit.max",
            id="limits from more to less",
        ),
        pytest.param(
            pool(advice={"bounds": {"weight": {"min": 9, "max": 8}}}),
            "bounds.weight.min must not be above",
            id="weights from more to less",
        ),
        pytest.param(
            pool(advice={"bounds": {"ttl": {"min": "90m", "max": "1h"}}}),
            "bounds.ttl.min must not be above bounds.ttl.max",
            id="times from more to less",
        ),
        pytest.param(
            pool(advice={"bounds": {"ttl": {"min": "500ms", "max": "1h"}}}),
            "bounds.ttl.min must not be below 1s",
            id="a time that is none",
        ),
        pytest.param(
            pool(advice={"bounds": {"watermarks": {"min": 0.2, "max": 0.1}}}),
            "bounds.watermarks.min must not be above",
            id="watermarks from more to less",
        ),
        pytest.param(
            pool(advice={"bounds": {"evictionPolicies": ["FIFO"]}}), '"LRU", "Clock"', id="a policy that there is not"
        ),
        pytest.param(
            zone(fairness={"header": "authorization"}),
            "fairness.header ('authorization') must be a header of its own",
            id="users by their tenant's key",
        ),
        pytest.param(
            zone(fairness={"header": "x-api-key"}),
            "fairness.header ('x-api-key') must be a header of its own",
            id="users by the other header of a key",
        ),
        pytest.param(
            zone(fairness={"header": "Authorization"}),
            "fairness.header ('Authorization') must be a header of its own",
            id="users by their tenant's key in capitals",
        ),
        pytest.param(zone(fairness={"header": "x-user:"}), "spec.fairness.header", id="a header with a colon"),
        pytest.param(
            zone(latency={"tokenTime": "999999ns"}), "spec.latency.tokenTime", id="a target in a unit that is none"
        ),
        pytest.param(
            zone(latency={"tokenTime": "0.9ms"}),
            "latency.tokenTime (0.9ms) must be from 1ms to 10m",
            id="a target that nothing meets",
        ),
        pytest.param(
            zone(latency={"firstToken": "10m1ms"}),
            "latency.firstToken (10m1ms) must be from 1ms to 10m",
            id="a target that everything meets",
        ),
        pytest.param(
            zone(latency={"firstToken": "9999999999999999999999999999h"}),
            "spec.latency.firstToken",
            id="a target longer than can be counted",
        ),
        pytest.param(
            zone(seats={"reserved": 5, "limit": 4}),
            "seats.limit must not be below seats.reserved",
            id="more seats reserved than allowed",
        ),
        pytest.param(
            zone(seats={"reserved": "10%", "limit": "9%"}),
            "seats.limit must not be below seats.reserved",
            id="the same in percent",
        ),
        pytest.param(zone(seats={"limit": 0}), "spec.seats.limit", id="a limit of no seat"),
        pytest.param(zone(seats={"limit": "0%"}), "spec.seats.limit", id="a limit of no seat in percent"),
        pytest.param(zone(seats={"reserved": 2**31}), "spec.seats.reserved", id="more seats than any engine has"),
        pytest.param(
            zone(tiers=[{"tier": "cpu", "reserved": "2Gi", "limit": "2000Mi"}]),
            "limit (2000Mi) of tier cpu must not be below reserved (2Gi)",
            id="a tier's limit below what is reserved there",
        ),
        pytest.param(
            zone(tiers=[{"tier": "cpu", "reserved": "1Ki", "limit": 1023}]),
            "limit (1023) of tier cpu must not be below reserved (1Ki)",
            id="the same as a number of bytes",
        ),
        pytest.param(
            zone(tiers=[{"tier": "disk", "reserved": "10%", "limit": "9%"}]),
            "limit (9%) of tier disk must not be below reserved (10%)",
            id="the same of a tier in percent",
        ),
        pytest.param(zone(tiers=[{"tier": "tape"}]), '"cpu", "disk"', id="an unknown tier"),
        pytest.param(
            zone(tiers=[{"tier": "cpu"}, {"tier": "cpu"}]), "Duplicate value", id="a tier that is named twice"
        ),
        pytest.param(zone(tiers=[{"tier": "cpu", "reserved": "1GiB"}]), "reserved", id="bytes in a unit that is none"),
        pytest.param(zone(tiers=[{"tier": "cpu", "limit": -1}]), "limit", id="a limit below nothing"),
        pytest.param(
            zone(tiers=[{"tier": "cpu", "ttl": "500ms"}]),
            "tiers.ttl (500ms) must not be below 1s",
            id="a tier's short ttl",
        ),
        pytest.param(
            zone(tiers=[{"tier": "disk", "ttl": "24h"}], retention={"ttl": "1h"}),
            "no tier's ttl may be above retention.ttl",
            id="a tier that keeps longer than the zone",
        ),
        pytest.param(zone(offload="Some"), '"Prompt", "All", "Never"', id="an unknown way to offload"),
        pytest.param(
            pool(tiers={"cpu": {"bytes": "0Gi"}}), "tiers.cpu.bytes must be 1 or more", id="a tier of nothing"
        ),
        pytest.param(pool(tiers={"cpu": {"bytes": "10%"}}), "spec.tiers.cpu.bytes", id="a tier in percent"),
        pytest.param(pool(tiers={"disk": {"bytes": 1}}), "spec.tiers.disk.folder", id="a disk without a folder"),
        pytest.param(
            pool(tiers={"disk": {"bytes": 1, "folder": "cache"}}), "spec.tiers.disk.folder", id="a folder from nowhere"
        ),
        pytest.param(pool(tiers={"manager": {}}), "serviceAccountName", id="engines that nobody knows"),
        pytest.param(
            storage("S3", fileSystem={"path": "/kv"}),
            "type says which one of fileSystem and s3 has to be there",
            id="a storage of another type than it says",
        ),
        pytest.param(
            storage("FileSystem"),
            "type says which one of fileSystem and s3 has to be there",
            id="a storage that is nowhere",
        ),
        pytest.param(storage("Tape"), '"FileSystem", "S3"', id="an unknown storage"),
        pytest.param(
            storage("FileSystem", fileSystem={"path": "kv"}), "spec.fileSystem.path", id="a storage in no folder"
        ),
        pytest.param(
            storage("FileSystem", fileSystem={"path": "/kv"}, watermark="90%"),
            "watermark is a part of capacity; set capacity, too",
            id="a watermark of nothing",
        ),
        pytest.param(
            storage("FileSystem", fileSystem={"path": "/kv"}, capacity="0Gi"),
            "capacity must be 1 or more",
            id="a storage without room",
        ),
        pytest.param(
            storage("S3", s3={"bucket": "kv-cache", "endpoint": "http://user:secret@minio:9000"}),
            "spec.s3.endpoint",
            id="credentials in a URL",
        ),
        pytest.param(
            storage("S3", s3={"bucket": "kv-cache", "credentialsKey": "../key"}),
            "spec.s3.credentialsKey",
            id="credentials elsewhere",
        ),
        pytest.param(group(storages=[]), "spec.storages", id="a group without a storage"),
        pytest.param(group(storages=["a", "a"]), "a storage is named twice", id="a storage that is named twice"),
        pytest.param(group(quota={"watermark": "90%"}), "spec.quota.limit", id="a watermark of no quota"),
        pytest.param(group(quota={"limit": "10%"}), "spec.quota.limit", id="a quota in percent"),
        pytest.param(
            group(types=[{"type": "S3", "limit": 1}, {"type": "S3", "limit": 2}]),
            "Duplicate value",
            id="two quotas of one type",
        ),
        pytest.param(
            group(pools=[{"namespace": "a", "name": "b"}] * 2), "Duplicate value", id="a pool that is named twice"
        ),
        pytest.param(
            group(
                zones=[{"namespace": "a", "name": "b", "types": [{"type": "S3", "reserved": "2Gi", "limit": "1Gi"}]}]
            ),
            "limit must not be below reserved",
            id="a zone that is promised more than it may have",
        ),
        pytest.param(
            group(zones=[{"namespace": "a", "name": "b", "types": [{"type": "S3", "limit": "0Gi"}]}]),
            "zones.types.limit must be 1 or more; leave it out for as much as the group",
            id="a zone that may have nothing",
        ),
        pytest.param(group(ttl="10ms"), "ttl (10ms) must not be below 1s", id="a group's short ttl"),
        pytest.param(group(evictionPolicy="FIFO"), '"LRU", "LFU"', id="an unknown policy of a group"),
        pytest.param(zone(tenant="-acme"), "spec.tenant", id="a tenant that could not be a file's name"),
        pytest.param(manifest("TenantZone", {}), "spec.pool", id="a zone without a pool"),
        pytest.param(zone(reserve="40%"), 'unknown field "spec.reserve"', id="a field with a typing error"),
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
    answer = control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=body, check=False)

    assert answer.returncode != 0
    assert refusal in answer.stderr


@pytest.fixture(scope="module")
def stored(control_plane: Cluster) -> Iterator[Cluster]:
    """A cluster with a zone that names its tenant, and one that does not."""
    for name, tenant in (("named", {"tenant": "acme"}), ("unnamed", {})):
        control_plane.kubectl("apply", "--filename=-", stdin=manifest("TenantZone", {"pool": "nowhere"} | tenant, name))
    yield control_plane
    control_plane.kubectl("delete", "tenantzones", "named", "unnamed")


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("name", "patch", "refusal"),
    [
        pytest.param("named", {"pool": "other"}, "pool is immutable", id="another pool"),
        pytest.param("named", {"tenant": "burst"}, "tenant is immutable", id="another tenant"),
        pytest.param("named", {"tenant": None}, "tenant is immutable", id="a tenant taken away"),
        pytest.param("unnamed", {"tenant": "acme"}, "tenant is immutable", id="a tenant added"),
    ],
)
def test_what_can_not_be_changed(stored: Cluster, name: str, patch: dict[str, Any], refusal: str):
    answer = stored.kubectl(
        "patch", "tenantzone", name, "--type=merge", "--patch", json.dumps({"spec": patch}), check=False
    )

    assert answer.returncode != 0
    assert refusal in answer.stderr


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("first", "second", "refusal"),
    [
        ({"type": "S3", "s3": {"bucket": "one-bucket"}}, {"s3": {"bucket": "other-bucket"}}, "bucket is immutable"),
        ({"type": "S3", "s3": {"bucket": "one-bucket"}}, {"s3": {"prefix": "p"}}, "even from or to unset"),
        (
            {"type": "FileSystem", "fileSystem": {"path": "/kv"}},
            {"fileSystem": {"path": "/other"}},
            "fileSystem is immutable",
        ),
        (
            {"type": "FileSystem", "fileSystem": {"path": "/kv"}},
            {"type": "S3", "fileSystem": None, "s3": {"bucket": "one-bucket"}},
            "type is immutable",
        ),
        ({"type": "S3", "s3": {"bucket": "one-bucket"}}, {"s3": {"credentialsKey": "key"}, "capacity": "1Gi"}, ""),
    ],
)
def test_where_a_storage_lies_is_not_changed(
    control_plane: Cluster, first: dict[str, Any], second: dict[str, Any], refusal: str
):
    control_plane.kubectl("apply", "--filename=-", stdin=manifest("KVStorage", first, "immutable"))
    patch = ("--type=merge", "--patch", json.dumps({"spec": second}))
    answer = control_plane.kubectl("patch", "kvstorage", "immutable", *patch, check=False)
    control_plane.kubectl("delete", "kvstorage", "immutable")

    assert (answer.returncode != 0) is bool(refusal)
    assert refusal in answer.stderr


@pytest.mark.controlplane
def test_what_is_filled_in(control_plane: Cluster):
    answer = control_plane.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=zone())

    assert json.loads(answer.stdout)["spec"] == {
        "pool": "demo",
        "priority": 0,
        "reserved": 0,
        "weight": 1,
        "lending": {"lendable": "100%", "borrowers": "SameOrHigherPriority", "grace": "30s"},
        "idle": {"after": "60s"},
        "evictionPolicy": "LRU",
        "scrub": "Never",
    }


@pytest.mark.controlplane
def test_what_is_filled_in_means_the_same_as_what_the_contract_assumes(control_plane: Cluster):
    answer = control_plane.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=zone())

    # A dry run is given no generation of its own to count from.
    filled = json.loads(answer.stdout)
    filled["metadata"] |= {"resourceVersion": "1", "generation": 1}
    assert read_zone(filled).config == ZoneConfig(name="sample", tenant="sample", generation=1)


@pytest.mark.controlplane
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            zone(
                weight=3,
                lending={"lendable": "50%", "borrowers": "AnyPriority", "maxLoan": "10m", "grace": "0s"},
                idle={"after": "10m", "evictAfter": "30s", "release": {"share": "100%", "every": "1s"}},
                evictionPolicy="Clock",
                tiers=[
                    {"tier": "cpu", "reserved": "8Gi", "limit": "25%", "ttl": "1h"},
                    {"tier": "disk", "reserved": 10**12, "limit": "1.5Ti"},
                ],
                retention={"ttl": "90m"},
                offload="Prompt",
            ),
            id="a zone that says all of it",
        ),
        pytest.param(
            pool(
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
            ),
            id="a pool that takes unknown tenants in",
        ),
    ],
)
def test_what_the_api_server_takes(control_plane: Cluster, body: str):
    control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=body)


@pytest.mark.controlplane
def test_the_samples_are_valid(control_plane: Cluster):
    files = ["--filename", str(SAMPLES), "--filename", str(SAMPLES / "refused/overcommit.yaml")]
    control_plane.kubectl("apply", "--dry-run=server", *files)


@pytest.mark.controlplane
@pytest.mark.parametrize("file", USES, ids=lambda file: file.stem)
def test_the_sample_of_a_use_is_applied_without_being_stored(control_plane: Cluster, namespace: str, file: Path):
    applied = control_plane.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "--namespace", namespace),
        *("--output=json", "--filename", str(file)),
    )

    answer = json.loads(applied.stdout)
    for body in answer.get("items", [answer]):
        # A dry run is given neither a version nor, by some servers, a generation.
        body["metadata"] |= {"resourceVersion": "1"}
        read = READ[body["kind"]](body)
        assert read.invalid == ""
    assert control_plane.kubectl("get", "zones", "--namespace", namespace, "--output=name").stdout == ""


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_each_field_that_can_be_set_is_shown_in_a_sample(file: Path):
    definition = yaml.safe_load(file.read_text())["spec"]
    (version,) = definition["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    if file.stem == "zonepools":
        # Deprecated, and without effect.
        spec["properties"]["identity"]["properties"]["apiKeys"]["properties"].pop("secretSelector")
    bodies = [body for sample in USES for body in yaml.safe_load_all(sample.read_text())]
    shown = {path for body in bodies if body["kind"] == definition["names"]["kind"] for path in paths(body["spec"], "")}

    assert {path for path, _ in fields(spec, "")} - shown == set()


def test_each_sample_of_a_use_is_in_the_page_of_the_api():
    page = (SAMPLES.parents[1] / "docs" / "api.md").read_text()

    assert sorted(re.findall(r"^\| `([-\w]+\.yaml)` \|", page, re.MULTILINE)) == [file.name for file in USES]


@pytest.mark.controlplane
def test_the_sample_that_should_not_be_valid_is_not(control_plane: Cluster):
    sample = str(SAMPLES / "refused" / "invalid.yaml")
    answer = control_plane.kubectl("apply", "--dry-run=server", "--filename", sample, check=False)

    assert "limit (10%) must not be below reserved (40%)" in answer.stderr


@pytest.mark.controlplane
def test_the_operators_manifests_are_valid(control_plane: Cluster):
    control_plane.kubectl("apply", "--dry-run=client", "--validate=strict", "--kustomize", str(SAMPLES.parent))


@pytest.mark.controlplane
def test_kubectl_shows_what_a_zone_holds_in_tiers(stored: Cluster):
    row = TierSummary("cpu", held=8_450_000_000, reserved=2**34, hits=5).fields()
    enforced = {
        "type": "TiersEnforced",
        "status": "True",
        "reason": "Enforced",
        "message": "1 engine has the tiers",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = json.dumps({"status": {"tiers": [row], "conditions": [enforced]}})
    stored.kubectl("patch", "tenantzone", "named", "--subresource=status", "--type=merge", "--patch", patch)

    head, named = stored.kubectl("get", "tz", "named", "--output=wide").stdout.splitlines()

    columns = ("CPU", "DISK", "TIERS")
    assert [named[head.index(column) :].split()[0] for column in columns[:1]] == ["7.9Gi/16Gi"]
    assert named[head.index("TIERS") :].split()[0] == "True"
    assert all(column in head for column in columns)


@pytest.mark.controlplane
def test_kubectl_explains_a_field(control_plane: Cluster):
    explained = control_plane.kubectl("explain", "tz.spec.lending.lendable").stdout

    assert "How much of the reservation others may use" in explained


@pytest.mark.controlplane
@pytest.mark.parametrize("word", ["tz", "tenantzone", "tenantzones", "tenantzone.tenantzone.io"])
def test_one_zone_can_be_named_with_each_word(stored: Cluster, word: str):
    """A category that is a kind's own name would turn this into an error of kubectl's."""
    found = stored.kubectl("get", word, "--output=name").stdout.split()

    assert found
    assert stored.kubectl("get", word, found[0].rpartition("/")[2], "--output=name").stdout.split() == found[:1]


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_field_has_a_sentence(file: Path):
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    # The API server has a description of its own for this one, and allows no other.
    del schema["properties"]["metadata"]

    silent = [path for path, field in fields(schema, "") if not field.get("description", "").endswith(".")]

    assert silent == []


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from fields(field, f"{path}.{name}")
    for kind in ("items", "additionalProperties"):
        if isinstance(schema.get(kind), dict):
            yield from fields(schema[kind], f"{path}[]")


def paths(value: Any, path: str) -> Iterator[str]:
    """As `fields` names them, of what an object says."""
    yield path
    if isinstance(value, dict):
        for name, entry in value.items():
            # Labels are data, not fields.
            yield from paths(entry, f"{path}[]" if path.endswith(".matchLabels") else f"{path}.{name}")
    if isinstance(value, list):
        for entry in value:
            yield from paths(entry, f"{path}[]")
