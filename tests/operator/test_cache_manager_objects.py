"""How KVStorages and KVCacheGroups translate for the manager, and their statuses; without any server."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantzone_contract.cache.cache_names import instance_name, pool_group, zone_group
from tenantzone_manager.core.promises import zone_of
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_operator.cache_manager.declared import (
    Declared,
    DeclaredGroup,
    DeclaredStorage,
    read_group,
    read_storage,
)
from tenantzone_operator.cache_manager.members import (
    Members,
    members,
    namespace_rows,
    service_accounts,
    with_members,
    zone_rows,
)
from tenantzone_operator.cache_manager.notices import manager_notices
from tenantzone_operator.cache_manager.statuses import Found, group_status, storage_status, without_gauges
from tenantzone_operator.kube.resources import Pool, read_pool
from tests.operator.objects import NOW, body, zone
from tests.operator.test_every_field import leaves_of, with_value
from tests.operator.world import conditions

CRDS = Path(__file__).parents[2] / "crds"
FILES = {"type": "FileSystem", "fileSystem": {"path": "/mnt/kv"}}
BUCKET = {"type": "S3", "s3": {"bucket": "cache"}}
MEMORY = {"type": "Mooncake", "mooncake": {"master": "mooncake-master.kv:50051"}}
GROUP = {"storages": ["disk"]}
LATER = "2026-01-02T00:00:00Z"

FIELDS: dict[str, dict[str, tuple[dict[str, Any], Any]]] = {
    "kvstorages": {
        "fileSystem.path": (FILES, "/mnt/other"),
        "fileSystem.slotsPerFile": (FILES, 8),
        "s3.bucket": (BUCKET, "other"),
        "s3.prefix": (BUCKET, "kv"),
        "s3.endpoint": (BUCKET, "http://minio:9000"),
        "s3.region": (BUCKET, "eu-1"),
        "s3.credentialsKey": (BUCKET, "bucket-a"),
        "mooncake.master": (MEMORY, "other:50051"),
        "mooncake.prefix": (MEMORY, "kv"),
        "mooncake.http": (MEMORY, "http://mooncake-master.kv:9003"),
        "capacity": (FILES, "1Ti"),
        "watermark": (FILES | {"capacity": "1Ti"}, "90%"),
        "enabled": (FILES, False),
        "takeOver": (FILES, True),
    },
    "kvcachegroups": {
        "storages.[]": (GROUP, "other"),
        "quota.limit": (GROUP | {"quota": {"limit": 1}}, "1Gi"),
        "quota.watermark": (GROUP | {"quota": {"limit": "1Gi"}}, "80%"),
        "types.[].type": (GROUP | {"types": [{"type": "S3", "limit": 1}]}, "FileSystem"),
        "types.[].limit": (GROUP | {"types": [{"type": "S3", "limit": 1}]}, "1Gi"),
        "types.[].watermark": (GROUP | {"types": [{"type": "S3", "limit": 1}]}, "10%"),
        "evictionPolicy": (GROUP, "LFU"),
        "ttl": (GROUP, "1h"),
        "moves.bytesPerSecond": (GROUP | {"moves": {"bytesPerSecond": 1}}, "50M"),
    },
}
"""Each field of a spec but a storage's type: a spec without it, and a value that must make a difference."""

OF_MEMBERS = {
    "pools.[].namespace",
    "pools.[].name",
    "zones.[].namespace",
    "zones.[].name",
    "zones.[].types.[].type",
    "zones.[].types.[].reserved",
    "zones.[].types.[].limit",
}
"""Fields whose meaning depends on other objects; the tests of members show them."""


def storage(status: Any = None, *, generation: int = 1, metadata: Any = None, **spec: Any) -> DeclaredStorage:
    made = body("disk", spec=FILES | spec, status=status or {}, generation=generation, metadata=metadata or {})
    return read_storage(made)


def group(status: Any = None, **spec: Any) -> DeclaredGroup:
    return read_group(body("team", spec=GROUP | spec, status=status or {}))


