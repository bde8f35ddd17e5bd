"""The frontend's recordings are read in the order of arrival, whatever happened to the files."""

import gzip
import resource
import socket
from pathlib import Path

import pytest

from tenantzone_replay.traces.readers.recorded import read
from tenantzone_runtime.frontend.recorder import Recorder
from tests.frontend.recordings import BLOCK_TOKENS, asker_of, record


def lengths(folder):
    return [asked.prompt_tokens for asked in read(folder)]


@pytest.fixture
def recording(tmp_path):
    """A file with four requests."""
    recorder = Recorder(tmp_path, 2**20, 2)
    for length in (4, 5, 6, 7):
        record(recorder, range(length))
    recorder.close()
    (path,) = tmp_path.iterdir()
    return path


def test_what_a_power_cut_left_costs_no_whole_line(recording, tmp_path, capsys):
    first, second, third, fourth = recording.read_text().splitlines()
    torn = [f"{first[:40]}{second}", "\0" * 4096, f"{first[:40]}\0\0\0", f'{{"rec{third}', f"\0\0{fourth}", "\0"]
    recording.write_text("\n".join(torn))
    assert lengths(tmp_path) == [5, 6, 7]
    assert capsys.readouterr().err == f"{recording}: lines that were cut off, and are left out: 6\n"


def test_files_of_other_names_are_left_out_and_named(recording, tmp_path, capsys):
    backup = recording.with_name(f"{recording.name}~")
    backup.write_text(recording.read_text())
    assert lengths(tmp_path) == [4, 5, 6, 7]
    assert capsys.readouterr().err == f"{backup}: it is not called as recordings are, and is left out\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("ends_earlier", ["copy", "original"])
def test_a_recording_and_its_copy_are_read_once_and_the_longer_one(recording, tmp_path, capsys, packed, ends_earlier):
    whole = recording.read_bytes()
    begun = b"".join(whole.splitlines(keepends=True)[:2])
    name = f"{recording.name}.2026-11-26{'.gz' * packed}"
    copy = recording.with_name(name)
    text = begun if ends_earlier == "copy" else whole
    copy.write_bytes(gzip.compress(text) if packed else text)
    if ends_earlier == "original":
        recording.write_bytes(begun)
    shorter, longer = (copy, recording) if ends_earlier == "copy" else (recording, copy)
    assert lengths(tmp_path) == [4, 5, 6, 7]
    assert capsys.readouterr().err == f"{shorter}: it begins as {longer} does, and is left out\n"


def pack(path):
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


def move(path):
    path.rename(path.with_name(f"{path.name[:-2]}.2026-11-26"))


@pytest.mark.parametrize("put_away", [pack, move])
def test_what_was_put_away_while_others_were_rotated_is_read_in_its_order(tmp_path, put_away):
    recorder = Recorder(tmp_path, 500, 16)
    asker = asker_of(recorder)
    # As long as this one is in progress, each line names it as the oldest.
    slow = asker.begin(BLOCK_TOKENS)
    slow.prompt = range(4)
    for length in range(5, 17):
        record(recorder, range(length))
        recorder._ended.join()
        if length == 8:
            put_away(*tmp_path.glob("*.1"))
        if length == 10:
            asker.end(slow)
    recorder.close()
    assert len(list(tmp_path.iterdir())) > 4
    assert lengths(tmp_path) == list(range(4, 17))


def test_more_files_are_read_than_may_be_open(tmp_path, monkeypatch):
    for length in range(4, 104):
        monkeypatch.setattr(socket, "gethostname", lambda length=length: f"pod-{length}")
        recorder = Recorder(tmp_path, 2**20, 2)
        record(recorder, range(length))
        recorder.close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 20, limits[1]))
    try:
        assert lengths(tmp_path) == list(range(4, 104))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
