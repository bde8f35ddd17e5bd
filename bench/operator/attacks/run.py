"""Runs one soak under all attacks: measures changes with and without attacks, and checks engines' reservations."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.operator.attacks.attacks import ON_OBJECTS, STARTED, STORAGE
from bench.operator.attacks.held import Breach, Reservations
from bench.operator.attacks.mounted import MountedFleet
from bench.operator.attacks.ports import ON_PORTS, prepare
from bench.operator.attacks.running import Attackers, Restarts, Tally
from bench.operator.attacks.site import GROUP, KEY_PATH, SYSTEM, UNLISTED, Replicas, Site, list_pools
from bench.operator.client import Client
from bench.operator.observer import Observer
from bench.operator.scenarios import RESERVED, Bench
from bench.operator.soak.changes import NAME, Taken, change_zones
from bench.operator.soak.run import children, meanwhile
from bench.operator.soak.scene import Scene, Size, namespaces
from bench.operator.soak.trouble import Liars
from bench.operator.stage import OPERATOR, control_plane
from hack.controlplane import ControlPlane
from hack.harness.cache_manager import CacheManagerProcess
from hack.harness.manager_access import RIGHTS, ManagerAccess
from hack.ports import free_ports
from hack.progress import say
from tenantzone_operator.kube.credentials.connection import Connection

UNDISTURBED: Final = "undisturbed"
ATTACKED: Final = "under attack"
_UNDISTURBED_SHARE = 0.05
"""Fraction of the time that is undisturbed, before the attacks and again after them, because machine load varies."""
_CRDS = ("kvstorages", "kvcachegroups")
_ROOT = Path(__file__).parents[3]
_OUR_ERROR = re.compile(r"tenantzone_operator\S* \[ERROR|Traceback")


@dataclass(frozen=True, slots=True)
class Attacked:
    """The settings of the attacks in a soak.

    Args:
        frequency: the factor by which attacks are more frequent than each attack defines.
        patience: the factor by which the time to undo an attack is longer than each attack defines.
        tolerance: the seconds for which an engine may enforce a forged config while an operator leads.
        rounds: how often both replicas of the operator are replaced, one by one; 0 for no replacements, also of
            engines.
        only: words; an attack is carried out if its name contains one of them.
    """

    frequency: float
    patience: float
    tolerance: float
    rounds: int
    only: tuple[str, ...] = ("",)


@dataclass(slots=True)
class Findings:
    """The results of one soak."""

    taken: dict[str, Taken] = field(default_factory=dict)
    """Durations of changes, undisturbed and under attack."""
    led: list[float] = field(default_factory=list)
    """Durations of changes under attack during which an operator always led."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    breaches: list[Breach] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Reservations that changed for longer than is tolerated, as sentences."""
    longest_seconds: float = 0.0
    """Duration of the longest breach, without times in which no operator led."""
    comparisons: int = 0
    lies: int = 0
    operator_restarts: int = 0
    engine_restarts: int = 0
    leaderless: list[float] = field(default_factory=list)
    """Length of each period under attack in which no operator led."""
    peak_mb: float = 0.0
    wrong: list[str] = field(default_factory=list)
    """Failed checks of the final state, as sentences."""


def soak(size: Size, attacked: Attacked) -> Findings:
    """Run a soak and return its findings; no process that it started is left."""
    findings, before = Findings(), children()
    with control_plane([*namespaces(size), UNLISTED]) as (plane, folder):
        for name in _CRDS:
            plane.kubectl("apply", "--server-side", "--filename", str(_ROOT / f"crds/{name}.yaml"))
        plane.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{x}.tenantzone.io" for x in _CRDS)
        )
        plane.kubectl("apply", *(f"--filename={file}" for file in RIGHTS))
        (folder / "manager").mkdir()
        access = ManagerAccess(plane, folder / "manager")
        with CacheManagerProcess(folder / "manager", {}, access=access) as manager:
            asyncio.run(_soak(size, attacked, plane, folder, manager, access, findings))
        for log in folder.glob("*/operator.log"):
            lines = [line for line in log.read_text().splitlines() if _OUR_ERROR.search(line)]
            findings.wrong += [f"the log of the operator {log.parent.name}: {line}" for line in lines]
    findings.wrong += [f"still running: {left}" for left in children() if left not in before]
    return findings