def sharing(of: DeclaredGroup, pools: list[Pool], zones: Any = (), others: Any = ()) -> Members:
    return members([of, *others], pools, zones, service_accounts(pools)[1])[of.meta.uid]


def instance(name: str, pool: str = "default/demo", of: str = "team", **held: int) -> dict[str, Any]:
    """An instance in the manager's listing."""
    return {"instance": {"name": name, "group": of, "pool": pool}, "bytes_by_type": held}


def pool(name: str, account: str = "", *, age: int = 0, **metadata: Any) -> Pool:
    tiers = {"manager": {"serviceAccountName": account}} if account else {}
    spec = {"selector": {"matchLabels": {"app": name}}, "tiers": tiers}
    return read_pool(body(name, spec=spec, age=age, metadata=metadata))


@pytest.mark.parametrize("kind", FIELDS)
def test_each_field_is_known(kind: str) -> None:
    assert leaves_of(kind) - {"type"} == FIELDS[kind].keys() | (OF_MEMBERS if kind == "kvcachegroups" else set())


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, fields in FIELDS.items() for field in fields])
def test_each_field_reaches_the_manager(kind: str, field: str) -> None:
    spec, value = FIELDS[kind][field]
    read = read_storage if kind == "kvstorages" else read_group
    before, after = (read(body("x", spec=each)) for each in (spec, with_value(spec, field, value)))

    assert before.invalid == after.invalid == ""
    assert before.wanted != after.wanted


def test_storages_that_name_one_place_say_so_both() -> None:
    for problem in ("", "/mnt belongs to the storage disk"):
        reported = report(problem=problem, shares_place_with=["second"])
        found = conditions({"status": storage_status(storage(), Found(report=reported), now=NOW)})
        assert found["PlaceShared"]["reason"] == "PlaceNamedTwice"
        assert "the same location as second" in found["PlaceShared"]["message"]
        assert found["Ready"]["status"] == ("False" if problem else "True")
    alone = conditions({"status": storage_status(storage(), Found(report=report()), now=NOW)})
    assert "PlaceShared" not in alone


def test_a_storage_is_said_as_the_manager_shows_it_again() -> None:
    declared = storage(capacity="1Ki", watermark="90%", enabled=True, fileSystem={"path": "/kv", "slotsPerFile": 0})
    options = {"root": "/kv"}
    assert declared.wanted == {
        "name": "disk",
        "type": "FileSystem",
        "options": options,
        "limit": 1024,
        "watermark": 0.9,
    }


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        (FILES, "/mnt/kv"),
        (BUCKET, "s3://cache"),
        ({"type": "S3", "s3": {"bucket": "b", "prefix": "p/q", "endpoint": "http://x:9"}}, "s3://b/p/q at http://x:9"),
        (MEMORY, "mooncake://mooncake-master.kv:50051"),
        ({"type": "Mooncake", "mooncake": {"master": "m:1", "prefix": "p/q"}}, "mooncake://m:1/p/q"),
    ],
)
def test_a_place_is_shown_in_one_line(spec: dict[str, Any], place: str) -> None:
    assert read_storage(body("x", spec=spec)).place == place


def test_a_storage_of_a_newer_type_is_invalid() -> None:
    declared = storage(type="MemoryPool", fileSystem=None)
    status = storage_status(declared, Found(), now=NOW)
    assert "does not support storages of type MemoryPool" in status["message"]
    assert conditions({"status": status})["Stalled"]["reason"] == "Invalid"


def report(**more: Any) -> dict[str, Any]:
    return {"storage": {"name": "disk"}, "available": True, "problem": "", "used": 1024, **more}


def test_a_manager_that_is_away_takes_nothing_back() -> None:
    well = storage_status(storage(capacity="1Gi"), Found(report=report()), now=NOW)
    away = storage_status(storage(well, capacity="1Gi"), Found(unreachable="it is away"), now=LATER)
    seen = conditions({"status": away})
    assert seen["Registered"] == conditions({"status": well})["Registered"]
    assert (seen["Healthy"]["status"], seen["Ready"]["status"]) == ("Unknown", "Unknown")
    assert (away["held"], away["summary"]) == (1024, "1Ki/1Gi")
    newer = storage_status(storage(away, generation=2), Found(unreachable="it is away"), now=LATER)
    assert conditions({"status": newer})["Registered"]["reason"] == "ManagerUnreachable"


