"""The S3 storage, at a real S3 server in this process's neighbour: moto's."""

import datetime
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from moto.server import ThreadedMotoServer

from tenantzone_manager.core.records import CacheLocation, LocationSpec, State
from tenantzone_manager.core.settings import Moves, Storage
from tenantzone_manager.core.writing import WriteStatus
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.storages import data_storage_manager
from tenantzone_manager.storages.backend import Place, StorageError
from tenantzone_manager.storages.s3 import S3Storage
from tenantzone_manager.storages.types import make
from tests.manager.moving import moves_down_and_up
from tests.manager.playing import INSTANCE, SIZE, Playing, keys, prompt
from tests.odd_s3 import ODD, Odd, odd_server


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="cache")
    # All of moto's servers in a process have the same buckets, with what tests before this one left there.
    for each in client.list_objects_v2(Bucket="cache").get("Contents", ()):
        client.delete_object(Bucket="cache", Key=each["Key"])
    return client


@pytest.fixture
async def playing(s3: Any, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Playing]:
    # On a busy machine the client alone takes seconds to make.
    monkeypatch.setattr(data_storage_manager, "PROBE_TIMEOUT_SECONDS", 60.0)
    made = Playing(SqliteBackend(tmp_path / "index.db"), tmp_path)
    made.clock.now = datetime.datetime.now(datetime.UTC).timestamp()
    await made.start(with_catalog=False)
    await made.storage("disk")
    options = {"bucket": "cache", "prefix": "kv", "endpoint": endpoint, "region": "us-east-1"}
    await made.storage("bucket", "S3", options=options)
    await made.group(["bucket"])
    await made.manager.catalog.register_instance(INSTANCE)
    yield made
    await made.audit()
    await made.stop()


def names(s3: Any) -> list[str]:
    return [each["Key"] for each in s3.list_objects_v2(Bucket="cache", Prefix="kv/objects/").get("Contents", ())]


async def write(playing: Playing, s3: Any, some: list[bytes]) -> Any:
    started = await playing.start_write(some)
    for index, location in started.locations.items():
        uri = urlparse(location.specs[0].uri)
        assert (uri.scheme, uri.netloc) == ("s3", "cache")
        s3.put_object(Bucket="cache", Key=unquote(uri.path[1:]), Body=some[index].ljust(4096, b"\0"))
    written = [some[index] for index in started.locations]
    await playing.manager.writer.finish_write_cache(INSTANCE, started.write_id, written, [])
    return started


async def test_blocks_are_written_to_a_bucket_found_there_and_deleted(playing: Playing, s3: Any) -> None:
    await write(playing, s3, prompt("a", 3))
    match = await playing.match(prompt("a", 3))
    uri = urlparse(match.blocks[2].locations[0].specs[0].uri)
    assert s3.get_object(Bucket="cache", Key=unquote(uri.path[1:]))["Body"].read().rstrip(b"\0") == b"a0002"
    await playing.manager.remover.remove_cache(INSTANCE, prompt("a", 3)[1:])
    await playing.settle()
    assert len(names(s3)) == 1
    assert (await playing.account("s/bucket")).used == 4096


async def test_orphans_in_a_bucket_are_removed(playing: Playing, s3: Any) -> None:
    await write(playing, s3, keys("a"))
    s3.put_object(Bucket="cache", Key="kv/objects/team/chat/00-late.tp0", Body=b"late")
    s3.put_object(Bucket="cache", Key="kv/objects/team/chat/else", Body=b"else")
    playing.clock.sleep(10_000)
    assert await playing.manager.orphans.scan() == 1
    assert len(names(s3)) == 2


async def test_what_exists_in_a_bucket_is_reported(playing: Playing, s3: Any) -> None:
    await write(playing, s3, keys("a"))
    (entry,) = await playing.manager.index.get("blocks/team/chat", keys("a"))
    assert entry is not None
    place = Place("team", "chat", b"a", entry.value.locations[0])
    assert await playing.manager.storages.exist("bucket", [place, place._replace(key=b"b")]) == [True, False]


async def test_blocks_move_between_a_folder_and_a_bucket(playing: Playing, s3: Any) -> None:
    async def below() -> list[bytes]:
        return [s3.get_object(Bucket="cache", Key=name)["Body"].read() for name in names(s3)]

    await moves_down_and_up(playing, "bucket", below)


@pytest.mark.parametrize("content", [b"short", None])
async def test_an_object_that_is_gone_or_of_another_size_is_not_copied(
    playing: Playing, s3: Any, content: bytes | None
) -> None:
    await write(playing, s3, keys("a"))
    await playing.group(["disk", "bucket"], moves=Moves(100 * SIZE))
    for _ in range(3):
        await playing.match(keys("a"))
    await playing.manager.touches.flush()
    (name,) = names(s3)
    if content is None:
        s3.delete_object(Bucket="cache", Key=name)
    else:
        s3.put_object(Bucket="cache", Key=name, Body=content)
    assert dict((await playing.manager.move()).failed) == {"read": 1}


async def test_a_server_that_is_gone_or_belongs_to_another_index_is_passed_over(
    playing: Playing, s3: Any, endpoint: str
) -> None:
    options: dict[str, str | int | bool] = {"bucket": "cache", "prefix": "kv", "endpoint": endpoint, "region": "r"}
    other = make(Storage("bucket", "S3", options), "another index")
    with pytest.raises(StorageError, match="belongs to the index"):
        await other.check_health()
    await other.close()
    await playing.storage("gone", "S3", options={**options, "endpoint": "http://127.0.0.1:9"})
    await playing.group(["gone", "disk"])
    started = await playing.write(keys("x"))
    assert started.statuses == [WriteStatus.WRITE]
    assert started.locations[0].storage == "disk"


