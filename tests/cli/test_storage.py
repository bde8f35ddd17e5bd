"""``storage``, and ``doctor`` about the KV-cache manager. All pure; objects have the operator's own statuses."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tenantzone_cli.actions.storage import document, tables
from tenantzone_cli.doctor.diagnosis import diagnose
from tenantzone_cli.doctor.finding import Level
from tenantzone_cli.resources import Thing, read_thing
from tenantzone_operator.cache_manager.declared import read_group, read_storage
from tenantzone_operator.cache_manager.statuses import Found, group_status, storage_status
from tenantzone_operator.kube.conditions import Reason
from tests.cli.healthy import FORBIDDEN, HEALTHY, MISSING, deployment, troubles
from tests.operator.objects import NOW, body

GI = 2**30
URL = "--manager-url=http://tenantzone-manager.tenantzone-system:9470"


def storage(name: str, problem: str = "", **spec: Any) -> Thing:
    """A storage with the status that the operator gives it."""
    made = body(name, spec={"type": "FileSystem", "fileSystem": {"path": f"/mnt/{name}"}} | spec)
    report = {"storage": {"name": name}, "available": not problem, "problem": problem, "used": 5 * GI}
    return read_thing(made | {"status": storage_status(read_storage(made), Found(report=report), now=NOW)})


def group(name: str, usable: int = 1, zones: Any = ()) -> Thing:
    quotas = {"quota": {"limit": "20Gi", "watermark": "95%"}, "types": [{"type": "FileSystem", "limit": "8Gi"}]}
    made = body(name, spec={"storages": ["nfs", "bucket"]} | quotas)
    types = {"FileSystem": {"used": 4 * GI}, "S3": {"used": GI}}
    report = {"total": {"used": 5 * GI}, "types": types, "instances": 2, "evicted_blocks": 7, "evicted_bytes": 70}
    return read_thing(
        made | {"status": group_status(read_group(made), Found(report=report), [], usable, zones, now=NOW)}
    )


def deployed(*arguments: str) -> dict[str, Any]:
    made = deployment(2, 2)
    made["spec"]["template"] = {"spec": {"containers": [{"args": list(arguments)}]}}
    return made


def test_what_is_stored_is_shown_by_storage_and_by_group() -> None:
    lines = list(tables([storage("nfs", capacity="10Gi"), storage("off", enabled=False)], [group("team")]))

    assert [line.split() for line in lines] == [
        ["STORAGE", "TYPE", "HELD", "CAPACITY", "USED%", "ENABLED", "HEALTHY", "READY", "PLACE"],
        ["nfs", "FileSystem", "5Gi", "10Gi", "50", "yes", "True", "True", "/mnt/nfs"],
        ["off", "FileSystem", "5Gi", "-", "-", "no", "True", "False", "/mnt/off"],
        [],
        ["GROUP", "TYPE", "HELD", "LIMIT", "USED%", "WATERMARK", "INSTANCES", "EVICTED", "READY"],
        ["team", "all", "5Gi", "20Gi", "25", "95%", "2", "7", "True"],
        ["FileSystem", "4Gi", "8Gi", "50", "-"],
        ["S3", "1Gi", "-", "-", "-"],
        [],
        ["off:", "spec.enabled", "is", "false,", "so", "nothing", "is", "read", "or", "written", "here"],
    ]


def test_what_zones_are_promised_is_shown() -> None:
    row = {"namespace": "shop", "name": "acme", "type": "S3", "held": GI, "reserved": 2 * GI}
    lines = [line.split() for line in tables([storage("nfs")], [group("team", zones=[row])])]

    assert lines[-2:] == [["ZONE", "GROUP", "TYPE", "HELD", "RESERVED"], ["shop/acme", "team", "S3", "1Gi", "2Gi"]]


def test_what_was_not_checked_says_so() -> None:
    bare = read_thing(body("nfs", spec={"type": "S3", "s3": {"bucket": "b"}}))

    assert list(tables([bare], []))[-1].endswith("check that an operator runs with --manager-url")
    assert "there are no KVStorages" in next(tables([], []))


def test_programs_get_all_of_it() -> None:
    reported = json.loads(document([storage("nfs")], [group("team")]))

    assert reported["storages"][0]["status"]["held"] == 5 * GI
    assert reported["groups"][0]["spec"]["storages"] == ["nfs", "bucket"]


def test_a_cluster_without_a_manager_hears_nothing_of_one() -> None:
    assert troubles(storages=MISSING, groups=MISSING, manager=MISSING) == []
    assert not [finding for finding in diagnose(HEALTHY) if "manager" in finding.subject.lower()]


def test_storages_that_were_not_checked_are_a_failure() -> None:
    bare = read_thing(body("nfs", spec={"type": "S3", "s3": {"bucket": "b"}}))
    (found,) = troubles(storages=[bare], manager=MISSING)

    assert (found.level, found.subject) == (Level.FAIL, "KV-cache manager")
    assert "--manager-url" in found.advice


@pytest.mark.parametrize(
    ("manager", "level", "words"),
    [
        (deployment(1, 1), None, ""),
        (deployment(1, 0), Level.FAIL, "0 of 1 pods are ready"),
        (deployment(2, 1), Level.WARN, "1 of 2 pods are ready"),
        (MISSING, Level.FAIL, "there is no StatefulSet tenantzone-manager"),
        (FORBIDDEN, Level.WARN, "can't be read"),
    ],
)
def test_the_managers_pods_are_looked_at(manager: Any, level: Level | None, words: str) -> None:
    for flag in ([URL], URL.split("=")):
        found = troubles(deployment=deployed("--all-namespaces", *flag), manager=manager)

        assert [finding.level for finding in found] == ([level] if level is not None else [])
        assert all(words in finding.message for finding in found)


def test_a_manager_elsewhere_is_no_failure() -> None:
    assert troubles(deployment=deployed("--manager-url=https://kv.example"), manager=MISSING) == []


def test_what_can_t_be_used_is_named_with_the_reason() -> None:
    broken, well = storage("nfs", "there is no folder"), storage("ssd")
    facts = {"storages": [broken, well, storage("off", enabled=False)], "groups": [group("team", usable=0)]}
    found = {finding.subject: finding for finding in troubles(**facts)}

    assert found["storages nfs"].level is Level.FAIL
    assert found["storages nfs"].message == "there is no folder"
    assert "no storage of the group" in found["groups team"].message
    assert found["storages nfs"].advice.startswith("Check the storage that the message names")
    assert found["groups team"].advice.startswith("Create a KVStorage, or enable one")
    assert found.keys() == {"storages nfs", "groups team"}
    reported = [finding.message for finding in diagnose(replace(HEALTHY, **facts)) if finding.subject == "storages"]
    assert reported == ["1 of 3 can be used: ssd", "disabled by spec.enabled: off"]


@pytest.mark.parametrize(("kind", "thing"), [("kvs", storage("nfs")), ("kvg", group("team"))])
def test_what_to_do_names_the_object(kind: str, thing: Thing) -> None:
    named = {"Invalid", "ManagerRefused", "StorageNotFound", "AnotherVersions"}
    for reason in named | {each.value for each in Reason}:
        ready = {"type": "Ready", "status": "False", "reason": reason, "message": "why", "lastTransitionTime": NOW}
        broken = replace(thing, status={"conditions": [ready], "message": "why"})
        (found,) = troubles(storages=[broken]) if kind == "kvs" else troubles(groups=[broken])
        assert "{" not in found.advice
        assert found.advice.endswith(f" {kind} {thing.name}") or reason not in named
