"""The writer, on real folders: rotation, restarts, crashes, and disks that refuse."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tenantzone_runtime.journal import writer as writing
from tenantzone_runtime.journal.files import JournalFiles
from tenantzone_runtime.journal.reading import BrokenJournalError
from tenantzone_runtime.journal.verify import verify
from tenantzone_runtime.journal.writer import JournalWriter
from tenantzone_runtime.zones.audit.events import Balance, Repaid
from tests.journal.journals import ENGINE, balance, eventually, kinds, put, records, some_chain, written_with

FIRST = "journal-00000001.jsonl"


def balances(*blocks: int) -> list[Balance]:
    return [balance("acme", number) for number in blocks]


def blocks(folder: Path) -> list[int]:
    return [record["granted"] for record in records(folder) if record["kind"] == "balance"]


def write(folder: Path, *numbers: int, **options: int) -> JournalWriter:
    """One run of an engine."""
    writer = JournalWriter(folder, engine=ENGINE, **options)
    writer.write(balances(*numbers), at=0.0)
    writer.close()
    return writer


def test_events_become_a_chain_in_their_order(tmp_path):
    writer = write(tmp_path / "made" / "by-it", 1, 2, 3)
    assert kinds(tmp_path / "made" / "by-it") == ["started", "balance", "balance", "balance"]
    assert blocks(tmp_path / "made" / "by-it") == [1, 2, 3]
    assert verify(tmp_path / "made" / "by-it").head == writer.head


def test_the_first_record_says_who_writes(tmp_path):
    write(tmp_path)
    first = records(tmp_path)[0]
    assert first["engine"] == ENGINE.name
    assert (first["engineVersion"], first["capacityBlocks"], first["blockSizeTokens"]) == ("0.32.0", 1000, 16)


def test_events_carry_the_time_that_they_came_with_as_unix_time(tmp_path):
    writer = JournalWriter(tmp_path, engine=ENGINE, clock=lambda: 100.0)
    writer.write(balances(1), at=160.0)
    writer.close()
    began, came = (record["time"] for record in records(tmp_path))
    assert began[:10] > "2025-01-01"
    assert came[:19] != began[:19]


def test_a_restart_goes_on_with_the_chain_in_the_same_file(tmp_path):
    write(tmp_path, 1, 2)
    write(tmp_path, 3)
    assert kinds(tmp_path) == ["started", "balance", "balance", "started", "balance"]
    assert [path.name for path in tmp_path.iterdir()] == [FIRST]


def test_a_new_file_begins_when_the_next_record_would_make_it_too_large(tmp_path):
    write(tmp_path, *range(50), max_bytes=1000)
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert max(sizes) <= 1000
    assert min(sizes[:-1]) > 500
    assert blocks(tmp_path) == list(range(50))


def test_a_record_larger_than_a_file_gets_one_of_its_own(tmp_path):
    write(tmp_path, 1, 2, max_bytes=10)
    assert len(list(tmp_path.iterdir())) == 3
    assert blocks(tmp_path) == [1, 2]


def test_a_bounded_number_of_files_is_kept_and_the_rest_holds(tmp_path):
    write(tmp_path, *range(50), max_bytes=1000, keep=3)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len(files) == 3
    assert FIRST not in files
    seen = verify(tmp_path)
    assert (seen.head.seq, seen.first.seq > 0) == (50, True)
    write(tmp_path, 50, max_bytes=1000, keep=3)
    assert blocks(tmp_path)[-1] == 50


@pytest.mark.parametrize("left", [0, 1, 100])
def test_a_last_line_that_a_crash_cut_off_stays_and_the_next_record_names_it(tmp_path, left):
    lines = some_chain(4)
    put(tmp_path, [*lines[:3], lines[3][: -1 - left]])
    write(tmp_path, 9)
    content = (tmp_path / FIRST).read_bytes()
    assert lines[3].rstrip()[: -left or None] in content
    # Without its newline only, the record is whole.
    assert kinds(tmp_path)[3:] == (["cut_off"] if left else ["balance"]) + ["started", "balance"]
    assert verify(tmp_path).cut_off == bool(left)


def test_what_a_crash_cut_off_can_not_be_changed_or_taken_away_later(tmp_path):
    lines = some_chain(4)
    put(tmp_path, [*lines[:3], lines[3][:50]])
    write(tmp_path, 9)
    path = tmp_path / FIRST
    whole = path.read_bytes().splitlines(keepends=True)
    for changed in ([*whole[:3], b"{other\n", *whole[4:]], whole[:3] + whole[4:]):
        path.write_bytes(b"".join(changed))
        with pytest.raises(BrokenJournalError, match=r"line 4 "):
            verify(tmp_path)


def test_a_crash_while_it_names_what_a_crash_cut_off_is_named_too(tmp_path):
    lines = some_chain(4)
    put(tmp_path, [*lines[:3], lines[3][:50]])
    write(tmp_path)
    path = tmp_path / FIRST
    whole = path.read_bytes().splitlines(keepends=True)
    put(tmp_path, [*whole[:4], whole[4][:50]])
    write(tmp_path, 9)
    assert kinds(tmp_path) == ["balance"] * 3 + ["cut_off", "started", "balance"]


def test_a_crash_in_the_first_record_of_a_file_is_named_in_the_chain_of_the_file_before(tmp_path):
    lines = some_chain(4)
    put(tmp_path, lines[:3], [lines[3][:50]])
    write(tmp_path, 9)
    assert kinds(tmp_path) == ["balance"] * 3 + ["cut_off", "started", "balance"]


def test_a_cut_off_line_in_a_full_file_is_named_even_if_a_crash_follows_at_once(tmp_path):
    lines = some_chain(4)
    put(tmp_path, [*lines[:3], lines[3][:50] + b"\n"], [])
    write(tmp_path, 9, max_bytes=600)
    assert kinds(tmp_path) == ["balance"] * 3 + ["cut_off", "started", "balance"]


def test_a_journal_with_nothing_left_begins_anew_and_says_what_was_there(tmp_path):
    put(tmp_path, [b"\x00" * 4096])
    write(tmp_path, 9)
    assert kinds(tmp_path) == ["cut_off", "started", "balance"]


def test_a_last_record_that_was_changed_stays_broken_after_a_restart(tmp_path):
    lines = some_chain(4)
    put(tmp_path, [*lines[:3], written_with(lines[3], blocks=99)])
    write(tmp_path, 9)
    with pytest.raises(BrokenJournalError, match="line 4 "):
        verify(tmp_path)


def test_an_engine_that_is_killed_leaves_a_journal_that_holds_and_goes_on(tmp_path):
    script = (
        "import sys, itertools; from pathlib import Path\n"
        "from tests.journal.journals import ENGINE, balance\n"
        "from tenantzone_runtime.journal.writer import JournalWriter\n"
        "writer = JournalWriter(Path(sys.argv[1]), engine=ENGINE)\n"
        "for number in itertools.count(): writer.write([balance('acme', number)], 0.0)\n"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env=environ)
    try:
        eventually(lambda: (tmp_path / FIRST).exists() and (tmp_path / FIRST).stat().st_size > 50_000)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    write(tmp_path, 7)
    assert blocks(tmp_path)[-1] == 7
    assert verify(tmp_path).records > 100


def test_a_blocked_disk_blocks_no_writer_and_losses_are_counted_instead(tmp_path):
    os.mkfifo(tmp_path / FIRST)
    writer = JournalWriter(tmp_path, engine=ENGINE, queue_records=10)
    writer.write(balances(*range(1000)), at=0.0)
    arrived: list[bytes] = []
    # Opening the other end lets the writer continue.
    reader = threading.Thread(target=lambda: arrived.append((tmp_path / FIRST).read_bytes()))
    reader.start()
    eventually(lambda: writer.head is not None and writer.head.seq >= 11)
    writer.write(balances(1000), at=0.0)
    writer.close()
    reader.join()
    put(tmp_path, arrived)
    written = [*kinds(tmp_path)]
    assert written[0] == "started"
    assert written[-2:] == ["lost", "balance"]
    lost = records(tmp_path)[-2]["records"]
    assert blocks(tmp_path) == [*range(1000 - lost), 1000]
    assert lost >= 989


def test_who_is_patient_writes_more_than_may_wait(tmp_path):
    writer = JournalWriter(tmp_path, engine=ENGINE, queue_records=10)
    writer.write(balances(*range(1000)), at=0.0, patience_seconds=60.0)
    writer.close()
    assert blocks(tmp_path) == [*range(1000)]


def test_patience_ends_where_a_disk_is_stuck(tmp_path):
    os.mkfifo(tmp_path / FIRST)
    writer = JournalWriter(tmp_path, engine=ENGINE, queue_records=10)
    writer.write(balances(*range(1000)), at=0.0, patience_seconds=0.05)
    arrived: list[bytes] = []
    reader = threading.Thread(target=lambda: arrived.append((tmp_path / FIRST).read_bytes()))
    reader.start()
    writer.close()
    reader.join()
    put(tmp_path, arrived)
    assert kinds(tmp_path)[-1] == "lost"
    assert len(blocks(tmp_path)) + records(tmp_path)[-1]["records"] == 1000


def test_there_is_room_for_what_may_wait_and_is_not_written_yet(tmp_path):
    os.mkfifo(tmp_path / FIRST)
    writer = JournalWriter(tmp_path, engine=ENGINE, queue_records=10)
    # The writer has taken the first record, and waits for a reader to open the other end.
    eventually(lambda: writer.room == 10)
    writer.write(balances(1, 2, 3), at=0.0)
    assert writer.room == 7
    writer.write(balances(*range(20)), at=0.0)
    assert writer.room == 0
    reader = threading.Thread(target=(tmp_path / FIRST).read_bytes)
    reader.start()
    eventually(lambda: writer.room == 10)
    writer.close()
    reader.join()


def test_a_full_disk_is_said_once_and_the_records_wait(tmp_path, caplog):
    (tmp_path / FIRST).symlink_to("/dev/full")
    with caplog.at_level(logging.WARNING):
        writer = JournalWriter(tmp_path, engine=ENGINE)
        writer.write(balances(1, 2), at=0.0)
        eventually(lambda: "No space left on device" in caplog.text)
        (tmp_path / FIRST).unlink()
        eventually(lambda: writer.head is not None and writer.head.seq == 2)
        writer.close()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert blocks(tmp_path) == [1, 2]


def test_a_file_in_the_place_of_the_folder_is_said_and_tried_again(tmp_path, caplog):
    folder = tmp_path / "journal"
    folder.write_text("in the way")
    writer = JournalWriter(folder, engine=ENGINE, queue_records=5)
    writer.write(balances(*range(100)), at=0.0)
    eventually(lambda: "can't be written" in caplog.text)
    folder.unlink()
    eventually(lambda: writer.head is not None and kinds(folder)[-1] == "lost")
    writer.close()
    lost = records(folder)[-1]["records"]
    assert blocks(folder) == [*range(100 - lost)]


def test_a_disk_that_refuses_again_and_again_is_said_once(tmp_path, caplog, monkeypatch):
    tries = []

    def count(folder, **options):
        tries.append(folder)
        return JournalFiles(folder, **options)

    monkeypatch.setattr(writing, "JournalFiles", count)
    monkeypatch.setattr(writing, "_RETRY_SECONDS", 0.01)
    (tmp_path / FIRST).symlink_to("/dev/full")
    writer = JournalWriter(tmp_path, engine=ENGINE)
    eventually(lambda: len(tries) > 3)
    writer.close()
    assert [record.message.count("No space left") for record in caplog.records] == [1, 0]


def test_an_engine_that_ends_while_the_disk_refuses_says_what_it_could_not_write(tmp_path, caplog):
    folder = tmp_path / "journal"
    folder.write_text("in the way")
    write(folder, 1, 2)
    assert "ends with 3 records not written" in caplog.text


def test_two_engines_never_write_one_journal(tmp_path, caplog):
    first = JournalWriter(tmp_path, engine=ENGINE)
    eventually(lambda: first.head)
    second = JournalWriter(tmp_path, engine=ENGINE)
    eventually(lambda: "another engine writes the journal" in caplog.text)
    first.write(balances(1), at=0.0)
    first.close()
    second.write(balances(2), at=0.0)
    eventually(lambda: second.head is not None and second.head.seq == 3)
    second.close()
    assert kinds(tmp_path) == ["started", "balance", "started", "balance"]


def test_a_file_that_is_deleted_under_the_writer_is_missed_and_the_chain_shows_it(tmp_path, caplog):
    writer = JournalWriter(tmp_path, engine=ENGINE)
    writer.write(balances(1), at=0.0)
    eventually(lambda: writer.head is not None and writer.head.seq == 1)
    (tmp_path / FIRST).unlink()
    writer.write(balances(2), at=0.0)
    eventually(lambda: writer.head.seq == 2)
    writer.close()
    assert "was deleted" in caplog.text
    assert verify(tmp_path).first.seq == 2


def test_an_event_that_can_not_be_written_is_counted_and_the_rest_goes_on(tmp_path):
    writer = JournalWriter(tmp_path, engine=ENGINE)
    writer.write([Repaid("acme", "burst", 1, float("inf"), False), *balances(2)], at=0.0)
    writer.close()
    assert kinds(tmp_path) == ["started", "lost", "balance"]


def test_the_journal_is_readable_while_it_is_written(tmp_path):
    writer = JournalWriter(tmp_path, engine=ENGINE)
    writer.write(balances(1), at=0.0)
    eventually(lambda: writer.head is not None and writer.head.seq == 1)
    assert json.loads((tmp_path / FIRST).read_bytes().splitlines()[-1])["granted"] == 1
    writer.close()
