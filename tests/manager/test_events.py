"""What is recorded of calls and of the manager's own work, and how it is queried."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenantzone_contract.cache.cache_names import instance_name
from tenantzone_manager.__main__ import main
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.events.files import EventFiles
from tenantzone_manager.events.reading import Selection, Tally, block_key, select
from tenantzone_manager.events.record import Event
from tenantzone_manager.events.writer import EventSettings
from tenantzone_manager.index.backend import IndexUnavailable, Listener
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager, Settings
from tenantzone_manager.reads.hits import KeyGroup
from tenantzone_manager.server.access import Caller
from tenantzone_manager.server.service import CALLS, Service
from tests.manager.moving import BOTH, FAST, know_cold_storages, move, upper
from tests.manager.playing import SIZE, Playing, eventually

ACME = instance_name("acme", "a" * 64)
ENGINE = Caller("ml/engine", pool="ml/chat", pod="chat-0")
OTHER = Caller("ml/engine", pool="ml/chat", pod="chat-1")
ADMIN = Caller("tz/operator", is_admin=True)
BY_NAME = {call.name: call for call in CALLS}
KEYS = [bytes([number]) * 32 for number in range(1, 7)]
SHORT = [key.hex()[:16] for key in KEYS]


class Writing:
    """A manager that writes events, and engines that ask it."""

    def __init__(self, playing: Playing, file: Path) -> None:
        self.playing = playing
        self.file = file
        self._service = Service(playing.manager)

    async def ask(self, call_name: str, caller: Caller = ENGINE, **fields: Any) -> Any:
        call = BY_NAME[call_name]
        return await self._service.call(call, caller, call.request(**fields))

    async def write(self, keys: list[bytes], failed: list[int] | None = None, caller: Caller = ENGINE) -> str:
        started = await self.ask("StartWriteCache", caller, instance_id=ACME, block_keys=keys)
        ended = {"write_id": started.write_id, "block_keys": keys, "failed_blocks": failed or []}
        await self.ask("FinishWriteCache", caller, instance_id=ACME, **ended)
        return str(started.write_id)

    def events(self, **asked: Any) -> list[Event]:
        assert self.playing.manager.events.flush()
        return list(select([self.file], Selection(**asked), Tally()))

    def last(self) -> Event:
        return self.events()[-1]


@pytest.fixture
async def writing(tmp_path: Path) -> AsyncIterator[Writing]:
    file = tmp_path / "events" / "events.jsonl"
    settings = Settings(orphan_grace=0.0, events=EventSettings(file))
    playing = Playing(SqliteBackend(tmp_path / "index.db"), tmp_path, settings=settings)
    await playing.start()
    await playing.group(pools=("ml/chat",))
    made = Writing(playing, file)
    await made.ask("RegisterInstance", instance=Instance(ACME, "team", 16, (Spec("tp0", SIZE),)))
    yield made
    await playing.stop()


async def test_a_query_s_event_names_the_blocks_that_were_given_out(writing: Writing) -> None:
    await writing.write([KEYS[0]])
    await writing.write([KEYS[0], KEYS[1], KEYS[2]])
    await writing.ask("RemoveCache", instance_id=ACME, block_keys=[KEYS[1]])
    for query, window, given in (("key", 0, [0, 2]), ("prefix", 0, [0]), ("window", 1, [2])):
        asked = {"block_keys": KEYS[:4], "query_type": query, "window": window}
        await writing.ask("GetCacheLocation", OTHER, instance_id=ACME, **asked)
        event = writing.last()
        assert (event.event, event.query, event.asked) == ("get_cache_location", query, 4)
        assert event.keys == [SHORT[index] for index in given]
        assert (event.caller, event.pod, event.pool) == ("ml/engine", "chat-1", "ml/chat")
        assert (event.instance, event.group, event.time) == (ACME, "team", writing.playing.clock.now)


async def test_a_query_by_groups_names_what_each_group_was_given(writing: Writing) -> None:
    prompt, full, window = KEYS[:5], *([key + suffix for key in KEYS[:4]] for suffix in (b"f", b"w"))
    await writing.write([*full, *window])
    for groups, given in (([KeyGroup(b"f"), KeyGroup(b"w", 2)], [0, 1, 2, 3, 2, 3]), ([KeyGroup(b"w", 2)], [2, 3])):
        asked = {"block_keys": prompt, "query_type": "groups", "groups": groups}
        await writing.ask("GetCacheLocation", OTHER, instance_id=ACME, **asked)
        event = writing.last()
        assert (event.query, event.asked) == ("groups", 5)
        assert event.keys == [SHORT[index] for index in given]


async def test_writes_name_what_was_begun_written_failed_and_late(writing: Writing) -> None:
    await writing.write([KEYS[0]])
    write_id = await writing.write(KEYS[:3], failed=[2])
    began, ended = writing.events()[-2:]
    assert (began.event, began.keys, began.asked) == ("start_write_cache", SHORT[1:3], 3)
    assert (ended.event, ended.keys, ended.failed) == ("finish_write_cache", [SHORT[1]], [SHORT[2]])
    # The first block is another write's: it is not this one's to end.
    assert ended.expired == [SHORT[0]]
    assert began.write_id == ended.write_id == write_id
    assert (began.caller, began.pod) == (ended.caller, ended.pod) == ("ml/engine", "chat-0")


async def test_what_is_removed_is_named_and_nothing_else(writing: Writing) -> None:
    await writing.write(KEYS[:3])
    await writing.ask("RemoveCache", instance_id=ACME, block_keys=[KEYS[2], KEYS[5]])
    assert (writing.last().event, writing.last().keys) == ("remove_cache", [SHORT[2]])
    await writing.ask("TrimCache", OTHER, instance_id=ACME)
    trimmed = writing.last()
    assert (trimmed.event, sorted(trimmed.keys), trimmed.pod) == ("trim_cache", SHORT[:2], "chat-1")
    before = len(writing.events())
    await writing.ask("RemoveCache", instance_id=ACME, block_keys=[KEYS[5]])
    assert len(writing.events()) == before


async def test_what_the_manager_takes_is_named_too(writing: Writing) -> None:
    playing = writing.playing
    await writing.write(KEYS[:4])
    await writing.ask("StartWriteCache", instance_id=ACME, block_keys=KEYS[:6])
    await playing.group(pools=("ml/chat",), limit=4 * SIZE, watermark=0.5)
    await playing.settle()
    by_event = {event.event: event for event in writing.events(caller="manager")}
    evicted = by_event["evict"]
    assert sorted(evicted.keys) == SHORT[2:4]
    assert (evicted.type, evicted.instance, evicted.group, evicted.pool) == ("FileSystem", ACME, "team", "ml/chat")
    assert sorted(by_event["expire_write"].keys) == SHORT[4:6]
    deleted = {key for event in writing.events() if event.event == "delete" for key in event.keys}
    assert deleted == set(SHORT[2:6])


async def test_what_moves_is_named_with_where_to(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    know_cold_storages(monkeypatch)
    playing = writing.playing
    await playing.storage("cold", "Cold")
    terms = {"pools": ("ml/chat",), "moves": FAST}
    await playing.group(BOTH, types=upper(4), **terms)
    await playing.write(KEYS[:3], playing.manager.catalog.instances[ACME])
    await move(playing)
    copied, left = writing.events(caller="manager")
    assert (copied.event, copied.keys, copied.storage, copied.type) == ("copy_down", [SHORT[2]], "cold", "Cold")
    assert (left.event, left.keys, left.type) == ("let_go", [SHORT[2]], "FileSystem")
    assert (copied.instance, copied.group, copied.pool) == (ACME, "team", "ml/chat")
    await playing.settle()
    deleted = writing.last()
    assert (deleted.event, deleted.keys, deleted.storage) == ("delete", [SHORT[2]], "disk")

    await playing.group(BOTH, **terms)
    for _ in range(3):
        await writing.ask("GetCacheLocation", instance_id=ACME, block_keys=KEYS[:3])
    await move(playing)
    copied = writing.last()
    assert (copied.event, copied.keys, copied.storage) == ("copy_up", [SHORT[2]], "disk")


async def test_what_administrators_change_names_them(writing: Writing) -> None:
    await writing.ask("DisableStorage", ADMIN, name="disk")
    event = writing.last()
    assert (event.event, event.storage, event.caller) == ("disable_storage", "disk", "tz/operator")


async def test_a_block_s_story_and_a_zone_s(writing: Writing) -> None:
    await writing.write(KEYS[:2])
    writing.playing.clock.sleep(10)
    await writing.ask("GetCacheLocation", OTHER, instance_id=ACME, block_keys=KEYS[:3])
    story = [(event.event, event.pod) for event in writing.events(block=block_key(KEYS[1].hex()))]
    assert story == [
        ("start_write_cache", "chat-0"),
        ("finish_write_cache", "chat-0"),
        ("get_cache_location", "chat-1"),
    ]
    assert writing.events(block=block_key(KEYS[2].hex())) == []
    now = writing.playing.clock.now
    assert [event.event for event in writing.events(tenant="acme", begin=now)] == ["get_cache_location"]
    assert [event.event for event in writing.events(tenant="acme", end=now)][-1] == "finish_write_cache"
    assert writing.events(tenant="ac") == []
    for field, value in (("group", "team"), ("instance", ACME), ("pool", "ml/chat"), ("caller", "ml/engine")):
        assert len(writing.events(**{field: value})) >= 3
        assert writing.events(**{field: "x"}) == []


class Broken(SqliteBackend):
    """Is opened and closed, and fails at either when it is done."""

    fails_to_start = False

    async def start(self, listener: Listener) -> None:
        await super().start(listener)
        if self.fails_to_start:
            await super().close()
            raise IndexUnavailable("it does not answer")

    async def close(self) -> None:
        await super().close()
        raise OSError("it can't be closed")


async def test_a_start_that_fails_leaves_no_events_open(tmp_path: Path) -> None:
    backend = Broken(tmp_path / "index.db")
    backend.fails_to_start = True
    manager = CacheManager(backend, Settings(events=EventSettings(tmp_path / "events.jsonl")))
    with pytest.raises(IndexUnavailable):
        await manager.start()
    assert not manager.events.is_on
    EventFiles(tmp_path / "events.jsonl", 1, 1).close()
    backend.fails_to_start = False
    await manager.start()
    assert manager.events.is_on
    with pytest.raises(OSError, match="can't be closed"):
        await manager.stop()


async def test_an_end_that_fails_writes_what_was_noted(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    manager = CacheManager(Broken(tmp_path / "index.db"), Settings(events=EventSettings(file)))
    await manager.start(in_background=False)
    manager.events.note("evict", keys=KEYS)
    with pytest.raises(OSError, match="can't be closed"):
        await manager.stop()
    assert [event.keys for event in select([file], Selection(), Tally())] == [SHORT]


async def test_dropped_events_are_a_metric(tmp_path: Path) -> None:
    settings = Settings(events=EventSettings(tmp_path / "events.jsonl", most_waiting=1))
    playing = await Playing(SqliteBackend(tmp_path / "index.db"), tmp_path, settings=settings).start()
    playing.manager.events.note("evict", keys=KEYS)
    assert playing.manager.metrics.registry.get_sample_value("tenantzone_manager_dropped_events_total") == 1
    await playing.stop()


async def test_events_are_in_the_file_soon_without_a_flush(writing: Writing) -> None:
    await writing.write(KEYS[:1])

    async def reported() -> list[str]:
        return [event.event for event in select([writing.file], Selection(), Tally())]

    await eventually(reported, ["register_instance", "start_write_cache", "finish_write_cache"])


async def test_the_command_informs_people_and_programs(writing: Writing, capsys: pytest.CaptureFixture[str]) -> None:
    await writing.write(KEYS[:3], failed=[2])
    await writing.ask("GetCacheLocation", OTHER, instance_id=ACME, block_keys=KEYS)
    assert writing.playing.manager.events.flush()
    with writing.file.open("ab") as file:
        file.write(b'{"time":5,"event":"evict","caller":"\\u001b[31mred","keys":["0101010101010101"]}\n{"time":')
    main(["events", str(writing.file), "--block", KEYS[0].hex(), "--json"])
    reported = json.loads(capsys.readouterr().out)
    assert [event["event"] for event in reported["events"][:3]] == [
        "start_write_cache",
        "finish_write_cache",
        "get_cache_location",
    ]
    assert (reported["read"], reported["skipped"], reported["lost"]) == (5, 1, 0)
    main(["events", str(writing.file), "--block", KEYS[2].hex()])
    lines = capsys.readouterr().out.splitlines()
    assert [line[26:48].rstrip() for line in lines[:3]] == ["WHAT", "began to write", "failed to write"]
    assert "1970-01-12T13:46:40.000Z" in lines[1]
    assert "ml/engine (chat-0)" in lines[1]
    assert lines[-2:] == ["5 events in 1 files", "1 lines are no events, and were skipped"]
    main(["events", str(writing.file), "--zone", "acme", "--from", "1970-01-12T13:46:41"])
    assert len(capsys.readouterr().out.splitlines()) == 4
    main(["events", str(writing.file), "--zone", "acme"])
    rows = [line[26:56].split() for line in capsys.readouterr().out.splitlines()[1:-3]]
    assert rows == [
        ["register", "instance", "0"],
        ["began", "to", "write", "3"],
        ["wrote", "2"],
        ["failed", "to", "write", "1"],
        ["read", "2"],
    ]
    main(["events", str(writing.file), "--to", "1970-01-02"])
    assert "\x1b" not in capsys.readouterr().out
    main(["events", str(writing.file), "--zone", "unknown", "--json"])
    assert json.loads(capsys.readouterr().out)["events"] == []


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"none can't be read: No such file"):
        main(["events", str(tmp_path / "none")])
    for flag, value, said in (("--block", "key", "hexadecimal digits"), ("--from", "noon", "is no time such as")):
        with pytest.raises(SystemExit):
            main(["events", str(tmp_path), flag, value])
        assert said in capsys.readouterr().err
