"""The schemas of KVStorage and KVCacheGroup: what the API server refuses, and with which words."""

import json
from typing import Any

import pytest

from hack.controlplane import Cluster
from tests.operator.crd_objects import group, manifest, refused, storage


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        pytest.param(
            storage("S3", fileSystem={"path": "/kv"}),
            "set only the field of fileSystem, s3 and mooncake that matches type",
            id="a storage of another type than it says",
        ),
        pytest.param(
            storage("FileSystem"),
            "set only the field of fileSystem, s3 and mooncake that matches type",
            id="a storage that is nowhere",
        ),
        pytest.param(storage("Tape"), '"FileSystem", "S3", "Mooncake"', id="an unknown storage"),
        pytest.param(
            storage("FileSystem", fileSystem={"path": "kv"}), "spec.fileSystem.path", id="a storage in no folder"
        ),
        pytest.param(
            storage("FileSystem", fileSystem={"path": "/kv"}, watermark="90%"),
            "watermark is a percentage of capacity; set capacity, too",
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
        pytest.param(
            storage("Mooncake", mooncake={"master": "mooncake-master"}),
            "spec.mooncake.master",
            id="a master without a port",
        ),
        pytest.param(
            storage("Mooncake", mooncake={"master": "::1:50051"}),
            "spec.mooncake.master",
            id="a master's address without brackets",
        ),
        pytest.param(
            storage("Mooncake", mooncake={"master": "m:50051", "http": "http://m:9003?all"}),
            "spec.mooncake.http",
            id="a question in a master's URL",
        ),
        pytest.param(
            storage("Mooncake", mooncake={"master": "m:50051", "http": "http://user:secret@m:9003"}),
            "spec.mooncake.http",
            id="credentials in a master's URL",
        ),
        pytest.param(
            storage("Mooncake", s3={"bucket": "kv-cache"}),
            "set only the field of fileSystem, s3 and mooncake that matches type",
            id="a pool that is a bucket",
        ),
        pytest.param(group(storages=[]), "spec.storages", id="a group without a storage"),
        pytest.param(group(storages=["a", "a"]), "a storage is listed twice", id="a storage that is listed twice"),
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
            "zones.types.limit must be 1 or more; omit it if only the group's limits apply",
            id="a zone that may have nothing",
        ),
        pytest.param(group(ttl="10ms"), "ttl (10ms) must not be below 1s", id="a group's short ttl"),
        pytest.param(
            group(moves={"bytesPerSecond": "0M"}),
            "moves.bytesPerSecond must be 1 or more; omit moves to disable moves",
            id="moves at no rate",
        ),
        pytest.param(group(moves={}), "spec.moves.bytesPerSecond", id="moves without a rate"),
        pytest.param(group(evictionPolicy="FIFO"), '"LRU", "LFU"', id="an unknown policy of a group"),
    ],
)
def test_what_the_api_server_refuses(control_plane: Cluster, body: str, refusal: str):
    assert refusal in refused(control_plane, body)


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("first", "second", "refusal"),
    [
        ({"type": "S3", "s3": {"bucket": "one-bucket"}}, {"s3": {"bucket": "other-bucket"}}, "bucket is immutable"),
        ({"type": "S3", "s3": {"bucket": "one-bucket"}}, {"s3": {"prefix": "p"}}, "can't be added, changed or removed"),
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
        (
            {"type": "Mooncake", "mooncake": {"master": "a:50051"}},
            {"mooncake": {"master": "b:50051"}},
            "master and prefix are immutable",
        ),
        (
            {"type": "Mooncake", "mooncake": {"master": "a:50051"}},
            {"mooncake": {"prefix": "kv"}},
            "master and prefix are immutable",
        ),
        ({"type": "Mooncake", "mooncake": {"master": "a:50051"}}, {"mooncake": {"http": "http://a:9003"}}, ""),
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
