"""Tampering with a journal is found, and the first invalid record is named."""

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.journal.bill import Period, make_bill
from tenantzone_runtime.journal.reading import BrokenJournalError, EndCutOffError, NoJournalError, read_journal
from tenantzone_runtime.journal.record import CutOff, Link, digest, link_of, parse
from tenantzone_runtime.journal.verify import HeadNotFoundError, verify
from tests.journal.journals import balance, chain, put, records, some_chain, written_with


def broken(folder: Path) -> tuple[str, int, str]:
    with pytest.raises(BrokenJournalError) as caught:
        verify(folder)
    return caught.value.place.file, caught.value.place.line, str(caught.value)


def test_a_chain_over_several_files_holds(tmp_path):
    lines = some_chain(7)
    seen = verify(put(tmp_path, lines[:3], lines[3:6], lines[6:]))
    assert (seen.first.seq, seen.head) == (0, link_of(parse(lines[-1])))
    assert seen.records == 7


@pytest.mark.parametrize("changed", [0, 2, 6])
def test_a_number_that_was_changed_is_found(tmp_path, changed):
    lines = some_chain(7)
    lines[changed] = written_with(lines[changed], blocks=99)
    where = broken(put(tmp_path, lines))
    assert where[:2] == ("journal-00000001.jsonl", changed + 1)
    assert f"(record {changed}): the record's content does not match its hash" in where[2]


def test_a_record_that_was_deleted_is_missed_by_the_next(tmp_path):
    lines = some_chain(7)
    where = broken(put(tmp_path, lines[:3], lines[4:]))
    assert where[:2] == ("journal-00000002.jsonl", 1)
    assert "(record 4): record 3 is missing before this one" in where[2]


def test_a_file_that_was_deleted_from_the_middle_is_missed(tmp_path):
    lines = some_chain(9)
    put(tmp_path, lines[:3], lines[3:6], lines[6:])
    (tmp_path / "journal-00000002.jsonl").unlink()
    assert "records 3 to 5 are missing before this one" in broken(tmp_path)[2]


def test_two_records_that_were_swapped_are_found(tmp_path):
    lines = some_chain(7)
    lines[2], lines[4] = lines[4], lines[2]
    assert broken(put(tmp_path, lines))[1] == 3


def test_a_record_that_was_copied_is_found(tmp_path):
    lines = some_chain(7)
    where = broken(put(tmp_path, [*lines[:5], lines[2], *lines[5:]]))
    assert "(record 2): the record follows record 4" in where[2]
    assert where[1] == 6


def test_a_kind_that_is_written_no_more_holds_as_any_other(tmp_path):
    lines = some_chain(3)
    # As previous versions wrote it: what a zone took above its reservation.
    old = {"seq": 3, "time": "2026-11-21T13:16:31.006Z", "engine": "chat-0@x", "kind": "granted", "zone": "acme"}
    old |= {"blocks": 320, "previous": json.loads(lines[2])["hash"]}
    old["hash"] = digest(old)
    line = json.dumps(old).encode() + b"\n"
    folder = put(tmp_path, [*lines, line, *chain([balance("acme", 4)], link_of(parse(line)))])
    assert verify(folder).records == 5
    assert make_bill([folder], Period()).zones == {}


def test_a_record_that_was_forged_with_a_fitting_hash_does_not_fit_what_follows(tmp_path):
    lines = some_chain(7)
    forged = chain([balance("acme", 99)], link_of(parse(lines[2])))
    where = broken(put(tmp_path, [*lines[:3], *forged, *lines[4:]]))
    assert where[1] == 5
    assert "(record 4): the record's link does not match the previous record" in where[2]


def test_a_first_record_that_was_forged_needs_the_constant_before_it(tmp_path):
    assert "(record 0)" in broken(put(tmp_path, chain([balance("acme", 1)], Link(-1, "1" * 64))))[2]


def test_a_line_that_was_made_no_record_is_named_by_its_place(tmp_path):
    lines = some_chain(7)
    where = broken(put(tmp_path, [*lines[:3], b"nothing\n", *lines[4:]]))
    assert where[1] == 4
    assert "(where record 3 should be): the line is not a complete record" in where[2]


