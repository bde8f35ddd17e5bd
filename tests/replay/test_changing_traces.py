"""A trace that is still being written is read again as at first, or the replay reports that it can't be."""

import dataclasses
import gzip
import json
from itertools import count

import pytest

from tenantzone_replay.simulation.policies import equal_zones, policies
from tenantzone_replay.simulation.replay import replay
from tenantzone_replay.traces.load import TraceError
from tenantzone_replay.traces.mix import parse_source
from tenantzone_replay.traces.readers import READERS, seen
from tests.replay.loads import asked, setting

NAME = "requests-web-0-7.jsonl"
FILES = NAME, f"{NAME}.1", f"{NAME}.2.gz", f"{NAME}.3"
PER_FILE = 200


def recorded(number):
    """The line of the request with this number; all lines differ in length, and a file exceeds a buffer."""
    fields = {"recorded": 1, "time": 1e9 + number, "oldest": 1e9 + number + 1, "tenant": "acme"}
    return json.dumps(fields | {"prompt_tokens": number + 1, "block_tokens": 16, "hashes": "A" * 800}) + "\n"


def session(number):
    return json.dumps({"user_id": "acme", "timestamp": number, "prompt_tokens": number + 1, "output_tokens": 1}) + "\n"


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture
def recording(tmp_path):
    """A folder with files, the last of them the oldest, and a source that reads it."""
    numbers = count()
    for name in reversed(FILES):
        write(tmp_path / name, "".join(recorded(next(numbers)) for _ in range(PER_FILE)))
    return parse_source(str(tmp_path))


ALL = list(range(1, len(FILES) * PER_FILE + 1))


def lengths(requests):
    return [each.prompt_tokens for each in requests]


def rotate(folder, *, oldest="kept"):
    """Rotates as the recorder does, except for the packed file, which another program renames."""
    if oldest == "removed":
        (folder / FILES[-1]).unlink()
    else:
        (folder / FILES[-1]).rename(folder / f"{NAME}.4")
    (folder / FILES[2]).rename(folder / f"{NAME}.3.gz")
    (folder / FILES[1]).rename(folder / f"{NAME}.2")
    (folder / FILES[0]).rename(folder / f"{NAME}.1")
    write(folder / NAME, recorded(10_000))


@pytest.mark.parametrize("read", [1, PER_FILE + 1, 2 * PER_FILE + 1, 3 * PER_FILE + 1])
def test_each_pass_over_a_recording_that_is_rotated_meanwhile_has_the_same_requests(recording, read):
    load = recording.load()
    begun = [next(load) for _ in range(read)]
    rotate(recording.path)
    assert lengths(begun + list(load)) == ALL
    assert lengths(recording.load()) == ALL


def test_a_file_that_is_rotated_is_found_again(tmp_path):
    path = tmp_path / NAME
    path.write_text(recorded(0) + recorded(1))
    source = parse_source(str(path))
    assert lengths(source.load()) == [1, 2]
    path.rename(tmp_path / f"{NAME}.1")
    path.write_text(recorded(2))
    assert lengths(source.load()) == [1, 2]


def test_a_file_is_found_again_among_links_that_lead_nowhere(recording):
    assert lengths(recording.load()) == ALL
    rotate(recording.path)
    (recording.path / "round").symlink_to("round")
    assert lengths(recording.load()) == ALL


def test_a_recording_whose_oldest_file_goes_is_refused(recording):
    assert lengths(recording.load()) == ALL
    rotate(recording.path, oldest="removed")
    with pytest.raises(TraceError, match=rf"{FILES[-1]}: the file was removed, compressed or rewritten"):
        list(recording.load())


def test_files_that_are_renamed_while_their_folder_is_looked_at_are_all_there(recording, monkeypatch):
    rotations = [lambda: rotate(recording.path)]
    look = seen._file

    def look_and_rotate(state):
        if rotations:
            rotations.pop()()
        return look(state)

    monkeypatch.setattr(seen, "_file", look_and_rotate)
    # Lines written after that may be there or not.
    assert lengths(recording.load())[: len(ALL)] == ALL


@pytest.mark.parametrize(
    ("name", "line"), [(NAME, recorded), ("trace.jsonl", session)], ids=["recording", "another trace"]
)
def test_what_is_written_behind_it_is_not_read(tmp_path, name, line):
    path = tmp_path / name
    path.write_text(line(0) + line(1))
    source = parse_source(str(path))
    first = source.load()
    begun = [next(first)]
    with path.open("a") as file:
        file.write(line(2))
    assert lengths(begun + list(first)) == [1, 2]
    assert lengths(source.load()) == [1, 2]
    assert lengths(READERS["recorded" if line is recorded else "sessions"](path)) == [1, 2, 3]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_a_trace_in_whose_place_another_is_put_is_refused(tmp_path, name):
    path, other = tmp_path / name, tmp_path / f"other-{name}"
    text = "".join(map(session, range(500)))
    write(path, text)
    source = parse_source(str(path))
    assert len(lengths(source.load())) == 500
    write(other, text.replace("acme", "emca"))
    other.rename(path)
    with pytest.raises(TraceError, match="the file was removed, compressed or rewritten"):
        list(source.load())


@pytest.mark.parametrize(
    "anew", ["", session(7), "".join(map(session, range(1, 600)))], ids=["empty", "shorter", "longer"]
)
def test_a_trace_that_is_written_anew_is_refused(tmp_path, anew):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(map(session, range(500))))
    source = parse_source(str(path))
    assert len(lengths(source.load())) == 500
    path.write_text(anew)
    with pytest.raises(TraceError, match="the file was removed, compressed or rewritten"):
        list(source.load())


def test_a_trace_that_is_emptied_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(map(session, range(2000))))
    load = parse_source(str(path)).load()
    next(load)
    path.write_text("")
    with pytest.raises(TraceError, match="the file was removed, compressed or rewritten"):
        list(load)


def test_a_tenant_that_was_absent_when_the_load_was_first_read_is_named():
    requests = [asked(0.0, "acme", [1]), asked(1.0, "acme", [2])]
    at = setting(requests, blocks=50)
    changed = dataclasses.replace(at, load=lambda: iter([*requests, asked(2.0, "newcomer", [3])]))
    stock = policies(equal_zones(["acme"], 50), 50, at.hardware.prompt_tokens_per_second)["stock"]
    with pytest.raises(TraceError, match="request 3 now has tenant 'newcomer', which had no requests"):
        replay(changed, stock)
