"""Changes zones at a steady rate, and measures how long each change takes to reach the engines."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.operator.scenarios import Bench, quantile
from hack.progress import say

NAME = "soak"
_SAY_SECONDS = 5.0
_PATIENCE_SECONDS = 300.0


@dataclass(slots=True)
class Taken:
    """The durations of changes, from the request until a watch shows `Programmed` for the new generation."""

    seconds: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Zones whose change was not seen as `Programmed` in time."""
    late_seconds: float = 0.0
    """Maximum delay of the measuring process itself, by which changes may look slower than they were."""

    @property
    def words(self) -> str:
        """Returns the number of changes and their percentiles as text."""
        so_far = f" took p50 {self.quantile(0.5):.2f}, p99 {self.quantile(0.99):.2f} s" if self.seconds else ""
        return f"{len(self.seconds):,} changes{so_far}"

    def add(self, others: "Taken") -> None:
        """Add changes that were made later."""
        self.seconds += others.seconds
        self.lost += others.lost
        self.late_seconds = max(self.late_seconds, others.late_seconds)

    def quantile(self, fraction: float) -> float:
        return quantile(sorted(self.seconds), fraction)


async def change_zones(
    zones: Mapping[str, Bench],
    chance: random.Random,
    *,
    seconds: float,
    rate: float,
    about: Callable[[], str],
    began: Callable[[str, int], None] = lambda *_: None,
    ended: Callable[[str, int], None] = lambda *_: None,
) -> Taken:
    """Change zones at a steady rate, and note how long each change takes.

    Args:
        zones: the zones to change, each with the bench of its namespace.
        chance: the random generator that picks zones and values.
        seconds: the time during which changes are made; afterwards, all of them are awaited.
        rate: the number of changes per second. A change does not wait for earlier changes.
        about: returns additional text for progress lines.
        began: called with a zone and its new reservation, before the change is requested.
        ended: called with a zone and its new reservation, once the change was seen as `Programmed`.
    """
    taken, names, waiting = Taken(), list(zones), set[str]()

    async def change(name: str, spec: Mapping[str, int]) -> None:
        began(name, spec["reserved"])
        if await _change(zones[name], name, spec, taken):
            ended(name, spec["reserved"])
        waiting.discard(name)

    start = due = said = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        while due < start + seconds:
            # If a change of every zone is in progress, skip this turn.
            if free := [name for name in names if name not in waiting]:
                name = chance.choice(free)
                waiting.add(name)
                spec = {"reserved": chance.randint(1, 5), "priority": zones[name].observer.zones[name].generation}
                tasks.create_task(change(name, spec))
            due += 1 / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            taken.late_seconds = max(taken.late_seconds, time.monotonic() - due)
            if time.monotonic() > said + _SAY_SECONDS:
                said = time.monotonic()
                say(NAME, f"{said - start:4.0f} of {seconds:.0f} s: {taken.words}, {len(waiting)} wait; {about()}")
    return taken


async def _change(bench: Bench, name: str, spec: Mapping[str, int], taken: Taken) -> bool:
    """Change a zone and wait for `Programmed`; returns whether it was seen in time."""
    seen = bench.observer.zones[name]
    began = time.monotonic()
    generation = await bench.change_zone(name, **spec)
    try:
        await bench.observer.until(lambda: seen.programmed >= generation, _PATIENCE_SECONDS)
    except TimeoutError:
        taken.lost.append(name)
        return False
    taken.seconds.append(seen.programmed_at - began)
    return True