@asynccontextmanager
async def _site(
    size: Size, rounds: int, plane: ControlPlane, folder: Path, manager: CacheManagerProcess, access: ManagerAccess
) -> AsyncIterator[tuple[Site, Scene]]:
    """Create everything and wait until it is Ready; stop it when the block ends."""
    (port,) = free_ports(1)
    flags = (
        *("--leader-elect-namespace", SYSTEM),
        *("--manager-url", manager.url, "--manager-token-file", str(access.token_file)),
    )
    replicas = Replicas(plane.user_kubeconfig(OPERATOR), folder, flags)
    left, right = replicas.processes
    async with Client(Connection(str(plane.kubeconfig)).for_kopf) as client:
        reservations = Reservations()
        fleet, observer = MountedFleet(client, port, reservations, folder / "mounted"), Observer(client, None)
        observer.on_config = fleet.mount
        scene = Scene(Bench(client, "", port, left, right, observer, fleet), size)
        list_pools(plane, scene.namespaces_of_pools)
        for zone, pool in scene.pools_of_zones.items():
            reservations.grant(zone, pool, RESERVED)
        site = Site(
            *(plane, client, port, fleet, reservations, replicas, manager),
            *(scene.namespaces_of_pools, scene.pools_of_zones, random.Random(size.seed)),
            _false_key_seconds(60 * size.minutes, rounds),
        )
        observer.start()
        left.start()
        right.start()
        try:
            await scene.set_up()
            await _add_more(site)
            yield site, scene
        finally:
            left.terminate()
            right.terminate()
            await observer.stop()
            await fleet.stop()


def _false_key_seconds(seconds: float, rounds: int) -> float:
    """Returns how long the operator's Secret should have a false key, in seconds.

    Operators read the key every minute, so this is more than a minute if possible. It is less than the time between two
    restarts, because the true key is lost if both operators restart while the Secret has a false one.
    """
    return min(75.0, seconds / (4 * rounds + 2))


async def _add_more(site: Site) -> None:
    """Add a storage of the manager and a pool for which the operator has no rights; record the operator's key."""
    spec = {"type": "FileSystem", "fileSystem": {"path": str(site.manager.storage)}}
    await site.create(f"{GROUP}/kvstorages", "KVStorage", STORAGE, spec)
    where = f"{GROUP}/namespaces/{UNLISTED}"
    selector = {"matchLabels": {"pool": UNLISTED}}
    await site.create(f"{where}/zonepools", "ZonePool", UNLISTED, {"selector": selector, "adminPort": site.port})
    await site.create(f"{where}/tenantzones", "TenantZone", UNLISTED, {"pool": UNLISTED, "reserved": 1})
    while (await site.condition(f"{GROUP}/kvstorages/{STORAGE}", "Ready")).get("status") != "True":
        await site.pause()
    await prepare(site)
    key = await site.get(KEY_PATH)
    assert key is not None, "engines' tokens are made of it"
    site.key = key["data"]["key"]


