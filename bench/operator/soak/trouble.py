"""The troubles of a soak: engines that lie or stop for a while, a bad network, and kills of the operator."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

from bench.operator.fleet import Engine, Fleet
from bench.operator.process import OperatorProcess
from hack.harness.lies import LIES
from hack.harness.proxy import BROKEN, HUNG, LOST, Faults, Proxy, Refusal

_LATER = Refusal(429, (("Retry-After", "1"),))
_AWAY = Refusal(503, (("Retry-After", "1"),))

NETWORKS: dict[str, Callable[[], Faults]] = {
    "fine": Faults,
    "answers get lost": lambda: Faults(writes=LOST),
    "connections break": lambda: Faults(writes=BROKEN, reads=BROKEN, watches=BROKEN),
    "statuses hang": lambda: Faults(writes=HUNG, only="/tenantzones/"),
    "configs hang": lambda: Faults(writes=HUNG, only="/configmaps/"),
    "writes conflict": lambda: Faults(writes=Refusal(409)),
    "429 with Retry-After": lambda: Faults(writes=_LATER, reads=_LATER, watches=_LATER),
    "503 with Retry-After": lambda: Faults(writes=_AWAY, reads=_AWAY, watches=_AWAY),
    "watches break after 20 events": lambda: Faults(drop_every=20),
}
"""States of a bad network between operator and API server, by name. A fault hits the first request of each path."""

_ONE_IN = 1000
"""While faults are rare, a fault hits one in this number of requests to the API server."""
_FAULT_SECONDS = 10.0
"""Time after which rare faults change their kind."""
_KINDS = (LOST, BROKEN, HUNG, Refusal(409), _LATER, _AWAY)


class Liars:
    """Makes engines send a false report for a while, and then a different one or the true report."""

    def __init__(self, engines: Sequence[Engine], chance: random.Random) -> None:
        self._engines = engines
        self._chance = chance
        self.reported: Counter[str] = Counter()
        """Number of times that each lie was begun."""

    async def run(self) -> None:
        """Let engines lie until cancelled; all engines are honest afterwards."""
        try:
            await asyncio.gather(*(self._lie(engine) for engine in self._engines))
        finally:
            for engine in self._engines:
                engine.lie = None

    async def _lie(self, engine: Engine) -> None:
        while True:
            # Choose among the least frequent lies, so that every lie is sent.
            fewest = min(self.reported[name] for name in LIES)
            name = self._chance.choice([name for name in LIES if self.reported[name] == fewest])
            self.reported[name] += 1
            engine.lie = LIES[name]
            await asyncio.sleep(self._chance.uniform(1.0, 20.0))
            engine.lie = None
            await asyncio.sleep(self._chance.choice((0.0, 0.5, 5.0)))


class FaultsHereAndThere:
    """Makes a few requests between operator and API server fail, in changing ways."""

    def __init__(self, proxy: Proxy, chance: random.Random) -> None:
        self._proxy = proxy
        self._chance = chance
        self.count = 0
        """Number of requests that a fault has hit."""

    async def run(self) -> None:
        """Cause faults until cancelled; no request is hit afterwards."""
        try:
            while True:
                kind = self._chance.choice(_KINDS)
                self._proxy.heal()
                self._proxy.faults = Faults(writes=kind, reads=kind, watches=kind, times=None, strikes=self._strikes)
                await asyncio.sleep(_FAULT_SECONDS)
        finally:
            self._proxy.heal()

    def _strikes(self) -> bool:
        is_hit = self._chance.randrange(_ONE_IN) == 0
        self.count += is_hit
        return is_hit


class BadNetwork:
    """Puts the network between operator and API server into random bad states."""

    def __init__(self, proxy: Proxy, chance: random.Random) -> None:
        self._proxy = proxy
        self._chance = chance
        self.met: Counter[str] = Counter()
        """Number of times that the network was in each state."""

    async def run(self) -> None:
        """Change the network's state until cancelled; it works normally afterwards."""
        try:
            while True:
                name = self._chance.choice(list(NETWORKS))
                self.met[name] += 1
                self._proxy.heal()
                self._proxy.faults = NETWORKS[name]()
                if self._chance.random() < 0.3:
                    self._proxy.break_watches()
                await asyncio.sleep(self._chance.uniform(2.0, 20.0))
        finally:
            self._proxy.heal()
            self._proxy.break_watches()


class Kills:
    """Kills the operator, so that it can't clean up, and starts it again."""

    def __init__(self, operator: OperatorProcess, chance: random.Random, every_seconds: float) -> None:
        self._operator = operator
        self._chance = chance
        self._every_seconds = every_seconds
        self.count = 0
        self.peak_mb = 0.0
        """Peak memory over all killed processes, in MB."""

    async def run(self) -> None:
        """Kill the operator again and again until cancelled; it is running afterwards."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * self._every_seconds)
            self.peak_mb = max(self.peak_mb, self._operator.peak_mb)
            self._operator.kill()
            self.count += 1
            try:
                await asyncio.sleep(self._chance.uniform(0.0, 2.0))
            finally:
                self._operator.start()


class Comings:
    """Stops engines for a while, one at a time, so that every pool keeps at least one engine."""

    def __init__(self, fleet: Fleet, engines: Sequence[Engine], chance: random.Random) -> None:
        self._fleet = fleet
        self._engines = engines
        self._chance = chance
        self.count = 0

    async def run(self) -> None:
        """Stop engines until cancelled; all engines are running afterwards."""
        while True:
            engine = self._chance.choice(self._engines)
            going = asyncio.create_task(self._fleet.take_down(engine))
            self.count += 1
            try:
                await asyncio.shield(going)
                await asyncio.sleep(self._chance.uniform(1.0, 10.0))
            finally:
                await going
                await self._fleet.bring_up(engine)
            await asyncio.sleep(self._chance.uniform(0.0, 5.0))
