"""The last good config, on real folders."""

import json
import os
import time
from pathlib import Path

import pytest

from tenantzone_contract.zone_config.config_text import parse_config
from tests.runtime.folders import config_text, project
from tests.runtime.watched import NOW, generation_of, source


def write(folder: Path, content: str | bytes) -> None:
    path = folder / "config.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def age(folder: Path) -> None:
    """Makes the file so old that its time stamp is reliable."""
    os.utime(folder / "config.json", (1, 1))


def test_no_folder_is_no_config_and_no_complaint(tmp_path):
    watched = source(tmp_path / "absent")
    assert not watched.poll()
    assert (watched.config, watched.rejection) == (None, None)


def test_an_empty_folder_is_no_config_and_no_complaint(tmp_path):
    watched = source(tmp_path)
    assert not watched.poll()
    assert (watched.config, watched.rejection) == (None, None)


def test_a_folder_that_appears_later_is_read(tmp_path):
    watched = source(tmp_path / "config")
    watched.poll()
    project(tmp_path / "config", {"config.json": config_text(1, "acme")})
    assert watched.poll()
    assert watched.config == parse_config(config_text(1, "acme"))


def test_a_swap_of_the_projection_is_noticed(tmp_path):
    watched = source(tmp_path)
    for generation in (1, 2, 3):
        project(tmp_path, {"config.json": config_text(generation, f"tenant-{generation}")})
        assert watched.poll()
        assert watched.config.generation == generation
        assert not watched.poll()


def test_an_unchanged_file_is_not_read_again(tmp_path, monkeypatch):
    write(tmp_path, config_text())
    age(tmp_path)
    watched = source(tmp_path)
    assert watched.poll()

    def fail(path: Path) -> bytes:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(Path, "read_bytes", fail)
    assert not watched.poll()


def test_a_second_write_that_leaves_the_same_stamp_is_noticed_while_the_file_is_fresh(tmp_path):
    write(tmp_path, config_text(1, "aaaa"))
    watched = source(tmp_path)
    watched.poll()
    status = (tmp_path / "config.json").stat()
    write(tmp_path, config_text(1, "bbbb"))
    os.utime(tmp_path / "config.json", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert watched.poll()
    assert watched.config.zones[0].tenant == "bbbb"


@pytest.mark.parametrize(
    ("content", "generation", "error"),
    [
        pytest.param("", None, "empty", id="empty"),
        pytest.param(config_text(2, "acme")[:-40], None, "not valid JSON", id="cut off"),
        pytest.param(b"\xff\xfe{}", None, "codec can't decode", id="bytes that are no text"),
        pytest.param("[1]", None, "expected a JSON object", id="no object"),
        pytest.param("[" * 100_000, None, "recursion", id="nested too deep"),
        pytest.param("9" * 5_000, None, "4300 digits", id="a number too long"),
        pytest.param(
            config_text(2).replace('"schemaVersion":1', '"schemaVersion":3'),
            2,
            "schemaVersion: 3 is newer",
            id="future",
        ),
        pytest.param(
            config_text(7, "acme").replace('"weight":1', '"weight":0'), 7, "zones[0].weight", id="field out of bounds"
        ),
        pytest.param(config_text(3, "acme").replace("acme", "evil"), 3, "hash: ", id="edited by hand"),
    ],
)
def test_a_bad_file_is_refused_and_the_last_good_config_stays(tmp_path, content, generation, error):
    watched = source(tmp_path)
    project(tmp_path, {"config.json": config_text(1, "acme")})
    watched.poll()
    good = watched.config
    project(tmp_path, {"config.json": content})
    assert watched.poll()
    assert watched.config is good
    assert error in watched.rejection.error
    assert (watched.rejection.generation, watched.rejection.unix_time) == (generation, NOW)
    assert not watched.poll()


def test_a_bad_file_with_none_before_is_refused_and_there_is_no_config(tmp_path):
    write(tmp_path, "{")
    watched = source(tmp_path)
    assert watched.poll()
    assert watched.config is None
    assert "not valid JSON" in watched.rejection.error


def test_a_file_that_can_not_be_read_is_refused(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1))
    watched.poll()
    good = watched.config
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    assert watched.poll()
    assert watched.config is good
    assert "can't be read: Is a directory" in watched.rejection.error
    assert not watched.poll()


