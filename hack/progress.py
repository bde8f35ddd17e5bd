"""Runs long commands and shows their progress, with a terminal or without.

Two commands may run at the same time, so every line starts with the name of its task.
"""

import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_SILENCE_SECONDS = 5.0
"""The longest time without a line."""

_TAIL_LINES = 40
"""The lines that are shown of a failed command."""


class CommandFailed(Exception):
    """A command ended with an error; the message holds the end of its output."""


def say(name: str, message: str) -> None:
    """One line of progress on standard error: standard output is for results."""
    print(f"{name:<10} | {message}", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """``75.3`` as ``1:15``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def written(pid: int, _: int) -> str:
    """How much the process has written to files so far; a status for :func:`watch`."""
    try:
        counters = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return "working"
    amount = next(int(line.split()[1]) for line in counters.splitlines() if line.startswith("wchar:"))
    return f"{amount / 1e6:,.0f} MB written" if amount > 1e6 else "working"


def watch(
    name: str,
    command: Sequence[str | Path],
    *,
    status: Callable[[int, int], str],
    worth_saying: Callable[[str], bool] = lambda line: True,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a command to its end and report on it at least every few seconds.

    Args:
        name: starts each line.
        command: the program and its arguments.
        status: says how far the command is, given its process id and the number of lines that it has printed.
        worth_saying: whether a line of the command's output is shown.
        cwd: the folder to run in.
        env: the command's whole environment.

    Raises:
        CommandFailed: it ended with an error.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        tail = _follow(name, process, status, worth_saying, began)
    except BaseException:
        process.terminate()
        raise
    finally:
        process.wait()
    if process.returncode != 0:
        output = "\n".join(tail)
        raise CommandFailed(f"{' '.join(map(str, command))} ended with exit code {process.returncode}:\n{output}")


def _follow(
    name: str,
    process: subprocess.Popen[str],
    status: Callable[[int, int], str],
    worth_saying: Callable[[str], bool],
    began: float,
) -> deque[str]:
    """Report until the command closes its output; the last lines of that."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    count = 0
    spoke = began
    while True:
        try:
            line = lines.get(timeout=max(0.0, spoke + _SILENCE_SECONDS - time.monotonic()))
        except queue.Empty:
            say(name, f"{clock(time.monotonic() - began)} {status(process.pid, count)}")
            spoke = time.monotonic()
            continue
        if line is None:
            return tail
        count += 1
        tail.append(line)
        if worth_saying(line):
            say(name, line)
            spoke = time.monotonic()


def _read(process: subprocess.Popen[str], lines: "queue.SimpleQueue[str | None]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip())
    lines.put(None)
