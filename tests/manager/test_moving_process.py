"""A manager moves blocks from a folder to a bucket on its own, and is killed meanwhile, again and again."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import boto3
import pytest
from moto.server import ThreadedMotoServer

from hack.demo.console import wait_until
from hack.harness.cache_manager import CacheManagerProcess

SIZE = 2**16
KEYS = [b64encode(bytes([number]) * 32).decode() for number in range(24)]
STAY = 4
"""Blocks that the folder has room for below its watermark."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="moving")
    yield client
    server.stop()


@pytest.fixture
def manager(tmp_path: Path, bucket: Any) -> Iterator[CacheManagerProcess]:
    # A machine that is busy elsewhere still copies a block within them: of a late one the bucket rests for 30 seconds.
    timing = ("--lease", "4", "--write-timeout", "4")
    made = CacheManagerProcess(tmp_path / "manager", {"chat": "ml/chat"}, arguments=timing)
    made.start()
    options = {"bucket": "moving", "endpoint": bucket.meta.endpoint_url, "region": "us-east-1"}
    made.ask("RegisterStorage", storage={"name": "bucket", "type": "S3", "options": options})
    yield made
    made.kill()


def test_it_loses_and_leaks_nothing(manager: CacheManagerProcess, bucket: Any) -> None:
    group = {"name": "team", "pools": ["ml/chat"], "storages": ["files", "bucket"]}
    manager.share(group)
    instance = {"name": "chat", "group": "team", "block_size": 16, "specs": [{"name": "all", "size": SIZE}]}
    manager.ask("RegisterInstance", "chat", instance=instance)
    write(manager)
    quota = {"limit": 4 * len(KEYS) * SIZE, "watermark": STAY / (4 * len(KEYS))}
    manager.share({**group, "types": {"FileSystem": quota}, "moves": {"bytes_per_second": 8 * SIZE}})
    for copied in (2, 11):
        await_that(lambda copied=copied: len(objects(bucket)) >= copied)
        manager.kill()
        manager.start()
        assert [content(manager, bucket, key) for key in KEYS] == [written(key) for key in KEYS]
    await_that(lambda: held(manager, "FileSystem") == STAY * SIZE)
    assert [content(manager, bucket, key) for key in KEYS] == [written(key) for key in KEYS]

    manager.ask("TrimCache", "chat", instance_id="chat")
    await_that(lambda: held(manager, "FileSystem", "used") == held(manager, "S3", "used") == 0)
    assert not objects(bucket)
    assert not [path for path in (manager.storage / "objects").rglob("*") if path.is_file()]


def await_that(condition: Callable[[], bool]) -> None:
    # Often enough to find the manager at work, and seldom enough to leave time for the bucket in this process.
    wait_until(condition, lambda: "the manager", timeout=240, poll=0.02)


def written(key: str) -> bytes:
    return key.encode() * (SIZE // len(key)) + b"\0" * (SIZE % len(key))


def write(manager: CacheManagerProcess) -> None:
    started = manager.ask("StartWriteCache", "chat", instance_id="chat", block_keys=KEYS, write_timeout_seconds=60)
    for key, block in zip(KEYS, started["blocks"], strict=True):
        (part,) = block["location"]["specs"]
        Path(unquote(urlparse(part["uri"]).path)).write_bytes(written(key))
    manager.ask("FinishWriteCache", "chat", instance_id="chat", write_id=started["write_id"], block_keys=KEYS)


def content(manager: CacheManagerProcess, bucket: Any, key: str) -> bytes:
    """What an engine reads that asks now."""
    found = manager.ask("GetCacheLocation", "chat", instance_id="chat", block_keys=[key], query_type="key")
    uri = urlparse(found["blocks"][0]["locations"][0]["specs"][0]["uri"])
    if uri.scheme == "file":
        return Path(unquote(uri.path)).read_bytes()
    body: bytes = bucket.get_object(Bucket=uri.netloc, Key=unquote(uri.path[1:]))["Body"].read()
    return body


def objects(bucket: Any) -> list[str]:
    return [each["Key"] for each in bucket.list_objects_v2(Bucket="moving", Prefix="objects/").get("Contents", ())]


def held(manager: CacheManagerProcess, storage_type: str, what: str = "") -> int:
    """Bytes in a storage type: those that serve or are about to, or all that are used."""
    (reported,) = manager.ask("ListInstanceGroups")["groups"]
    usage = reported["types"].get(storage_type, {"used": 0, "deleting": 0})
    return int(usage["used"] if what else usage["used"] - usage["deleting"])