def test_what_moves_all_the_time_is_no_news() -> None:
    first = storage_status(storage(), Found(report=report()), now=NOW)
    second = storage_status(storage(first), Found(report=report(used=2048)), now=LATER)
    assert first != second
    assert without_gauges(first) == without_gauges(second)


def test_a_group_without_a_usable_storage_is_not_ready() -> None:
    reported = {"group": {"name": "team"}, "total": {"used": 0}}
    status = group_status(group(), Found(report=reported), [], 0, now=NOW)
    assert conditions({"status": status})["Ready"]["reason"] == "NoStorage"
    assert conditions({"status": status})["PoolsResolved"]["reason"] == "NoPools"
    ready = group_status(group(), Found(report=reported), [], 1, now=NOW)
    assert conditions({"status": ready})["Ready"]["status"] == "True"


def test_of_two_pools_with_one_service_account_the_older_has_it() -> None:
    old, young, other = pool("old", "vllm", age=9), pool("young", "vllm", age=1), pool("other")
    owners, problems = service_accounts([young, old, other])
    assert owners == {"default/vllm": "default/old"}
    assert problems.keys() == {("default", "young"), ("default", "other")}
    named = group(pools=[{"namespace": "default", "name": name} for name in ("old", "young", "none")])
    shared = sharing(named, [young, old, other])
    assert shared.pools == ("default/old",)
    (_, taken), missing = shared.problems
    assert "the older pool default/old also names the service account default/vllm" in taken
    assert missing == ("default", "ZonePool default/none does not exist")


def test_a_pool_that_is_being_deleted_lets_its_service_account_go() -> None:
    leaving = pool("old", "vllm", age=9, deletionTimestamp=NOW)
    owners, problems = service_accounts([leaving, pool("young", "vllm")])
    assert (owners, problems) == ({"default/vllm": "default/young"}, {})


def test_a_pool_reports_that_there_is_no_manager() -> None:
    spec = {"selector": {}, "tiers": {"manager": {"serviceAccountName": "vllm"}}}
    (without,) = read_pool(body("demo", spec=spec)).not_enforced
    assert "without --manager-url" in without
    assert read_pool(body("demo", spec=spec), has_manager=True).not_enforced == ()
    assert read_pool(body("demo", spec={"selector": {}})).not_enforced == ()


MINE = [instance_name("acme", digest * 64) for digest in "01"]
"""Names as engines make them, for two models."""
ACME = {"namespace": "default", "name": "acme"}


def test_a_pool_s_zones_share_a_group_by_the_pool_s_name_and_others_by_their_own() -> None:
    named = group(pools=[{"namespace": "default", "name": "demo"}], zones=[ACME])
    shared = sharing(named, [pool("demo", "vllm"), pool("other", "x")], [zone("acme", pool="other", tenant="a")])
    assert shared.problems == ()
    assert shared.pools == ("default/demo", "default/other")
    assert shared.aliases == (pool_group("default", "demo"), zone_group("default", "other", "a"))
    reported = with_members(named, shared)
    assert reported == named.wanted | {"pools": list(shared.pools), "aliases": list(shared.aliases)}


def test_of_two_groups_that_name_one_pool_or_zone_the_older_has_it() -> None:
    spec = {"pools": [{"namespace": "default", "name": "demo"}], "zones": [ACME]}
    older = read_group(body("older", age=9, spec=GROUP | spec))
    younger = read_group(body("younger", age=1, spec=GROUP | spec))
    known = [pool("demo", "vllm")], [zone("acme")]
    assert sharing(older, *known, [younger]).problems == ()
    shared = sharing(younger, *known, [older])
    assert (shared.pools, shared.aliases) == ((), ())
    assert shared.problems == (
        ("default", "ZonePool default/demo belongs to the older group older"),
        ("default", "TenantZone default/acme belongs to the older group older"),
    )


