"""What is written down of calls and of what the manager does by itself, and what can be asked of it."""

import json
import resource
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantzone_contract.cache_names import instance_name
from tenantzone_manager.__main__ import main
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.events.files import EventFiles, older_files
from tenantzone_manager.events.reading import LONGEST_LINE, Selection, Tally, block_key, select
from tenantzone_manager.events.record import Event, encode, joined
from tenantzone_manager.events.writer import Events, EventSettings
from tenantzone_manager.index.backend import IndexUnavailable, Listener
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager, Settings
from tenantzone_manager.server.access import Caller
from tenantzone_manager.server.messages import MAX_KEYS
from tenantzone_manager.server.service import CALLS, Service
from tests.manager.moving import BOTH, FAST, know_cold_storages, move, upper
from tests.manager.playing import SIZE, Clock, Playing, eventually

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


@pytest.mark.parametrize("text", ["", "xyz", "abc", "0x", "12 34"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        block_key(text)


def note_many(events: Events, numbers: range) -> None:
    for number in numbers:
        events.note("evict", keys=[number.to_bytes(8)])
        assert events.flush()


def numbers_of(events: list[Event]) -> list[int]:
    return [int(event.keys[0], 16) for event in events if event.keys]


def test_few_files_stay_and_hold_the_newest_events(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    for number in (1, 7, 12):  # of a time at which more were kept
        (tmp_path / f"events.jsonl.{number}").write_bytes(b"")
    (tmp_path / "events.jsonl.bak").write_bytes(b"")
    size = len(encode(1.0, {"event": "evict", "caller": "manager", "keys": bytes(8)}))
    events = Events(EventSettings(file, max_bytes=3 * size, keep=3), lambda: 1.0)
    note_many(events, range(20))
    events.close()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"events.jsonl", "events.jsonl.1", "events.jsonl.2", "events.jsonl.bak", "events.jsonl.lock"}
    assert all(path.stat().st_size <= 3 * size for path in tmp_path.iterdir())
    tally = Tally()
    assert numbers_of(list(select([file], Selection(), tally))) == list(range(12, 20))
    assert [Path(each).name for each in tally.files] == ["events.jsonl", "events.jsonl.1", "events.jsonl.2"]


def test_one_file_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    events = Events(EventSettings(file, max_bytes=1, keep=1), lambda: 1.0)
    note_many(events, range(3))
    events.close()
    assert {path.name for path in tmp_path.iterdir()} == {"events.jsonl", "events.jsonl.lock"}
    assert numbers_of(list(select([file], Selection(), Tally()))) == [2]


def test_a_line_that_a_crash_has_cut_off_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    whole = encode(1.0, {"event": "evict", "caller": "manager", "keys": bytes(8)})
    file.write_bytes(whole + whole[:-20])
    events = Events(EventSettings(file), lambda: 2.0)
    note_many(events, range(1, 2))
    events.close()
    tally = Tally()
    assert numbers_of(list(select([file], Selection(), tally))) == [0, 1]
    assert tally.skipped == 1


def test_hostile_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    hostile = [
        b"",
        b"\x00\xff\xfe",
        b"[" * 100_000,
        b'{"time":"now","event":"evict","caller":"x"}',
        b'{"time":1,"event":"evict"}',
        b'{"time":1,"event":"evict","caller":"x","keys":["a",1]}',
        b'{"time":1,"event":"evict","caller":"\\ud800"}',
        b'{"time":1e999,"event":"evict","caller":"x"}',
        b'{"time":1,"event":"evict","caller":"' + b"x" * LONGEST_LINE + b'"}',
    ]
    good = encode(5.0, {"event": "evict", "caller": "manager", "keys": bytes(8)})
    unknown = b'{"time":5,"event":"new","caller":"x","keys":["0000000000000001"],"more":[{}]}\n'
    file.write_bytes(b"".join(good + line + b"\n" for line in hostile) + unknown + good[:-2])
    tally = Tally()
    events = list(select([file], Selection(), tally))
    assert numbers_of(events) == [0] * len(hostile) + [1]
    assert (tally.read, tally.skipped) == (len(hostile) + 1, len(hostile) + 1)


def test_files_that_are_rotated_meanwhile_are_read_once(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    line = encode(1.0, {"event": "evict", "caller": "manager", "keys": bytes(8)})
    file.write_bytes(line)
    (tmp_path / "events.jsonl.1").hardlink_to(file)
    assert len(list(select([file], Selection(), Tally()))) == 1


def test_events_of_several_managers_are_told_in_the_order_of_their_times(tmp_path: Path) -> None:
    for name, times in (("a", (1.0, 4.0)), ("b", (2.0, 3.0))):
        lines = [encode(time, {"event": "evict", "caller": name}) for time in times]
        (tmp_path / name).write_bytes(b"".join(lines))
    told = select([tmp_path / "a", tmp_path / "b"], Selection(), Tally())
    assert [event.time for event in told] == [1.0, 2.0, 3.0, 4.0]


def test_a_full_disk_stops_no_call_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.symlink_to("/dev/full")
    dropped: list[int] = []
    events = Events(EventSettings(file, most_waiting=10 * (800 + 8)), lambda: 1.0, dropped.append)
    for number in range(30):
        events.note("evict", keys=[number.to_bytes(8)])
    assert not events.flush()
    assert sum(dropped) == 20
    file.unlink()
    assert events.flush()
    events.note("evict", keys=[(99).to_bytes(8)])
    events.close()
    tally = Tally()
    found = list(select([file], Selection(block=(99).to_bytes(8).hex()), tally))
    assert [event.event for event in found] == ["lost", "evict"]
    assert (tally.lost, tally.read) == (20, 12)


def test_what_is_dropped_is_told_at_its_time(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.symlink_to("/dev/full")
    clock = Clock()
    clock.now = 0.0
    events = Events(EventSettings(file, most_waiting=2 * (800 + 8)), clock)
    for number in range(1, 6):
        clock.now = 10.0 * number
        events.note("evict", keys=[number.to_bytes(8)])
    assert not events.flush()
    file.unlink()
    clock.now = 1000.0
    assert events.flush()
    events.note("evict", keys=[(6).to_bytes(8)])
    events.close()

    def told(begin: float, end: float) -> list[tuple[str, float]]:
        return [(event.event, event.time) for event in select([file], Selection(begin=begin, end=end), Tally())]

    lost = ("lost", 30.0)
    assert told(0, 2000) == [("evict", 10.0), ("evict", 20.0), lost, ("evict", 1000.0)]
    assert (told(0, 30), told(51, 1000)) == ([("evict", 10.0), ("evict", 20.0)], [])
    assert told(30, 31) == told(40, 41) == told(50, 51) == [lost]


def test_what_is_noted_after_what_was_dropped_is_told_after_it(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.symlink_to("/dev/full")
    clock = Clock()
    events = Events(EventSettings(file, most_waiting=10 * 800), clock)
    for size in (0, 2000, 0):  # of these the second has no room
        clock.sleep(1)
        events.note("evict", keys=KEYS[:1] * size)
    assert not events.flush()
    file.unlink()
    events.close()
    told = list(select([file], Selection(), Tally()))
    assert [event.event for event in told] == ["evict", "lost", "evict"]
    assert [event.time for event in told] == [clock.now - 2, clock.now - 1, clock.now]
    assert told[1].until == clock.now - 1


def test_a_disk_that_takes_nothing_to_the_end_keeps_nobody_waiting(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    dropped: list[int] = []
    events = Events(EventSettings(tmp_path / "events.jsonl"), lambda: 1.0, dropped.append)
    events.note("evict", keys=[b"x"])
    assert not events.flush()
    events.close()
    assert sum(dropped) == 1
    events.note("evict", keys=[b"x"])
    assert not events.is_on


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


def test_an_event_that_can_not_be_written_stops_none_after_it(tmp_path: Path) -> None:
    events = Events(EventSettings(tmp_path / "events.jsonl"), lambda: 1.0)
    events.note("evict", "\ud800")
    events.note("evict", "after")
    assert events.flush()
    events.close()
    tally = Tally()
    told = [event.caller for event in select([tmp_path / "events.jsonl"], Selection(), tally)]
    assert (told, tally.lost) == (["manager", "after"], 1)


def test_short_keys_are_blocks_too() -> None:
    assert joined([b"\x02", b"\x01" * 20]) == b"\x02" + bytes(7) + b"\x01" * 8
    assert block_key("02") == "02" + "0" * 14


def test_a_disk_that_is_full_in_the_middle_of_lines_has_none_of_them_twice(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    line = encode(1.0, {"event": "evict", "caller": "manager", "keys": bytes(8)})
    files = EventFiles(file, 2**20, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(line) * 5 // 2, before[1]))
    try:
        assert files.append([line] * 4) == 2
        with pytest.raises(OSError, match="large"):
            files.append([line] * 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert files.append([line] * 2) == 2
    files.close()
    tally = Tally()
    assert len(list(select([file], Selection(), tally))) == 4
    assert tally.skipped == 1


async def test_events_are_in_the_file_soon_though_nobody_asks_for_it(writing: Writing) -> None:
    await writing.write(KEYS[:1])

    async def told() -> list[str]:
        return [event.event for event in select([writing.file], Selection(), Tally())]

    await eventually(told, ["register_instance", "start_write_cache", "finish_write_cache"])


def test_a_file_that_can_not_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        EventFiles(tmp_path, 1, 1)
    assert older_files(tmp_path / "none") == []


async def test_the_command_tells_people_and_programs(writing: Writing, capsys: pytest.CaptureFixture[str]) -> None:
    await writing.write(KEYS[:3], failed=[2])
    await writing.ask("GetCacheLocation", OTHER, instance_id=ACME, block_keys=KEYS)
    assert writing.playing.manager.events.flush()
    with writing.file.open("ab") as file:
        file.write(b'{"time":5,"event":"evict","caller":"\\u001b[31mred","keys":["0101010101010101"]}\n{"time":')
    main(["events", str(writing.file), "--block", KEYS[0].hex(), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [event["event"] for event in told["events"][:3]] == [
        "start_write_cache",
        "finish_write_cache",
        "get_cache_location",
    ]
    assert (told["read"], told["skipped"], told["lost"]) == (5, 1, 0)
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
    main(["events", str(writing.file), "--zone", "nobody", "--json"])
    assert json.loads(capsys.readouterr().out)["events"] == []


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"none can't be read: No such file"):
        main(["events", str(tmp_path / "none")])
    for flag, value, said in (("--block", "key", "hexadecimal digits"), ("--from", "noon", "is no time such as")):
        with pytest.raises(SystemExit):
            main(["events", str(tmp_path), flag, value])
        assert said in capsys.readouterr().err


def test_the_longest_event_that_there_can_be_is_read(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    events = Events(EventSettings(file), lambda: 1.0)
    keys = [number.to_bytes(8) for number in range(MAX_KEYS)]
    longest = "x" * 512
    events.note("finish_write_cache", longest, pod=longest, instance=longest, keys=keys, failed=keys, write_id=longest)
    events.close()
    (event,) = select([file], Selection(), Tally())
    assert len(event.blocks) == 2 * MAX_KEYS
    assert file.stat().st_size < LONGEST_LINE / 2


def test_lines_are_as_they_are_told(tmp_path: Path) -> None:
    line = encode(1.25, {"event": "evict", "caller": "manager", "keys": joined(KEYS[:1]), "asked": 0, "pool": ""})
    assert line == b'{"time":1.25,"event":"evict","caller":"manager","keys":["0101010101010101"]}\n'
    assert msgspec.json.decode(line, type=Event, strict=True).blocks == ["0101010101010101"]
