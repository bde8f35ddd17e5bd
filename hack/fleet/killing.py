"""The chapters in which a server is killed while two engines are asked all the time."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from openai import OpenAIError

from hack.demo.console import chapter, say, table, wait_until
from hack.demo.engines import BLOCK_TOKENS
from hack.demo.story.asking import make_prompt
from hack.demo.story.claims import Claims
from hack.fleet.stack import Fleet

_SECONDS: Final = 120.0
_PHASES: Final = ("before", "without it", "again")
_AT_ONCE: Final = 20
"""Requests in each phase, at least."""


@dataclass
class _Load:
    """Requests of acme to two engines, one after the other to each."""

    fleet: Fleet
    phase: str = "before"
    asked: dict[str, list[int]] = field(default_factory=dict)
    """The cached tokens of each answer, by phase."""
    failed: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Have them asked while the block lasts."""
        stopping = threading.Event()

        def keep_asking(engine: int) -> None:
            tenant, number = self.fleet.tenant("acme", engine), 0
            while not stopping.is_set():
                number += 1
                prompt = make_prompt(self.fleet.model, 8, seed=f"load {engine} {number % 5}")
                try:
                    answer = tenant.ask(prompt, answer_tokens=1)
                except OpenAIError:
                    self.failed[self.phase] += 1
                else:
                    self.asked.setdefault(self.phase, []).append(answer.cached_tokens)

        threads = [threading.Thread(target=keep_asking, args=(engine,)) for engine in (0, 1)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopping.set()
            for thread in threads:
                thread.join()

    def wait_for(self, phase: str) -> None:
        """Wait until some have been answered in a phase that begins now."""
        self.phase = phase
        wait_until(
            lambda: len(self.asked.get(phase, ())) >= _AT_ONCE, lambda: f"requests {phase}", timeout=_SECONDS, poll=0.1
        )


@dataclass(frozen=True, slots=True)
class Killed:
    """A server that is killed, and started again."""

    what: str
    kill: Callable[[], None]
    start: Callable[[], None]
    problem: Callable[[], str]
    """Returns the problem that is reported while the server is down, once it was detected."""


def problem_of_engine_a(fleet: Fleet) -> Callable[[], str]:
    """Returns a function that gives engine A's report of the problem."""
    return lambda: f"engine A says: {fleet.problem(0)}" if fleet.problem(0) else ""


def is_killed(fleet: Fleet, claims: Claims, letter: str, server: Killed) -> None:
    """Kill a server under load, start it again, and claim that the only effect is on hits.

    Args:
        fleet: the running fleet.
        claims: collects the claims.
        letter: of the chapter.
        server: that is killed.
    """
    what = server.what
    chapter(f"{letter}. {what} is killed under load")
    load = _Load(fleet)
    with load.going_on():
        load.wait_for("before")
        server.kill()
        load.wait_for("without it")
        # Repeated prompts are in the engines' own blocks; only a new prompt reaches the storage.
        fleet.tenant("acme", 0).ask(make_prompt(fleet.model, 8, seed=f"asks {what}"), answer_tokens=1)
        wait_until(lambda: bool(server.problem()), lambda: "the fault to be noticed", timeout=_SECONDS, poll=0.1)
        say(server.problem())
        fleet.cluster.await_storage(ready=False)
        fleet.cluster.show("get", "kvstorages", "--output=wide")
        server.start()
        load.phase = "again"
        wait_until(lambda: _moves(fleet, server), lambda: "sessions to move again", timeout=_SECONDS, poll=1.0)
        load.wait_for("again")
    table(
        ("", "requests", "failed", "cached tokens"),
        [
            (name, str(len(load.asked.get(name, ()))), str(load.failed[name]), str(sum(load.asked.get(name, ()))))
            for name in _PHASES
        ],
    )
    claims.check(letter, "no request fails", f"{load.failed.total()} failed", held=not load.failed)
    kept, blocks = _move(fleet, f"after {what} came back", 0, 1)
    claims.check(
        letter,
        "sessions move again, and no engine was restarted",
        f"{kept} of {blocks} blocks",
        held=kept >= 0.95 * blocks,
    )


def _moves(fleet: Fleet, server: Killed) -> bool:
    """Whether both engines use the storage again, and the cluster reports it; each engine notices when it stores.

    So each attempt uses new prompts: a late one is in the engines' own memory, and is not stored again.
    """
    for engine in (0, 1):
        prompt = make_prompt(fleet.model, 8, seed=f"again {server.what} {engine} {time.monotonic_ns()}")
        fleet.tenant("acme", engine).ask(prompt, answer_tokens=1)
    problems = (server.problem(), fleet.problem(0), fleet.problem(1))
    return not any(problems) and fleet.cluster.is_storage_ready()


def _move(fleet: Fleet, seed: str, begins: int, goes_on: int) -> tuple[int, int]:
    """Have a new session begin on one engine and go on on another; returns blocks that were found, and all."""
    prompt = make_prompt(fleet.model, 20, seed=seed)
    before = fleet.written("acme")
    blocks = fleet.tenant("acme", begins).ask(prompt).prompt_tokens // BLOCK_TOKENS
    await_written(fleet, "acme", before + blocks)
    return fleet.tenant("acme", goes_on).ask(prompt).cached_tokens // BLOCK_TOKENS, blocks


def await_written(fleet: Fleet, tenant: str, chunks: int) -> None:
    """Wait until ``chunks`` chunks of a tenant were written."""
    wait_until(
        lambda: fleet.written(tenant) >= chunks, lambda: f"{chunks} chunks of {tenant}", timeout=_SECONDS, poll=0.1
    )