def test_a_file_that_goes_away_is_missed_and_the_last_good_config_stays(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1))
    watched.poll()
    good = watched.config
    (tmp_path / "config.json").unlink()
    assert watched.poll()
    assert watched.config is good
    assert "is missing" in watched.rejection.error
    assert not watched.poll(), "the same complaint is no news"
    write(tmp_path, config_text(1))
    assert watched.poll(), "that it is back is news"
    assert watched.config is good
    assert watched.rejection is None


def test_a_good_file_after_a_bad_one_clears_the_complaint(tmp_path):
    watched = source(tmp_path)
    for content in (config_text(1), "", config_text(2, "acme")):
        write(tmp_path, content)
        assert watched.poll()
    assert watched.rejection is None
    assert watched.config.generation == 2


def test_the_same_content_written_again_is_no_change(tmp_path):
    watched = source(tmp_path)
    project(tmp_path, {"config.json": config_text(1, "acme")})
    watched.poll()
    good = watched.config
    project(tmp_path, {"config.json": config_text(1, "acme")})
    assert not watched.poll()
    assert watched.config is good


def test_a_generation_that_goes_backwards_is_accepted(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(9, "acme"))
    watched.poll()
    write(tmp_path, config_text(2, "burst"))
    assert watched.poll()
    assert watched.config.generation == 2


def test_a_refused_config_gives_way_to_the_one_before(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1, "acme"))
    watched.poll()
    good = watched.config
    write(tmp_path, config_text(2, "too-big"))
    watched.poll()
    watched.refuse("zones: reservations add up to more than there is")
    assert watched.config is good
    assert (watched.rejection.generation, watched.rejection.unix_time) == (2, NOW)
    assert not watched.poll(), "the same file is not tried again"
    write(tmp_path, config_text(1, "acme"))
    assert watched.poll()
    assert watched.config is good
    assert watched.rejection is None


def test_the_first_config_refused_leaves_none(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1))
    watched.poll()
    watched.refuse("does not fit")
    assert watched.config is None


def test_the_same_content_under_a_new_generation_is_taken_over(tmp_path):
    """The engine acknowledges a generation, so it must follow."""
    watched = source(tmp_path)
    write(tmp_path, config_text(1, "acme"))
    watched.poll()
    write(tmp_path, config_text(2, "acme"))
    assert watched.poll()
    assert watched.config.generation == 2


def test_a_generation_that_no_operator_writes_is_refused(tmp_path):
    watched = source(tmp_path)
    write(tmp_path, config_text(1, "acme"))
    watched.poll()
    write(tmp_path, config_text(2**52, "late"))

    assert watched.poll()
    assert generation_of(watched) == 1
    assert watched.rejection is not None
    assert (watched.rejection.generation, "was not written by the operator" in watched.rejection.error) == (None, True)


@pytest.mark.parametrize("content", ['{"hash": "\\ud800"}', json.dumps({"pool": {"x" * 800_000: 1}}), '"\x1b[31m"'])
def test_what_is_said_of_a_bad_file_is_short_and_can_be_shown(tmp_path, content):
    watched = source(tmp_path)
    write(tmp_path, content)

    assert watched.poll()
    assert watched.rejection is not None
    assert len(watched.rejection.error) <= 1000
    assert watched.rejection.error.isprintable()


def test_a_write_while_it_reads_for_long_is_noticed(tmp_path, monkeypatch):
    """Two writes within one tick of the file system's clock leave the same stamp."""
    watched = source(tmp_path)
    write(tmp_path, config_text(1, "acme"))
    status = (tmp_path / "config.json").stat()
    read = Path.read_bytes

    def read_for_long(path: Path) -> bytes:
        content = read(path)
        write(tmp_path, config_text(2, "acme"))
        os.utime(tmp_path / "config.json", ns=(status.st_atime_ns, status.st_mtime_ns))
        time.sleep(0.15)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_for_long)
    watched.poll()
    monkeypatch.undo()

    watched.poll()
    assert generation_of(watched) == 2
