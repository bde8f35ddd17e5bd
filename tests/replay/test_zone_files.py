"""Files of zones: a pool's config as engines read it, and objects as kubectl reads and prints them."""

import json
from pathlib import Path

import pytest
import yaml

from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_replay.traces.load import TraceError
from tenantzone_replay.traces.zone_files import read_zones

ZONE = {
    "apiVersion": "tenantzone.io/v1alpha1",
    "kind": "TenantZone",
    "metadata": {"name": "acme", "namespace": "ml", "generation": 7, "managedFields": [{"manager": "kubectl"}]},
    "spec": {"pool": "chat", "reserved": "40%", "lending": {"grace": "30s"}, "tiers": [{"tier": "cpu", "ttl": "1h"}]},
    "status": {"conditions": [{"type": "Accepted", "status": "False"}], "observedGeneration": 6},
}
POOL = {
    "apiVersion": "tenantzone.io/v1alpha1",
    "kind": "ZonePool",
    "metadata": {"name": "chat", "namespace": "ml"},
    "spec": {"selector": {"matchLabels": {"app": "vllm"}}, "adminPort": 9464, "watermarks": {"low": 0.8, "high": 0.9}},
}


def zone(name: str, **spec: object) -> dict[str, object]:
    return {**ZONE, "metadata": {"name": name, "namespace": "ml"}, "spec": {"pool": "chat", **spec}}


def read(folder: Path, *documents: object, blocks: int = 100):
    path = folder / "zones.yaml"
    path.write_text("---\n".join(yaml.safe_dump(document) for document in documents))
    return read_zones(path, blocks)


def test_documents_of_a_file_and_items_of_a_list_are_the_same(tmp_path):
    other = zone("burst", limit=60, tenant="them")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "engine"}}
    documents = read(tmp_path, ZONE, None, other, POOL, pod)
    listed = read(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [ZONE, other, POOL, pod]})
    assert documents == listed
    assert [(each.name, each.tenant, each.reserved, each.limit) for each in documents.zones] == [
        ("acme", "acme", "40%", None),
        ("burst", "them", 0, 60),
    ]
    assert documents.zones[0].lending.grace_seconds == 30
    assert documents.pool.watermarks.high == 0.9


def test_what_kubectl_prints_as_json_is_read_too(tmp_path):
    path = tmp_path / "zones.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [ZONE]}, indent=4))
    assert [each.name for each in read_zones(path, 100).zones] == ["acme"]


def test_the_samples_are_read(tmp_path):
    path = tmp_path / "samples.yaml"
    samples = Path("manifests/samples")
    path.write_text("---\n".join((samples / name).read_text() for name in ("acme.yaml", "burst.yaml", "pool.yaml")))
    assert {each.name for each in read_zones(path, 100).zones} == {"acme", "burst"}


def test_a_pools_config_is_read_as_before(tmp_path):
    config = make_config(
        3, PoolConfig(namespace="ml", name="chat"), (ZoneConfig(name="a", tenant="a", generation=2, reserved=90),)
    )
    path = tmp_path / "config.json"
    path.write_text(dump_config(config))
    assert read_zones(path, 10) == config


REFUSED = [
    ([zone("a", reservd="40%")], r"document 1, TenantZone a: unknown field spec\.reservd"),
    ([ZONE, zone("a", idle={"afterr": "1m"})], r"document 2, TenantZone a: unknown field spec\.idle\.afterr"),
    ([zone("a", tiers=[{"tier": "cpu", "tll": "1h"}])], r"TenantZone a: unknown field spec\.tiers\[0\]\.tll"),
    ([zone("a", tiers=[{"ttl": "1h"}])], r"TenantZone a: spec: tier is missing"),
    ([zone("a", lending={"grace": "soon"})], r"TenantZone a: spec\.lending\.grace: expected a duration such as"),
    ([zone("a", lending={"grace": 5})], r"TenantZone a: spec\.lending\.grace: expected a duration such as .* got 5"),
    ([zone("a", idle="1m")], r"TenantZone a: spec\.idle: expected an object, got '1m'"),
    ([zone("a", reserved="many")], r"TenantZone a: spec: .*reserved"),
    ([zone("a", queue={"depth": 3})], r"TenantZone a: spec: .*depth"),
    ([{**ZONE, "spec": {"reserved": 1}}], r"TenantZone acme: spec\.pool: expected a ZonePool's name"),
    ([{**ZONE, "spec": []}], r"TenantZone acme: spec: expected an object"),
    ([{**ZONE, "metadata": {}}], r"document 1: metadata\.name: expected the object's name"),
    ([{"kind": "List"}], r"document 1: items: expected a list"),
    ([{"kind": "List", "items": [ZONE, "x"]}], r"document 1, items\[1\]: expected an object with a kind"),
    (["text"], r"document 1: expected an object with a kind"),
    ([POOL], r"the file has no TenantZone of tenantzone\.io/v1alpha1, only ZonePool"),
    ([ZONE, zone("a", pool="other")], r"several pools \(ml/chat, ml/other\)"),
    ([zone("a", reserved="60%"), zone("b", reserved=50)], r"the zones reserve 110 blocks, but the engine has 100"),
    ([ZONE, POOL, POOL], r"the file has ZonePool chat 2 times"),
    (
        [ZONE, {**POOL, "spec": {"watermark": {}}}],
        r"document 2, ZonePool chat: unknown field spec\.watermark",
    ),
    ([ZONE, ZONE], r"acme"),
]


@pytest.mark.parametrize(("documents", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_can_not_be_used_is_named(tmp_path, documents, message):
    with pytest.raises(TraceError, match=message):
        read(tmp_path, *documents)


def test_what_is_no_yaml_is_named(tmp_path):
    path = tmp_path / "zones.yaml"
    path.write_text("kind: [")
    with pytest.raises(TraceError, match=r"invalid YAML: .* line 1"):
        read_zones(path, 100)


@pytest.mark.parametrize(
    "text",
    [
        "kind: List\nitems: &all [{kind: List, items: *all}]",
        "kind: List\nitems: " + "[" * 1000 + "]" * 1000,
        '{"a":' * 100_000,
    ],
    ids=["alias of itself", "deep YAML", "deep JSON"],
)
def test_what_has_no_end_is_refused(tmp_path, text):
    path = tmp_path / "zones.yaml"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"zones\.yaml: the file is nested too deeply"):
        read_zones(path, 100)


def refusal(folder, *documents) -> str:
    try:
        read(folder, *documents)
    except TraceError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["tenantzones", "zonepools"])
def test_each_field_of_the_schema_is_known(tmp_path, kind):
    schema = yaml.safe_load(Path(f"crds/{kind}.yaml").read_text())["spec"]["versions"][0]["schema"]
    sample = ZONE if kind == "tenantzones" else POOL
    for name in schema["openAPIV3Schema"]["properties"]["spec"]["properties"]:
        named = {**sample, "spec": {name: {}, **sample["spec"]}}
        # An empty value may be refused, but not because of its name.
        assert "unknown field" not in refusal(tmp_path, *([named] if named["kind"] == "TenantZone" else [ZONE, named]))
