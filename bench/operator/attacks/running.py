"""Carries out all attacks at once, repeatedly, and measures the time until each is undone; restarts processes."""

import asyncio
import random
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from bench.operator.attacks.attacks import Attack
from bench.operator.attacks.site import Site
from bench.operator.fleet import Engine
from tenantzone_operator.kube.rest import RestError

_LOOK_SECONDS = 0.25
_AWAY_SECONDS = 1.0


@dataclass(slots=True)
class Tally:
    """The outcomes of the attacks of one kind."""

    undone: str
    """Expected outcome, as text for the report."""
    carried_out: int = 0
    refused: int = 0
    """Number of attacks that the API server refused."""
    unanswered: int = 0
    """Number of attacks that got no answer in time."""
    seconds: list[float] = field(default_factory=list)
    """Time from each attack until it was seen to be undone."""
    late: list[str] = field(default_factory=list)
    """Attacks that were not undone in time, as sentences."""


class Attackers:
    """Repeats attacks, with one task for each kind.

    Args:
        site: the site to attack.
        attacks: the attacks by name.
        frequency: the factor by which attacks are more frequent than each attack defines.
        patience: the factor by which the time to undo an attack is longer than each attack defines.
    """

    def __init__(self, site: Site, attacks: Mapping[str, Attack], frequency: float, patience: float) -> None:
        self._site = site
        self._attacks = attacks
        self._frequency, self._patience = frequency, patience
        self.tallies = {name: Tally(attack.undone) for name, attack in attacks.items()}

    @property
    def carried_out(self) -> int:
        """Number of attacks carried out so far."""
        return sum(tally.carried_out for tally in self.tallies.values())

    def runs(self) -> list[Coroutine[Any, Any, None]]:
        """Returns a coroutine for each kind of attack, which runs until it is cancelled."""
        return [self._run(name, attack) for name, attack in self._attacks.items()]

    async def _run(self, name: str, attack: Attack) -> None:
        chance = random.Random(self._site.chance.random())
        while True:
            await asyncio.sleep(chance.uniform(0.5, 1.5) * attack.every_seconds / self._frequency)
            try:
                await self._once(name, attack)
            finally:
                if attack.clean_up is not None:
                    await attack.clean_up(self._site)

    async def _once(self, name: str, attack: Attack) -> None:
        tally = self.tallies[name]
        tally.carried_out += 1
        try:
            is_undone = await attack.run(self._site)
        except RestError as error:
            tally.refused += 1
            if not 400 <= error.status < 500:
                tally.late.append(f"{name}: {error}")
            return
        except (OSError, aiohttp.ClientError, TimeoutError):
            tally.unanswered += 1
            return
        began, leaderless = time.monotonic(), self._site.replicas.leaderless
        while not await _holds(is_undone()):
            now = time.monotonic()
            if now - began - leaderless.seconds(began, now) > attack.within_seconds * self._patience:
                tally.late.append(f"{name}: not {attack.undone} after {now - began:.0f} s")
                return
            await asyncio.sleep(_LOOK_SECONDS)
        tally.seconds.append(time.monotonic() - began)


async def _holds(check: Awaitable[bool]) -> bool:
    try:
        return await check
    except (RestError, aiohttp.ClientError, TimeoutError):
        return False


class Restarts:
    """Replaces operators and engines one by one, as in a rolling upgrade.

    Args:
        site: the site on which they run.
        engines: the engines to replace; each of their pools has another engine.
        rounds: how often each operator and each engine is replaced.
        seconds: the time over which the replacements are spread.
    """

    def __init__(self, site: Site, engines: Sequence[Engine], rounds: int, seconds: float) -> None:
        self._site = site
        self._engines = engines
        self._pause_seconds = seconds / (2 * rounds + 1)
        self._engine_pause_seconds = max(_AWAY_SECONDS, seconds / max(1, len(engines) * rounds) - _AWAY_SECONDS)
        self.engines = 0
        """Number of engine replacements so far."""

    async def of_operators(self) -> None:
        """Restart the operators in turn until cancelled."""
        while True:
            for process in self._site.replicas.processes:
                await asyncio.sleep(self._pause_seconds)
                await self._site.replicas.restart(process)

    async def of_engines(self) -> None:
        """Replace the engines in turn until cancelled; all engines are running afterwards."""
        while True:
            for engine in self._engines:
                await self._site.fleet.replace(engine, _AWAY_SECONDS)
                self.engines += 1
                await asyncio.sleep(self._engine_pause_seconds)
