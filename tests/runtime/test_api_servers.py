"""The report's part about an engine's API server processes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tenantzone_runtime.api_server_state import ApiServerState, start_of, state_of_this_process
from tenantzone_runtime.housekeeping.api_servers import (
    LAG_SECONDS,
    MISSING_SECONDS,
    START_SECONDS,
    ApiServers,
    Enforced,
)
from tests.housekeeping.driven import CAPACITY
from tests.housekeeping.house import House
from tests.housekeeping.simulated import SimulatedEngine
from tests.runtime.folders import zone

ENFORCED = Enforced("sha256:new", "keys", "salt")
SAME = state_of_this_process(2, ENFORCED.config_hash, ENFORCED.keys, ENFORCED.salt_key)


@pytest.fixture
def other_process() -> Iterator[int]:
    """The id of a process that runs until the test ends."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def written(folder: Path, state: ApiServerState, **fields: object) -> None:
    replace(state, **fields).write(folder)


def test_without_any_nothing_is_said(tmp_path: Path):
    assert ApiServers(None).reports is None
    watched = ApiServers(tmp_path)
    assert not watched.turn(ENFORCED, 0.0)
    assert watched.reports is None


def test_each_process_is_reported_with_what_it_enforces(tmp_path: Path, other_process: int):
    started = start_of(other_process)
    written(tmp_path, SAME)
    written(tmp_path, SAME, process=other_process, started=started, config_generation=1, config_hash="sha256:old")
    watched = ApiServers(tmp_path)
    assert watched.turn(ENFORCED, 0.0)
    assert not watched.turn(ENFORCED, 1.0)
    found = {each.process: (each.config_generation, each.config_hash, each.lags) for each in watched.reports}
    assert found == {os.getpid(): (2, "sha256:new", ()), other_process: (1, "sha256:old", ())}


@pytest.mark.parametrize(("field", "lag"), [("config_hash", "config"), ("keys", "keys"), ("salt_key", "salt_key")])
def test_what_differs_for_long_is_a_lag_until_it_does_not(tmp_path: Path, field: str, lag: str):
    watched = ApiServers(tmp_path)
    for second in range(100):
        written(tmp_path, SAME, unix_time=float(second), **({field: "other"} if second < 50 else {}))
        watched.turn(ENFORCED, float(second))
        (process,) = watched.reports
        assert process.lags == ((lag,) if LAG_SECONDS <= second < 50 else ())


def test_differences_that_come_and_go_are_no_lag(tmp_path: Path):
    watched = ApiServers(tmp_path)
    for second in range(100):
        written(tmp_path, SAME, unix_time=float(second), keys="keys" if second % 20 == 0 else f"at {second}")
        watched.turn(ENFORCED, float(second))
        assert watched.reports[0].lags == ()


def test_a_process_that_follows_keys_that_change_all_the_time_is_no_lag_and_one_that_does_not_follow_is(tmp_path: Path):
    watched = ApiServers(tmp_path)
    for second in range(100):
        keys = f"at {min(second, 60) - 2}"
        written(tmp_path, SAME, unix_time=float(second), keys=keys)
        watched.turn(replace(ENFORCED, keys=f"at {second}"), float(second))
        assert watched.reports[0].lags == (("keys",) if second >= 60 + LAG_SECONDS else ())


def test_a_process_that_says_nothing_more_is_silent_even_if_its_file_is_gone(tmp_path: Path):
    watched = ApiServers(tmp_path)
    written(tmp_path, SAME)
    watched.turn(ENFORCED, 0.0)
    shutil.rmtree(tmp_path)
    watched.turn(ENFORCED, LAG_SECONDS - 1)
    assert watched.reports[0].lags == ()
    assert watched.turn(ENFORCED, LAG_SECONDS)
    assert watched.reports[0].lags == ("silent",)


def test_a_process_that_has_ended_is_forgotten(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    written(tmp_path, SAME, process=process.pid, started=start_of(process.pid))
    watched = ApiServers(tmp_path)
    watched.turn(ENFORCED, 0.0)
    assert watched.reports is not None
    process.communicate()
    assert watched.turn(ENFORCED, 1.0)
    assert watched.reports is None


@pytest.mark.parametrize("written_at", [None, 10, 500])
def test_a_process_that_never_reports_is_missing_after_a_while(tmp_path: Path, written_at: int | None):
    watched = ApiServers(tmp_path, started=2)
    missing = 2 if written_at is None else 1
    missing_at = START_SECONDS if written_at is None else written_at + MISSING_SECONDS
    for second in range(0, 700, 5):
        if second == written_at:
            written(tmp_path, SAME)
        watched.turn(ENFORCED, float(second))
        assert watched.missing == (missing if second >= missing_at else 0)


def test_a_process_that_reports_late_or_ends_and_comes_again_is_not_missing(tmp_path: Path):
    watched = ApiServers(tmp_path, started=1)
    watched.turn(ENFORCED, 0.0)
    watched.turn(ENFORCED, START_SECONDS)
    assert watched.missing == 1
    written(tmp_path, SAME)
    assert watched.turn(ENFORCED, START_SECONDS + 1)
    assert watched.missing == 0


def test_an_engine_without_api_servers_misses_none(tmp_path: Path):
    for watched in (ApiServers(None, started=2), ApiServers(tmp_path)):
        watched.turn(ENFORCED, 0.0)
        watched.turn(ENFORCED, START_SECONDS)
        assert watched.missing == 0


def test_the_report_has_them_and_which_engine_it_is_of(tmp_path: Path):
    with House(SimulatedEngine(CAPACITY), tmp_path, POD_UID="uid-of-the-pod") as house:
        assert house.report().api_servers is None
        house.enforce(zone("acme"))
        state_of_this_process(1, "sha256:old", "", "").write(tmp_path / "state")
        report = house.await_report(lambda report: report.api_servers)
        assert [(each.process, each.config_hash) for each in report.api_servers] == [(os.getpid(), "sha256:old")]
        assert report.pod_uid == "uid-of-the-pod"
    (tmp_path / "again").mkdir()
    with House(SimulatedEngine(CAPACITY), tmp_path / "again") as house:
        again = house.report()
    assert again.boot_id != report.boot_id != ""
    assert again.pod_uid == ""