@pytest.mark.parametrize("answer", ODD)
async def test_a_server_that_is_no_s3_server_is_a_storage_that_fails(s3: Any, answer: str) -> None:
    spec = LocationSpec("a", 4)
    place = Place("team", "chat", b"a", CacheLocation("id", "S3", "odd", State.SERVING, 0.0, (spec,)))
    with odd_server(ODD[answer]) as url:
        options: dict[str, str | int | bool] = {"bucket": "cache", "prefix": "kv", "endpoint": url, "region": "r"}
        storage = make(Storage("odd", "S3", options), "an index")
        with pytest.raises(StorageError):
            await storage.read(place, spec)
        # An answer without content may be a valid answer, for example an empty listing.
        for work in (storage.check_health(), storage.exist([place]), anext(storage.objects()), storage.delete([place])):
            with suppress(StorageError):
                await work
        await storage.close()


@pytest.mark.parametrize("target", ["", "https://s3.example/cache"])
async def test_a_redirect_is_reported_with_its_target(s3: Any, target: str) -> None:
    with odd_server(Odd(301, {"Location": target} if target else {})) as url:
        options: dict[str, str | int | bool] = {"bucket": "cache", "prefix": "kv", "endpoint": url, "region": "r"}
        storage = make(Storage("odd", "S3", options), "an index")
        with pytest.raises(StorageError, match=f"the server redirects requests.*{target}.*; change the endpoint"):
            await storage.check_health()
        await storage.close()


async def test_an_owner_that_anybody_may_have_written_is_quoted_in_one_short_line(s3: Any, endpoint: str) -> None:
    options: dict[str, str | int | bool] = {"bucket": "cache", "prefix": "kv", "endpoint": endpoint, "region": "r"}
    storage = make(Storage("bucket", "S3", options), "an index")
    s3.put_object(Bucket="cache", Key="kv/owner", Body=b"forged\n\x1b[2J" + b"a" * 2**20)
    with pytest.raises(StorageError, match="belongs to the index forged") as refused:
        await storage.check_health()
    assert len(str(refused.value)) < 2000
    assert str(refused.value).isprintable()
    await storage.close()


async def test_objects_of_others_at_the_top_of_a_bucket_are_passed_over(s3: Any, endpoint: str) -> None:
    options: dict[str, str | int | bool] = {"bucket": "cache", "endpoint": endpoint, "region": "us-east-1"}
    storage = make(Storage("whole", "S3", options), "an index")
    for name in ("objects/", "objects/theirs", "objects/a/b/c/theirs"):
        s3.put_object(Bucket="cache", Key=name, Body=b"theirs")
    assert [found async for found in storage.objects()] == [[]]
    await storage.close()


async def test_a_storage_has_credentials_of_its_own_that_may_change(
    s3: Any, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(key: str) -> None:
        text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
        (tmp_path / "bucket-a").write_text(text)

    used: list[str] = []
    sign = S3SigV4Auth.add_auth

    def note(signer: S3SigV4Auth, request: Any) -> None:
        used.append(signer.credentials.access_key)
        sign(signer, request)

    monkeypatch.setattr(S3SigV4Auth, "add_auth", note)
    options: dict[str, str | int | bool] = {"bucket": "cache", "prefix": "own", "endpoint": endpoint, "region": "r"}
    storage = Storage("bucket", "S3", {**options, "credentials": "bucket-a"})
    made = make(storage, "an index", tmp_path)
    with pytest.raises(StorageError, match="credentials file"):
        await made.check_health()
    for key in ("first", "second"):
        write(key)
        used.clear()
        await made.check_health()
        assert set(used) == {key}
    await made.close()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "."])
def test_credentials_are_in_their_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="must be the name of a file"):
        make(Storage("bucket", "S3", {"bucket": "b", "credentials": name}), "an index", tmp_path)
    with pytest.raises(ValueError, match="started with --credentials"):
        make(Storage("bucket", "S3", {"bucket": "b", "credentials": "bucket-a"}), "an index")


async def test_a_second_storage_on_a_prefix_uses_nothing_there(playing: Playing, s3: Any, endpoint: str) -> None:
    options = {"bucket": "cache", "prefix": "/kv/", "endpoint": endpoint, "region": "us-east-1", "takeover": True}
    await playing.storage("second", "S3", options=options)
    storages = playing.manager.storages
    assert (storages.is_available("bucket"), storages.is_available("second")) == (True, False)
    assert storages.sharing_place("bucket") == ["second"]
    await playing.group(["disk", "second"])
    await playing.manager.catalog.remove_storage("bucket")
    await storages.keep(playing.manager.catalog.storages.values())
    await storages.probe("second")
    assert storages.is_available("second")
    assert s3.get_object(Bucket="cache", Key="kv/owner")["Body"].read().endswith(b"/second")


def test_a_check_that_was_given_up_writes_no_claim(s3: Any, endpoint: str) -> None:
    options: dict[str, str | int | bool] = {"bucket": "cache", "prefix": "kv", "endpoint": endpoint}
    storage = make(Storage("bucket", "S3", options), "index")
    assert isinstance(storage, S3Storage)
    is_given_up = threading.Event()
    is_given_up.set()
    storage._check_claim(is_given_up, s3)
    assert "Contents" not in s3.list_objects_v2(Bucket="cache")
    storage._check_claim(threading.Event(), s3)
    assert [each["Key"] for each in s3.list_objects_v2(Bucket="cache")["Contents"]] == ["kv/owner"]