def test_a_zone_that_is_not_there_is_named() -> None:
    shared = sharing(group(zones=[ACME]), [pool("demo", "vllm")])
    assert shared.problems == (("default", "TenantZone default/acme does not exist"),)


def as_seen_from(namespace: str | None, named: DeclaredGroup) -> tuple[DeclaredGroup, str]:
    """The group with the status that the operator of a namespace gives it, and why not all share it."""
    there = [pool("demo", "vllm")] if namespace in (None, "default") else []
    zones = [zone("acme")] if there else []
    shared = members([named], there, zones, service_accounts(there)[1], namespace)[named.meta.uid]
    rows = zone_rows(named, shared, [instance(MINE[0], S3=100)], namespace)
    found = Found(report={"total": {"used": 0}})
    status = group_status(named, found, namespace_rows(named, shared, namespace), 1, rows, now=NOW)
    condition = conditions({"status": status})["PoolsResolved"]
    message = "" if condition["status"] == "True" else condition["message"]
    return replace(named, status=status), message


OTHERS = {"namespace": "lab", "name": "acme"}


def test_what_one_operator_says_of_its_namespace_another_keeps() -> None:
    both = group(pools=[{"namespace": "lab", "name": "demo"}], zones=[ACME | {"types": [{"type": "S3"}]}, OTHERS])
    unserved = "no operator that watches the namespace {} has resolved its pools and zones there".format
    missing = "ZonePool lab/demo does not exist; TenantZone lab/acme does not exist"
    seen, message = as_seen_from("default", both)
    assert message == unserved("lab")
    held = [(row["name"], row["held"]) for row in seen.status["zones"]]
    assert held == [("acme", 100)]
    # The other one finds no such objects, and then neither of them writes anything more.
    once, message = as_seen_from("lab", seen)
    assert message == missing
    assert once.status["zones"] == seen.status["zones"]
    for namespace in ("default", "lab", "default"):
        again, _ = as_seen_from(namespace, once)
        assert again.status == once.status
    # An operator of all namespaces finds the same, and writes it in the same way.
    whole, _ = as_seen_from(None, once)
    assert whole.status == once.status
    # An object that is no longer named is kept by no operator.
    fewer, message = as_seen_from("default", replace(once, pools=(), zones=once.zones[:1]))
    assert (message, [row["namespace"] for row in fewer.status["namespaces"]]) == ("", ["default"])


def test_an_operator_for_all_namespaces_reports_zones_in_each() -> None:
    types = {"types": [{"type": "S3", "reserved": "1Ki"}]}
    both = group(zones=[ACME | types, OTHERS | types])
    shared = members([both], [], [], {})[both.meta.uid]
    rows = zone_rows(both, shared, [])
    assert [(row["namespace"], row["reserved"]) for row in rows] == [("default", 1024), ("lab", 1024)]


def test_what_was_not_checked_is_not_taken_for_well() -> None:
    _, message = as_seen_from("default", group(zones=[OTHERS]))
    assert message == "no operator that watches the namespace lab has resolved its pools and zones there"


def test_a_zone_s_quotas_are_said_by_its_name_and_its_instances_are_added_up() -> None:
    types = [{"type": "S3", "reserved": "1Ki", "limit": "4Ki"}, {"type": "FileSystem", "reserved": 0}]
    named = group(zones=[ACME | {"types": types}])
    shared = sharing(named, [pool("demo", "vllm")], [zone("acme")])
    assert with_members(named, shared)["zones"] == {
        "default/demo/acme": {"S3": {"reserved": 1024, "limit": 4096}, "FileSystem": {}}
    }
    mine = [instance(name, S3=100) for name in MINE]
    others = [
        instance(instance_name("burst", "0" * 64)),
        instance(MINE[0], "default/other"),
        instance(MINE[0], of="elsewhere"),
    ]
    rows = zone_rows(named, shared, [*mine, *others])
    assert rows == [
        {"namespace": "default", "name": "acme", "type": "FileSystem", "held": 0, "reserved": 0},
        {"namespace": "default", "name": "acme", "type": "S3", "held": 200, "reserved": 1024},
    ]


