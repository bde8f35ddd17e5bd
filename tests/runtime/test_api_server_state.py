"""The config that each API server process enforces, in its own file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tenantzone_runtime.api_server_state import read_states, remove_state, start_of, state_of_this_process

STATE = state_of_this_process(3, "sha256:ab", "keys", "salt")


def test_what_is_written_is_read(tmp_path: Path):
    STATE.write(tmp_path)
    assert STATE.is_in(tmp_path)
    assert read_states(tmp_path) == [STATE]
    remove_state(tmp_path)
    assert not STATE.is_in(tmp_path)
    assert read_states(tmp_path) == []


def test_no_other_user_may_read_it(tmp_path: Path):
    before = os.umask(0o022)
    try:
        STATE.write(tmp_path)
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]


def test_the_file_of_a_process_that_has_ended_is_removed(tmp_path: Path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    replace(STATE, process=ended.pid, started=start_of(ended.pid)).write(tmp_path)
    ended.wait()
    another_of_that_id = replace(STATE, started=STATE.started - 1)
    another_of_that_id.write(tmp_path)
    assert read_states(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_has_ended_and_was_not_waited_for_does_not_run():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert start_of(child) is None
    os.waitpid(child, 0)


def test_broken_files_and_other_files_are_passed_over(tmp_path: Path):
    STATE.write(tmp_path)
    (tmp_path / "api-server-1.json").write_text("{")
    (tmp_path / "api-server-2.json").write_text('{"process": 1}')
    (tmp_path / "api-server-3.json").write_text("[]")
    (tmp_path / "config.json").write_text("{}")
    assert read_states(tmp_path) == [STATE]
    assert not read_states(tmp_path / "absent")


def with_fields(**fields: object) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps({**asdict(STATE), **fields}))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(os.mkfifo, id="pipe"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), id="link to a device"),
        pytest.param(lambda path: path.symlink_to(path), id="link to itself"),
        pytest.param(lambda path: path.mkdir(), id="folder"),
        pytest.param(lambda path: path.write_text("[" * 200_000), id="long"),
        pytest.param(lambda path: path.write_text("[" * 3_000), id="deep"),
        pytest.param(with_fields(config_hash="a" * 10_000), id="long field"),
        pytest.param(with_fields(process="1/../self"), id="process that is a path"),
        pytest.param(with_fields(process=True), id="process that is no number"),
        pytest.param(with_fields(process=-1), id="process that is negative"),
        pytest.param(with_fields(started=[1]), id="start that is no number"),
        pytest.param(with_fields(config_generation="3"), id="generation that is no number"),
        pytest.param(with_fields(keys=None), id="no digest"),
        pytest.param(with_fields(unix_time="now"), id="time that is no number"),
        pytest.param(with_fields(keys="others"), id="state of another process"),
    ],
)
def test_what_no_process_has_written_is_passed_over(tmp_path: Path, make: Callable[[Path], object]):
    STATE.write(tmp_path)
    # Sorted after the valid one by name, so that it would replace that.
    path = tmp_path / "api-server-other.json"
    make(path)
    assert read_states(tmp_path) == [STATE]
    assert os.path.lexists(path), "it is not ours to remove"
