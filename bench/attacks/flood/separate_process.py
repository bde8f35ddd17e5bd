"""Runs work in a separate process until it is stopped, so that it takes no time from the measuring process."""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

_STOP_SECONDS = 150
"""Maximum time for the process to stop, which is longer than a client's timeout."""

Result = TypeVar("Result")


class Outcome(Generic[Result]):
    """The result of a separate process; available after the process was stopped."""

    result: Result


@contextlib.contextmanager
def in_separate_process(name: str, work: Callable[[Connection], Result]) -> Iterator[Outcome[Result]]:
    """Run work in a separate process until the block ends.

    Args:
        name: the name of the work in errors.
        work: the function to run, which must return soon after a message arrives on its connection.

    Raises:
        RuntimeError: the process ended before it was stopped.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work_until_stopped, args=(work, theirs), daemon=True)
    done = Outcome[Result]()
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
