"""Events in files without a manager: how many stay, disks that are full, and lines that are none or cut off."""

import resource
import signal
from pathlib import Path

import msgspec
import pytest

from tenantzone_contract.line_files import older_files
from tenantzone_manager.events.files import EventFiles
from tenantzone_manager.events.reading import LONGEST_LINE, Selection, Tally, block_key, select
from tenantzone_manager.events.record import Event, encode, joined
from tenantzone_manager.events.writer import Events, EventSettings
from tenantzone_manager.server.messages import MAX_KEYS
from tests.manager.playing import Clock

KEY = bytes([1]) * 32


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


def test_events_of_several_managers_are_shown_in_the_order_of_their_times(tmp_path: Path) -> None:
    for name, times in (("a", (1.0, 4.0)), ("b", (2.0, 3.0))):
        lines = [encode(time, {"event": "evict", "caller": name}) for time in times]
        (tmp_path / name).write_bytes(b"".join(lines))
    reported = select([tmp_path / "a", tmp_path / "b"], Selection(), Tally())
    assert [event.time for event in reported] == [1.0, 2.0, 3.0, 4.0]


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


def test_what_is_dropped_is_reported_at_its_time(tmp_path: Path) -> None:
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

    def reported(begin: float, end: float) -> list[tuple[str, float]]:
        return [(event.event, event.time) for event in select([file], Selection(begin=begin, end=end), Tally())]

    lost = ("lost", 30.0)
    assert reported(0, 2000) == [("evict", 10.0), ("evict", 20.0), lost, ("evict", 1000.0)]
    assert (reported(0, 30), reported(51, 1000)) == ([("evict", 10.0), ("evict", 20.0)], [])
    assert reported(30, 31) == reported(40, 41) == reported(50, 51) == [lost]


def test_what_is_noted_after_what_was_dropped_is_reported_after_it(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.symlink_to("/dev/full")
    clock = Clock()
    events = Events(EventSettings(file, most_waiting=10 * 800), clock)
    for size in (0, 2000, 0):  # the second one has no room
        clock.sleep(1)
        events.note("evict", keys=[KEY] * size)
    assert not events.flush()
    file.unlink()
    events.close()
    reported = list(select([file], Selection(), Tally()))
    assert [event.event for event in reported] == ["evict", "lost", "evict"]
    assert [event.time for event in reported] == [clock.now - 2, clock.now - 1, clock.now]
    assert reported[1].until == clock.now - 1


def test_a_disk_that_takes_nothing_to_the_end_keeps_no_caller_waiting(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    dropped: list[int] = []
    events = Events(EventSettings(tmp_path / "events.jsonl"), lambda: 1.0, dropped.append)
    events.note("evict", keys=[b"x"])
    assert not events.flush()
    events.close()
    assert sum(dropped) == 1
    events.note("evict", keys=[b"x"])
    assert not events.is_on


def test_an_event_that_can_not_be_written_stops_none_after_it(tmp_path: Path) -> None:
    events = Events(EventSettings(tmp_path / "events.jsonl"), lambda: 1.0)
    events.note("evict", "\ud800")
    events.note("evict", "after")
    assert events.flush()
    events.close()
    tally = Tally()
    reported = [event.caller for event in select([tmp_path / "events.jsonl"], Selection(), tally)]
    assert (reported, tally.lost) == (["manager", "after"], 1)


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
    assert tally.skipped == 0, "the part of a line was removed"


def test_a_file_that_can_not_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        EventFiles(tmp_path, 1, 1)
    assert older_files(tmp_path / "none") == []


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


def test_lines_are_as_they_are_given(tmp_path: Path) -> None:
    line = encode(1.25, {"event": "evict", "caller": "manager", "keys": joined([KEY]), "asked": 0, "pool": ""})
    assert line == b'{"time":1.25,"event":"evict","caller":"manager","keys":["0101010101010101"]}\n'
    assert msgspec.json.decode(line, type=Event, strict=True).blocks == ["0101010101010101"]
