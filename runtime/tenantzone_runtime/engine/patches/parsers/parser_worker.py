"""The process that runs the parsers of one request, and the template from which such processes are forked.

Upstream change that would make this module unnecessary: vLLM awaits its parsers and runs them in an executor.
"""

import gc
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from tenantzone_runtime.engine.patches.parsers.interruption import TimeSpentError, prepare_interruption, run_for
from tenantzone_runtime.engine.patches.parsers.parser_messages import LENGTH, Answer, Call, NewParser, Shared

_NICENESS: Final = 5
"""Niceness of parser processes, which gives the API server and the engine core priority for CPUs."""
_BEYOND_SECONDS: Final = 2
"""If a call can't be interrupted, the kernel kills the process this many CPU seconds after the call's limit."""


class Template:
    """The process from which parser processes are forked, because it has neither threads nor client connections.

    Args:
        shared: the objects that messages refer to by identity.

    Raises:
        OSError: the fork failed.
    """

    def __init__(self, shared: Shared) -> None:
        self.connection, theirs = socket.socketpair()
        """Connection on which the template receives sockets. It forks a process for each socket, to answer calls
        there."""
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                self.connection.close()
                raise
            if pid == 0:
                try:
                    _be_template(theirs, shared)
                finally:
                    # If the template fails, it must not continue as a second API server.
                    os._exit(1)
        self.connection.setblocking(False)
        try:
            self._pid_descriptor = os.pidfd_open(pid)
        except OSError:
            # Closing the connection makes the template exit.
            self.connection.close()
            raise
        finally:
            # Wait for the template's end on a thread, so that no zombie process is left.
            threading.Thread(target=os.waitpid, args=(pid, 0), name="parser template", daemon=True).start()

    def close(self) -> None:
        """Kill the template. Processes that were forked from it continue."""
        kill(self._pid_descriptor)
        self.connection.close()


def kill(pid_descriptor: int) -> None:
    """Kill a process, and close its descriptor."""
    # The process may have ended already.
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pid_descriptor, signal.SIGKILL)
    os.close(pid_descriptor)


def _be_template(requests: socket.socket, shared: Shared) -> NoReturn:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    # Ignore signals that terminals and service managers send to all processes. The template exits after the API server.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Makes the kernel reap ended children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    prepare_interruption()
    # Never collect the API server's objects in this process, because some close shared resources when collected.
    gc.freeze()
    _close_all_but(requests.fileno())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    _be_killed_first()
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not data:
            os._exit(0)
        with socket.socket(fileno=descriptors[0]) as connection:
            try:
                pid = os.fork()
            except OSError as error:
                # The API server may have closed the connection.
                with suppress(OSError):
                    connection.sendall(shared.dump(error))
                continue
            if pid == 0:
                requests.close()
                _answer_calls(connection, shared)


def _close_all_but(kept: int) -> None:
    # Close only open descriptors: the limit may be a billion, and closing all numbers could take minutes.
    for descriptor in (int(each.name) for each in Path("/proc/self/fd").iterdir()):
        if descriptor > 2 and descriptor != kept:
            # The list includes the descriptor with which the folder was listed, which is already closed.
            with suppress(OSError):
                os.close(descriptor)


def _be_killed_first() -> None:
    """If memory runs out, make the kernel kill this process before the engine."""
    # If the file can't be written, the kernel's default order applies.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer_calls(connection: socket.socket, shared: Shared) -> NoReturn:
    parsers: dict[int, _Read] = {}
    connection.sendall(shared.dump(os.getpid()))
    with connection.makefile("rb") as calls:
        while len(length := calls.read(LENGTH.size)) == LENGTH.size:
            call: Call = shared.load(calls.read(*LENGTH.unpack(length)))
            answer = _answer(parsers, call)
            try:
                message = shared.dump(answer)
            except Exception as error:
                message = shared.dump(Answer("raised", RuntimeError(f"{answer.value!r:.200}: {error}"), answer.seconds))
            connection.sendall(message)
    os._exit(0)


class _Read(NamedTuple):
    parser: Any
    common: Mapping[str, Any]


def _answer(parsers: dict[int, _Read], call: Call) -> Answer:
    begin = time.process_time()
    _limit_processor(call.seconds + (0.0 if call.new is None else call.seconds_again))
    try:
        if call.new is not None:
            parser = run_for(call.seconds_again, partial(_parser, call.new))
            parsers[call.parser] = _Read(parser, call.new.common)
            begin = time.process_time()
        parser, common = parsers[call.parser]
        arguments = {**call.arguments, **{name: common[name] for name in call.common}}
        method: Callable[..., Any] = partial(getattr(parser, call.method), **arguments)
        return Answer("result", run_for(call.seconds, method), time.process_time() - begin)
    except TimeSpentError:
        return Answer("spent", None, time.process_time() - begin)
    except Exception as error:
        return Answer("raised", error, time.process_time() - begin)


def _limit_processor(seconds: float) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(time.process_time() + seconds) + _BEYOND_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def _parser(new: NewParser) -> Any:
    """Returns a new parser that has read the recorded input of the parser that it replaces."""
    parser = new.class_(*new.args, **new.kwargs)
    if new.prompt is not None:
        parser.set_prompt_token_ids(new.prompt)
    for text, ids in new.deltas:
        parser.parse_delta(delta_text=text, delta_token_ids=ids, finished=False, **new.common)
    return parser
