"""Processes of the demo end with it, and one that dies is noticed and explained."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.demo.console import wait_until
from hack.demo.processes import ProcessDiedError, Processes

SAYS_ITS_PID = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def await_pid(log: Path) -> int:
    wait_until(lambda: log.read_text().strip().isdigit(), lambda: "the process to say its id", timeout=30, poll=0.01)
    return int(log.read_text())


def test_processes_end_with_the_block(tmp_path: Path, lock: int):
    with Processes(tmp_path, lock) as processes:
        for name in ("one", "two"):
            processes.start(name, [sys.executable, "-c", SAYS_ITS_PID])
        pids = [await_pid(tmp_path / f"{name}.log") for name in ("one", "two")]
        processes.check()
        assert all(runs(pid) for pid in pids)
    assert not any(runs(pid) for pid in pids)


def test_processes_end_with_a_block_that_fails(tmp_path: Path, lock: int):
    pids: list[int] = []

    def interrupted() -> None:
        with Processes(tmp_path, lock) as processes:
            processes.start("one", [sys.executable, "-c", SAYS_ITS_PID])
            pids.append(await_pid(tmp_path / "one.log"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [runs(pid) for pid in pids] == [False]


def test_a_process_that_died_is_named_with_the_end_of_its_log(tmp_path: Path, lock: int):
    with Processes(tmp_path, lock) as processes:
        processes.start("engine", [sys.executable, "-c", "raise SystemExit('no such model')"])

        def died() -> bool:
            try:
                processes.check()
            except ProcessDiedError as error:
                return "engine has ended" in str(error) and "no such model" in str(error)
            return False

        wait_until(died, lambda: "the death to be noticed", timeout=30, poll=0.01)


def test_a_process_gets_the_environment_that_it_is_given(tmp_path: Path, lock: int):
    with Processes(tmp_path, lock) as processes:
        code = "import os, time; print(os.environ['GREETING'], flush=True); time.sleep(600)"
        processes.start("one", [sys.executable, "-c", code], {**os.environ, "GREETING": "hello"})
        log = tmp_path / "one.log"
        wait_until(lambda: log.read_text().strip() == "hello", lambda: "the greeting", timeout=30, poll=0.01)


def test_what_a_process_leaves_behind_when_it_is_killed_ends_too(tmp_path: Path, lock: int):
    code = (
        f"import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SAYS_ITS_PID!r}]); time.sleep(600)"
    )
    with Processes(tmp_path, lock) as processes:
        processes.start("parent", [sys.executable, "-c", code])
        child = await_pid(tmp_path / "parent.log")
        parent = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        wait_until(lambda: not runs(child), lambda: "the child to end", timeout=30, poll=0.01)
