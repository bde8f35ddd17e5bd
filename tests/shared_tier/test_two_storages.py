"""Two storages of one pool: one continues where the other fails, and shared content is read in their order."""

from dataclasses import replace

import pytest

from tests.shared_tier.engines import PATIENT, contents, engines_of, group, prompt
from tests.shared_tier.test_storage_faults import HeldStorages, Query, fail

KEYS = prompt("a", 4)


@pytest.fixture
def manager(shared):
    """A manager with the storages ``files`` and ``other``; ``burst`` has only the second one."""
    root = shared.storage.parent / "other"
    root.mkdir()
    shared.ask("RegisterStorage", storage={"name": "other", "type": "FileSystem", "options": {"root": str(root)}})
    shared.ask("PutInstanceGroup", group={"storages": ["files", "other"], **group("chat")})
    shared.ask("PutInstanceGroup", group={"storages": ["other"], **group("chat", "burst")})
    return shared


@pytest.fixture
def engine(manager):
    with engines_of(manager.url, "acme", "burst") as make:
        yield make


def also_to_the_other(engine, manager, keys):
    """Copies a prompt in the first storage into the second one, too."""
    manager.ask("DisableStorage", name="files")
    assert engine.store("acme", keys) == keys
    manager.ask("EnableStorage", name="files")


def test_one_that_hangs_in_reads_keeps_no_engine_from_the_other(engine):
    storages = HeldStorages("/storage/")
    mine = engine(storages=storages)
    long = prompt("long", 12)
    mine.store("acme", long)
    mine.store("burst", KEYS)
    storages.goes_on.clear()
    query = Query(long)
    number, _ = mine.begin_load("acme", query, mine.hits("acme", query))
    storages.await_reads(8)
    assert mine.load("burst", KEYS) == contents(KEYS)
    storages.goes_on.set()
    assert len(mine.end(number).moved) == 12


def test_one_that_hangs_in_writes_keeps_no_engine_from_the_other(engine):
    storages = HeldStorages("/storage/")
    mine = engine(storages=storages)
    storages.goes_on.clear()
    numbers = [mine.begin_store("acme", Query(prompt(f"a{number}", 2))) for number in range(8)]
    mine.wait(lambda: storages.writes == 4)
    assert mine.store("burst", KEYS) == KEYS
    storages.goes_on.set()
    assert [len(mine.end(number).moved) for number in numbers] == [2] * 8


def test_what_begins_in_one_that_is_well_and_goes_on_in_one_that_failed_tries_it(engine, manager):
    mine = engine()
    mine.store("acme", KEYS)
    also_to_the_other(mine, manager, KEYS[:1])
    fail(mine)
    assert mine.load("acme", KEYS) == contents(KEYS)
    assert not mine.tier.problem


def test_one_that_failed_and_is_well_again_is_not_preferred(engine, manager):
    storages = HeldStorages("/other/")
    mine = engine(storages=storages)
    mine.store("acme", KEYS)
    also_to_the_other(mine, manager, KEYS)
    fail(mine, "files", seconds=3600)
    fail(mine, "other")
    assert mine.load("acme", KEYS) == contents(KEYS)
    assert storages.reads == 4
    mine.tier._loading.breakers.note("files", "")
    assert mine.load("acme", KEYS) == contents(KEYS)
    assert storages.reads == 4, "the other one comes first"


def test_one_that_failed_is_not_asked_for_what_the_other_has_lost(engine, manager):
    storages = HeldStorages("/storage/")
    mine = engine(storages=storages)
    mine.store("acme", KEYS)
    also_to_the_other(mine, manager, KEYS)
    for lost in (manager.storage.parent / "other").rglob("*.chunk"):
        lost.unlink()
    fail(mine, seconds=3600)
    assert mine.load("acme", KEYS) == []
    assert storages.reads == 0


def test_chunks_of_one_write_go_to_two_of_them(engine, manager):
    mine = engine(settings=replace(PATIENT, writers=1))
    assert mine.store("acme", KEYS[:1]) == KEYS[:1]
    (first,) = manager.storage.rglob("*.chunk")
    size = 2 * first.stat().st_size
    manager.ask("RegisterStorage", storage={
        "name": "files", "type": "FileSystem", "options": {"root": str(manager.storage)}, "limit": size,
    })  # fmt: skip
    assert mine.store("acme", KEYS) == KEYS
    assert len(list(manager.storage.rglob("*.chunk"))) == 2
    assert mine.load("acme", KEYS) == contents(KEYS)
