"""Files of events that others use too: another manager, a process that tidies up, and readers while they grow."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenantzone_contract.line_files import older_files
from tenantzone_manager.__main__ import main
from tenantzone_manager.events.files import EventFiles
from tenantzone_manager.events.reading import Selection, Tally, select
from tenantzone_manager.events.record import encode


def line(number: int) -> bytes:
    return encode(1.0 + number, {"event": "evict", "caller": "manager", "keys": number.to_bytes(8)})


SIZE = len(line(0))


def numbers(*paths: Path, tally: Tally | None = None) -> list[int]:
    return [int(event.keys[0], 16) for event in select(paths, Selection(), tally or Tally())]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def write(file: Path, *lines: bytes, keep: int = 100) -> None:
    """Each line into a file of its own."""
    files = EventFiles(file, 1, keep)
    for each in lines:
        assert files.append([each]) == 1
    files.close()


def test_two_managers_do_not_write_to_the_same_files(file: Path) -> None:
    first = EventFiles(file, 1, 2)
    with pytest.raises(OSError, match="another manager writes events to this file; give each manager its own file"):
        EventFiles(file, 1, 2)
    other = EventFiles(file.with_name("other.jsonl"), 1, 2)
    for number in range(4):  # it is not let go where files are begun anew
        first.append([line(number)])
        with pytest.raises(OSError, match="another manager"):
            EventFiles(file, 1, 2)
    other.close()
    first.close()
    EventFiles(file, 1, 2).close()
    assert numbers(file) == [2, 3]


def test_a_second_process_reports_why_it_does_not_start(file: Path, tmp_path: Path) -> None:
    first = EventFiles(file, 1, 2)
    with pytest.raises(SystemExit, match="another manager writes events to this file"):
        # The address is another machine's, so it does not serve either way.
        main(["--index", str(tmp_path / "index.db"), "--anyone", "--listen", "192.0.2.1:1", "--events", str(file)])
    first.close()


def test_a_file_or_a_folder_that_is_taken_away_is_made_anew(file: Path) -> None:
    file = file.parent / "events" / file.name
    files = EventFiles(file, 2**20, 2)
    files.append([line(0)])
    file.rename(file.with_name("tidied"))
    files.append([line(1)])
    assert numbers(file) == [1]
    for each in file.parent.iterdir():
        each.unlink()
    file.parent.rmdir()
    files.append([line(2)])
    files.close()
    assert numbers(file) == [2]


def test_files_that_are_named_twice_are_read_once(file: Path) -> None:
    write(file, *map(line, range(4)))
    tally = Tally()
    # As a shell expands events.jsonl*
    paths = sorted(each for each in file.parent.iterdir() if each.suffix != ".lock")
    assert len(paths) == 4
    assert numbers(*paths, tally=tally) == [0, 1, 2, 3]
    assert (tally.read, len(tally.files)) == (4, 4)
    assert numbers(*reversed(paths)) == [0, 1, 2, 3]


@pytest.mark.parametrize("listing", range(1, 5))
def test_none_is_missed_if_files_are_begun_anew_between_a_look_at_the_folder_and_the_next(
    file: Path, monkeypatch: pytest.MonkeyPatch, listing: int
) -> None:
    write(file, *map(line, range(5)))
    listings = 0

    def looked(path: Path, look: Callable[[Path], Any] = older_files) -> Any:
        nonlocal listings
        listings += 1
        found = look(path)
        if listings == listing:
            write(file, line(5))
        return found

    monkeypatch.setattr("tenantzone_manager.events.reading.older_files", looked)
    tally = Tally()
    assert numbers(file, tally=tally) == [0, 1, 2, 3, 4]
    assert listings > listing
    assert len(tally.files) == 5


def test_a_query_finds_the_older_files_while_the_newest_is_being_begun(file: Path) -> None:
    write(file, line(0), line(1))
    file.rename(f"{file}.0")
    assert numbers(file) == [0]


class Appending(Tally):
    """Has a line's end written as soon as its beginning was read."""

    file: Path
    rest: bytes

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "skipped" and value == 1:
            with self.file.open("ab") as file:
                file.write(self.rest)


def test_a_line_that_is_being_written_is_no_event_yet_and_its_end_never_is_one(file: Path) -> None:
    for cut in (1, SIZE // 2, SIZE - 2):
        file.write_bytes(line(0) + line(1)[:cut])
        tally = Appending()
        tally.file, tally.rest = file, line(1)[cut:] + line(2)
        assert numbers(file, tally=tally) == [0]
        assert (tally.read, tally.skipped) == (1, 1)
        assert numbers(file) == [0, 1, 2]


def test_a_reader_who_has_seen_enough_gets_no_error(file: Path) -> None:
    write(file, line(0))
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tenantzone_manager", "events", str(file)]
    # So little is only handed on when it ends.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, timeout=60, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")