def test_a_zone_that_is_not_there_or_has_no_quotas_is_promised_nothing() -> None:
    types = {"types": [{"type": "S3", "reserved": "1Ki"}]}
    named = group(zones=[ACME, {"namespace": "default", "name": "burst"} | types])
    shared = sharing(named, [pool("demo", "vllm")], [zone("acme")])
    assert "zones" not in with_members(named, shared)


def test_a_zone_is_named_as_its_instances_are() -> None:
    named = group(zones=[ACME | {"types": [{"type": "S3", "limit": 1}]}])
    shared = sharing(named, [pool("demo", "vllm")], [zone("acme", tenant="A tenant!")])
    (name,) = with_members(named, shared)["zones"]
    registered = Instance(instance_name("A tenant!", "0" * 64), "team", 16, (Spec("tp0", 1),), pool="default/demo")
    assert zone_of(registered) == name


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"types": [{"type": "S3", "limit": "1Ki"}]}, "zones reserve 2Ki of S3, but the group's limit is 1Ki"),
        ({"quota": {"limit": 2047}}, "zones reserve 2Ki in total"),
        ({}, ""),
    ],
)
def test_promises_that_can_t_all_be_kept_are_refused(spec: dict[str, Any], words: str) -> None:
    zones = [{"namespace": "a", "name": name, "types": [{"type": "S3", "reserved": "1Ki"}]} for name in ("b", "c")]
    declared = group(zones=zones, **spec)
    assert words in declared.invalid
    assert bool(declared.invalid) is bool(words)


def test_a_zone_s_limit_below_its_reservation_is_refused() -> None:
    types = [{"type": "S3", "reserved": 2, "limit": 1}]
    assert "limit must not be below reserved" in group(zones=[ACME | {"types": types}]).invalid


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        (group(zones=[ACME | {"types": [{"type": "S3", "limit": "0Gi"}]}]), "zones[default/acme].types[S3].limit"),
        (group(types=[{"type": "S3", "limit": "0Gi"}]), "types[S3].limit"),
        (group(quota={"limit": "0.0Gi"}), "quota.limit"),
        (group(moves={"bytesPerSecond": "0M"}), "moves.bytesPerSecond"),
        (storage(capacity="0"), "capacity"),
    ],
)
def test_a_limit_of_nothing_is_refused(declared: Declared, path: str) -> None:
    assert declared.invalid == f"{path} must be 1 or more"


def test_each_change_is_reported_once() -> None:
    def reported(before: Any, found: Found) -> tuple[Any, list[str]]:
        after = storage_status(storage(before), found, now=NOW)
        return after, [notice.reason.value for notice in manager_notices(before or {}, after)]

    status, reasons = reported(None, Found(refused="it lies elsewhere"))
    assert reasons == ["NotRegistered"]
    status, reasons = reported(status, Found(refused="it lies elsewhere"))
    assert reasons == []
    status, reasons = reported(status, Found(report=report()))
    assert reasons == ["Registered"]
    status, reasons = reported(status, Found(report=report(problem="there is no folder")))
    assert reasons == ["StorageUnhealthy"]
    status, reasons = reported(status, Found(unreachable="it is away"))
    assert reasons == []
    status, reasons = reported(status, Found(report=report()))
    assert reasons == []


@pytest.mark.parametrize("kind", FIELDS)
def test_types_are_those_that_the_operator_knows(kind: str) -> None:
    (version,) = yaml.safe_load((CRDS / f"{kind}.yaml").read_text())["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    types = spec["type"] if kind == "kvstorages" else spec["types"]["items"]["properties"]["type"]
    assert types["enum"] == ["FileSystem", "S3", "Mooncake"]
