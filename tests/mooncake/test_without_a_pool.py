"""The parts of storages of type Mooncake that need neither a pool nor its client."""

import sys
from pathlib import Path

import pytest

from tenantzone_contract.cache.mooncake import check_master
from tenantzone_manager.core.records import CacheLocation, LocationSpec, State
from tenantzone_manager.core.settings import Storage
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.storages.backend import Place
from tenantzone_manager.storages.types import make
from tenantzone_runtime.shared.manager.answers import Location, Part
from tenantzone_runtime.shared.storage.places import place_of
from tests.manager.playing import Playing

PLACE = Place(
    "team", "chat", b"a", CacheLocation("loc", "Mooncake", "pool", State.SERVING, 0.0, (LocationSpec("chunk", 4),))
)
MASTER = "127.0.0.1:1"


@pytest.mark.parametrize("prefix", ["", "kv", "a%41", "a b", "ü/ß", "a?b#c", "a//b"])
async def test_an_engine_understands_any_prefix_as_the_manager_means_it(prefix: str) -> None:
    backend = make(Storage("pool", "Mooncake", {"master": MASTER, "prefix": prefix}), "me")
    uri = backend.uri(PLACE, PLACE.location.specs[0])
    place = place_of(Location("loc", "Mooncake", "pool", [Part("chunk", uri, 4)]), "chat", b"a", 4)
    assert place.name == f"{prefix}/objects/team/chat/61-loc.chunk".lstrip("/")
    await backend.close()


@pytest.mark.parametrize(
    "master", ["a/b:5", "a@b:5", "http://a:5", "a b:5", "a\n:5", "::1:5", "[a:5", "a:0", "a:65536"]
)
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(ValueError, match="is no master of Mooncake's"):
        check_master(master)


def test_masters_by_name_and_by_address() -> None:
    assert check_master("mooncake_master.kv:50051") == ("mooncake_master.kv", 50051)
    assert check_master("[::1]:50051") == ("::1", 50051)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": "a\nb"}, "prefix must be one line of text"),
        *(
            ({"http": url}, "must be the URL of the master's HTTP port")
            for url in ("https://a:1", "http://a?b", "http://")
        ),
    ],
)
def test_what_could_never_be_listed_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(Storage("pool", "Mooncake", {"master": MASTER, **options}), "me")


async def test_a_manager_without_the_client_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mooncake", None)
    playing = await Playing(SqliteBackend(tmp_path / "index.db"), tmp_path).start()
    await playing.storage("pool", "Mooncake", options={"master": MASTER})
    await playing.group(["pool", "disk"])
    (problem,) = (each.problem for each in playing.manager.storages.states() if each.storage.name == "pool")
    assert "pip install mooncake-transfer-engine" in problem
    assert len((await playing.write([b"a"])).locations) == 1
    await playing.stop()


async def test_how_a_pool_is_listed_may_change_and_where_it_is_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mooncake", None)
    playing = await Playing(SqliteBackend(tmp_path / "index.db"), tmp_path).start(with_catalog=False)
    for more in ({}, {"http": "http://127.0.0.1:2"}, {"http": "http://127.0.0.1:3"}):
        await playing.storage("pool", "Mooncake", options={"master": MASTER, **more})
    assert playing.manager.catalog.storages["pool"].options["http"] == "http://127.0.0.1:3"
    await playing.stop()