async def _soak(
    size: Size,
    attacked: Attacked,
    plane: ControlPlane,
    folder: Path,
    manager: CacheManagerProcess,
    access: ManagerAccess,
    findings: Findings,
) -> None:
    async with _site(size, attacked.rounds, plane, folder, manager, access) as (site, scene):
        chosen = {
            name: attack
            for name, attack in (ON_OBJECTS | ON_PORTS).items()
            if any(word in name for word in attacked.only)
        }
        attackers = Attackers(site, chosen, attacked.frequency, attacked.patience)
        liars = Liars(scene.liars, random.Random(site.chance.random()))
        seconds = 60 * size.minutes
        restarts = Restarts(site, scene.honest_engines, attacked.rounds, seconds)
        began: dict[str, float] = {}
        spans: list[tuple[float, float]] = []

        def begin(zone: str, reserved: int) -> None:
            began[zone] = time.monotonic()
            site.reservations.begin_change(zone, reserved)

        def end(zone: str, reserved: int) -> None:
            spans.append((began[zone], scene.bench.observer.zones[zone].programmed_at))
            site.reservations.end_change(zone, reserved, time.monotonic())

        def about() -> str:
            longest = max((each.until - each.since for each in site.reservations.breaches(time.monotonic())), default=0)
            return (
                f"{attackers.carried_out:,} attacks, {site.replicas.restarts} operators and {restarts.engines} engines "
                f"replaced, a false reservation held for at most {longest:.1f} s"
            )

        async def flood(share: float) -> Taken:
            return await change_zones(
                scene.honest_zones,
                site.chance,
                seconds=seconds * share,
                rate=size.rate,
                about=about,
                began=begin,
                ended=end,
            )

        async with meanwhile(site.replicas.watch()):
            say(NAME, f"{UNDISTURBED}:")
            site.reservations.begin()
            findings.taken[UNDISTURBED] = await flood(_UNDISTURBED_SHARE)
            if list(site.reservations.breaches(time.monotonic())):
                findings.wrong.append("engines held false reservations before there was an attack")
            say(NAME, f"{ATTACKED}:")
            spans.clear()
            since = time.monotonic()
            replacing = [restarts.of_operators(), restarts.of_engines()] if attacked.rounds else []
            async with meanwhile(*attackers.runs(), liars.run(), *replacing):
                findings.taken[ATTACKED] = await flood(1.0)
                under_attack = list(spans)
            say(NAME, "no more attacks; everything settles")
            for process in site.replicas.processes:
                await site.replicas.ready(process)
            say(NAME, f"{UNDISTURBED}, again:")
            findings.taken[UNDISTURBED].add(await flood(_UNDISTURBED_SHARE))
            findings.wrong += [wrong async for wrong in _wrong_besides(site)]
            findings.wrong += [wrong async for wrong in scene.wrong_in_the_end()]
        leaderless = site.replicas.leaderless
        findings.led = sorted(end - begin for begin, end in under_attack if leaderless.seconds(begin, end) == 0)
        findings.leaderless = [end - begin for begin, end in leaderless.times if begin > since]
        judge(findings, list(site.reservations.breaches(time.monotonic())), leaderless.seconds, attacked.tolerance)
        # Each such engine enforces old reservations for a moment, so a comparison that found no breach does not work.
        if attackers.tallies.get(STARTED, Tally("")).seconds and not findings.breaches:
            findings.wrong.append("no engine was seen to hold a former reservation, although some started with one")
        findings.comparisons = site.reservations.comparisons
        findings.tallies = attackers.tallies
        findings.wrong += [late for tally in attackers.tallies.values() for late in tally.late]
        findings.wrong += [
            f"no change of {zone} came to its end" for each in findings.taken.values() for zone in each.lost
        ]
        findings.lies = sum(liars.reported.values())
        findings.operator_restarts, findings.engine_restarts = site.replicas.restarts, restarts.engines
        findings.peak_mb = site.replicas.measure()


async def _wrong_besides(site: Site) -> AsyncIterator[str]:
    """Yields further failed checks; deletes the zone of the unlisted pool, which is never Programmed."""
    for path, kind, status in (
        (f"{GROUP}/kvstorages/{STORAGE}", "Ready", "True"),
        (f"{GROUP}/namespaces/{UNLISTED}/tenantzones/{UNLISTED}", "Accepted", "False"),
    ):
        found = await site.condition(path, kind)
        if found.get("status") != status:
            yield f"{path} is not {kind}={status}: {found}"
    for pool in site.pools:
        for kind in ("SelectorOverlaps", "Stalled"):
            found = await site.condition(site.pool_path(pool), kind)
            if found.get("status") == "True" and not await _passes(site, pool, kind):
                yield f"pool {pool} is {kind}: {found['message']}"
    await site.delete(f"{GROUP}/namespaces/{UNLISTED}/tenantzones/{UNLISTED}")


async def _passes(site: Site, pool: str, kind: str) -> bool:
    """Returns whether the operator removes a condition within a minute, the period in which it checks all statuses."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not await site.condition(site.pool_path(pool), kind):
            return True
        await site.pause()
    return False


def judge(
    findings: Findings, breaches: Sequence[Breach], leaderless: Callable[[float, float], float], tolerance: float
) -> None:
    """Record the breaches that were longer than is tolerated.

    Args:
        findings: the findings to update.
        breaches: all breaches.
        leaderless: returns the seconds between two times in which no operator led, so that forged configs stayed.
        tolerance: the tolerated length of a breach, in seconds in which an operator led.
    """
    findings.breaches = list(breaches)
    for breach in breaches:
        seconds = breach.until - breach.since - leaderless(breach.since, breach.until)
        findings.longest_seconds = max(findings.longest_seconds, seconds)
        if seconds > tolerance:
            findings.changed.append(str(breach))
