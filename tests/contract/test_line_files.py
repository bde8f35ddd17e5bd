"""Files of lines: what a crash or a full disk leaves, and what permissions new files have."""

import errno
import os

import pytest

from tenantzone_contract.line_files import LineFile, RotatedLines

WHOLE = 2**20


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "lines.jsonl"


def test_a_line_that_a_crash_cut_off_is_not_joined_with_the_next(path):
    path.parent.mkdir()
    path.write_bytes(b"whole\ncut")
    file = LineFile(path)
    file.append([b"next\n"], WHOLE)
    assert file.size == path.stat().st_size
    file.close()
    assert path.read_bytes() == b"whole\ncut\nnext\n"


def test_lines_that_do_not_fit_are_left_to_the_next_file(path):
    lines = RotatedLines(path, max_bytes=12, keep=3)
    written = []
    while len(written) < 5:
        rest = [f"line{number}\n".encode() for number in range(len(written), 5)]
        written += rest[: lines.append(rest)]
    lines.close()
    texts = [each.read_text() for each in sorted(path.parent.iterdir())]
    assert texts == ["line4\n", "line2\nline3\n", "line0\nline1\n"]


def test_a_part_of_a_line_that_can_not_be_removed_makes_the_file_unusable(path):
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    file = LineFile(path)
    assert file.is_usable
    with pytest.raises(OSError, match="No space left"):
        file.append([b"line\n"], WHOLE)
    assert not file.is_usable, "/dev/full has no length that could be restored"
    file.close()


def test_a_file_that_another_process_has_truncated_has_no_hole(path, monkeypatch):
    """As copytruncate of logrotate does, just before the disk is full."""
    file = LineFile(path)
    file.append([b"first\n"], WHOLE)
    os.truncate(path, 0)
    with monkeypatch.context() as full:

        def write(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, "write", write)
        with pytest.raises(OSError, match="No space left"):
            file.append([b"lost\n"], WHOLE)
    file.append([b"second\n"], WHOLE)
    file.close()
    assert path.read_bytes() == b"second\n"


def test_a_file_in_the_place_of_another_is_not_mistaken_for_it(path):
    lines = RotatedLines(path, WHOLE, keep=2)
    lines.append([b"first\n"])
    path.rename(path.with_name("moved"))
    path.write_bytes(b"other\n")
    lines.append([b"second\n"])
    lines.close()
    assert path.read_bytes() == b"other\nsecond\n"


@pytest.mark.parametrize(("given", "expected"), [({}, 0o640), ({"mode": 0o666}, 0o644)])
def test_the_umask_limits_the_permissions_of_new_files(path, given, expected):
    before = os.umask(0o022)
    try:
        LineFile(path, **given).close()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == expected


def test_a_file_that_another_process_has_truncated_is_not_rotated(path):
    lines = RotatedLines(path, 20, keep=2)
    lines.append([b"0123456789\n"])
    os.truncate(path, 0)
    lines.append([b"abcdefghij\n"])
    lines.close()
    assert path.read_bytes() == b"abcdefghij\n"
    assert [each.name for each in path.parent.iterdir()] == [path.name]
