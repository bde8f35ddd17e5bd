"""Runs one soak: measures changes undisturbed, among liars and in a bad network, and checks the state afterwards."""

import asyncio
import contextlib
import os
import random
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.operator.process import OperatorProcess
from bench.operator.soak.changes import NAME, Taken, change_zones
from bench.operator.soak.granted import Granted
from bench.operator.soak.scene import Scene, Size, namespaces
from bench.operator.soak.trouble import BadNetwork, Comings, FaultsHereAndThere, Kills, Liars
from bench.operator.stage import OPERATOR, bench_of, control_plane
from hack.controlplane import ControlPlane
from hack.harness.lies import LIES
from hack.harness.proxy import Proxy, proxied_for_operator
from hack.progress import say

UNDISTURBED, LIARS, FAULTS = "undisturbed", "among liars", "among liars, with random faults"
EVERYTHING = "among liars, in a bad network"
_SHARES = {UNDISTURBED: 0.2, LIARS: 0.2, FAULTS: 0.3, EVERYTHING: 0.3}
"""Fraction of the soak's time for each part."""
_KILL_SECONDS = 150.0
"""Time between two kills of the operator; shorter in short runs, so that at least one kill happens."""
_OUR_ERROR = re.compile(r"tenantzone_operator\S* \[ERROR")


@dataclass(slots=True)
class Findings:
    """The results of one soak."""

    taken: dict[str, Taken] = field(default_factory=dict)
    """Durations of changes, by the trouble in which they were made."""
    peak_mb: float = 0.0
    """Peak memory over all processes of the operator, in MB."""
    faults: int = 0
    """Number of requests that a fault hit while faults were rare."""
    kills: int = 0
    absences: int = 0
    """Number of times that an engine was stopped for a while."""
    lies: dict[str, int] = field(default_factory=dict)
    """Number of times that engines began each lie."""
    networks: dict[str, int] = field(default_factory=dict)
    """Number of times that the network was in each state."""
    wrong: list[str] = field(default_factory=list)
    """Failed checks, as sentences."""


def soak(size: Size) -> Findings:
    """Run a soak and return its findings; no process that it started is left."""
    findings, before = Findings(), children()
    with control_plane(namespaces(size)) as (plane, folder):
        with proxied_for_operator(plane.user_kubeconfig(OPERATOR), folder) as proxy:
            asyncio.run(_soak(size, plane, folder, proxy, findings))
        log = (folder / "operator.log").read_text()
    findings.wrong += [f"the operator's log: {line}" for line in log.splitlines() if _OUR_ERROR.search(line)]
    findings.wrong += [f"still running: {left}" for left in children() if left not in before]
    return findings


async def _soak(size: Size, plane: ControlPlane, folder: Path, proxy: Proxy, findings: Findings) -> None:
    chance = random.Random(size.seed)
    async with bench_of(plane, folder, proxy.kubeconfig, None) as bench:
        granted, scene = Granted(), Scene(bench, size)
        bench.observer.on_config = granted.look
        await scene.set_up()
        refused = {name: zone.refused for name, zone in bench.observer.zones.items()}
        liars = Liars(scene.liars, random.Random(chance.random()))
        faults = FaultsHereAndThere(proxy, random.Random(chance.random()))
        network = BadNetwork(proxy, random.Random(chance.random()))
        kills_every = min(_KILL_SECONDS, 60 * size.minutes * _SHARES[EVERYTHING] / 2)
        kills = Kills(bench.operator, random.Random(chance.random()), kills_every)
        comings = Comings(bench.fleet, scene.honest_engines, random.Random(chance.random()))

        def about() -> str:
            return f"{sum(liar.lie is not None for liar in scene.liars)} engines lie, {_resident(bench.operator)}"

        troubles = {
            UNDISTURBED: [],
            LIARS: [liars.run],
            FAULTS: [liars.run, faults.run],
            EVERYTHING: [liars.run, network.run, kills.run, comings.run],
        }
        for matter, share in _SHARES.items():
            say(NAME, f"{matter}:")
            async with meanwhile(*(run() for run in troubles[matter])):
                findings.taken[matter] = await change_zones(
                    scene.honest_zones, chance, seconds=60 * size.minutes * share, rate=size.rate, about=about
                )
        say(NAME, "everything is well again, and settles")
        findings.wrong += [wrong async for wrong in scene.wrong_in_the_end()]
        findings.wrong += granted.taken_back
        findings.wrong += [
            f"zone {name} was not Accepted for a while"
            for name, zone in bench.observer.zones.items()
            if zone.refused > refused[name]
        ]
        findings.wrong += [
            f"no change of {zone} came to its end" for taken in findings.taken.values() for zone in taken.lost
        ]
        findings.peak_mb = max(kills.peak_mb, bench.operator.peak_mb)
        findings.faults = faults.count
        findings.kills, findings.absences = kills.count, comings.count
        findings.lies, findings.networks = {name: liars.reported[name] for name in LIES}, dict(network.met)


@asynccontextmanager
async def meanwhile(*troubles: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the troubles until the block ends; a trouble that ends earlier has failed."""
    tasks = [asyncio.create_task(trouble) for trouble in troubles]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _resident(operator: OperatorProcess) -> str:
    try:
        return f"the operator has {operator.resident_mb:.0f} MB"
    except (OSError, ValueError):
        return "the operator is away"


def children() -> list[str]:
    """Returns the command lines of this process's children that are still running."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found
