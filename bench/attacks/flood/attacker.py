"""The process that sends the attacker's loads of the flood."""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection

import httpx

from bench.attacks.flood.loads import Load, pairs


@dataclass(frozen=True, slots=True)
class Attack:
    """The description of a load for the process that sends it."""

    url: str
    model: str
    headers: dict[str, str]
    pair: int
    """Index of the load in `pairs(queued, aborted)`, from 0."""
    is_odd: bool
    queued: int
    aborted: int
    seed: int

    @property
    def load(self) -> Load:
        pair = pairs(self.queued, self.aborted)[self.pair]
        return pair.pathological if self.is_odd else pair.plain


def attack_until_stopped(attack: Attack, parent: Connection) -> Counter[str]:
    """Attack until a message arrives from the parent; returns the number of answers by status or error."""
    answers: Counter[str] = Counter()
    asyncio.run(_attack(attack, parent, answers))
    return answers


async def _attack(attack: Attack, parent: Connection, answers: Counter[str]) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(parent.fileno(), over.set)
    sending = asyncio.create_task(_send_all(attack, answers))
    await over.wait()
    asyncio.get_running_loop().remove_reader(parent.fileno())
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending


async def _send_all(attack: Attack, answers: Counter[str]) -> None:
    load, rng = attack.load, random.Random(attack.seed)
    numbers = itertools.count() if load.most is None else iter(range(load.most))
    limits = httpx.Limits(max_connections=None)

    async def send() -> None:
        for _ in numbers:
            body = {"model": attack.model, **load.body(rng)}
            try:
                async with client.stream("POST", "/v1/completions", json=body) as response:
                    if load.is_aborted:
                        await anext(response.aiter_lines(), None)
                    else:
                        await response.aread()
                    answers[str(response.status_code)] += 1
            except httpx.HTTPError as error:
                answers[type(error).__name__] += 1

    async with httpx.AsyncClient(base_url=attack.url, headers=attack.headers, timeout=120, limits=limits) as client:
        await asyncio.gather(*(send() for _ in range(load.at_once)))
