"""Runs work in a separate process until it is stopped, so that it takes no time from the measuring process."""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

_STOP_SECONDS = 150
"""Longer than a client waits for an answer."""

Result = TypeVar("Result")


class Beside(Generic[Result]):
    """The result of a separate process; available after the process was stopped."""

    result: Result


@contextlib.contextmanager
def beside(name: str, work: Callable[[Connection], Result]) -> Iterator[Beside[Result]]:
    """Have something done in a process of its own until the block ends.

    Args:
        name: of the work, for errors.
        work: ends soon after there is something to be read from its connection.

    Raises:
        RuntimeError: it ended too early.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work_until_stopped, args=(work, theirs), daemon=True)
    done = Beside[Result]()
    process.start()
    theirs.close()
    try:
        ours.recv()
        yield done
        ours.send(None)
        done.result = ours.recv()
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise RuntimeError(f"it ended too early: {name}") from error
    finally:
        ours.close()
        process.join(_STOP_SECONDS)
        process.kill()


def _work_until_stopped(work: Callable[[Connection], Result], parent: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent.send(None)
    parent.send(work(parent))