def test_a_file_that_was_truncated_in_a_line_is_found(tmp_path):
    lines = some_chain(7)
    assert broken(put(tmp_path, [*lines[:2], lines[2][:-5]], lines[3:]))[:2] == ("journal-00000001.jsonl", 3)
    put(tmp_path, [*lines[:6], lines[6][:-5]])
    with pytest.raises(EndCutOffError, match=r"line 7 \(where record 6 should be\)"):
        verify(tmp_path)


def test_a_line_longer_than_any_record_counts_as_one_line(tmp_path):
    lines = some_chain(3)
    garbage = b"x" * 3_000_000 + b"\n"
    named = chain([CutOff(len(garbage), hashlib.sha256(garbage).hexdigest())], link_of(parse(lines[2])))
    put(tmp_path, [*lines, garbage, *named])
    assert [entry.place.line for entry in read_journal(tmp_path)] == [1, 2, 3, 5]
    put(tmp_path, [lines[0], garbage, *lines[1:]])
    assert broken(tmp_path)[1] == 2


def test_without_its_oldest_files_a_journal_holds_and_says_so(tmp_path):
    lines = some_chain(7)
    seen = verify(put(tmp_path, lines[4:]))
    assert (seen.first.seq, seen.records) == (4, 3)
    assert "the journal does not begin at record 0; records 0 to 3 are missing" in seen.lines()


def test_only_a_noted_hash_shows_that_the_end_is_gone(tmp_path):
    lines = some_chain(7)
    noted = json.loads(lines[-1])["hash"]
    assert verify(put(tmp_path, lines), noted).noted == 6
    put(tmp_path, lines[:5])
    verify(tmp_path)
    with pytest.raises(HeadNotFoundError, match="records 0 to 4 are valid, but none"):
        verify(tmp_path, noted)


def test_the_hash_before_the_oldest_file_is_still_known(tmp_path):
    lines = some_chain(7)
    assert verify(put(tmp_path, lines[4:]), json.loads(lines[3])["hash"]).noted == 3


@pytest.mark.parametrize("files", [[], [[]]])
def test_a_folder_without_records_is_no_journal(tmp_path, files):
    with pytest.raises(NoJournalError):
        verify(put(tmp_path, *files))


def test_other_files_in_the_folder_are_no_part_of_the_journal(tmp_path):
    put(tmp_path, some_chain(3))
    (tmp_path / "journal-2.jsonl.gz").write_text("other")
    (tmp_path / "notes").write_text("other")
    assert verify(tmp_path).records == 3


@given(st.data())
def test_whatever_is_done_to_one_record_the_first_line_that_does_not_hold_is_named(data):
    lines = some_chain(data.draw(st.integers(3, 12)))
    place = data.draw(st.integers(1, len(lines) - 2), label="place")
    deed = data.draw(st.sampled_from(["change", "delete", "swap", "copy", "forge", "garbage"]))
    line = place + 1
    match deed:
        case "change":
            field = data.draw(st.sampled_from(["seq", "time", "engine", "kind", "zone", "blocks", "previous", "hash"]))
            lines[place] = written_with(lines[place], **{field: "other"})
        case "delete":
            del lines[place]
        case "swap":
            other = data.draw(st.integers(place + 1, len(lines) - 1))
            lines[place], lines[other] = lines[other], lines[place]
        case "copy":
            lines.insert(place, lines[data.draw(st.integers(0, len(lines) - 1).filter(lambda one: one != place))])
        case "forge":
            lines[place] = chain([balance("other", 1)], link_of(parse(lines[place - 1])))[0]
            line += 1
        case "garbage":
            lines.insert(place, b"\x00" * data.draw(st.integers(0, 20)) + b"\n")
    with TemporaryDirectory() as folder:
        assert broken(put(Path(folder), lines))[1] == line


@given(st.data())
def test_whatever_byte_is_changed_nothing_else_is_read_than_was_written(data):
    lines = some_chain(3)
    content = bytearray(b"".join(lines))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    with TemporaryDirectory() as folder:
        put(Path(folder), [bytes(content)])
        try:
            read = records(Path(folder))
        except BrokenJournalError:
            return
        assert read == [json.loads(line) for line in lines]
