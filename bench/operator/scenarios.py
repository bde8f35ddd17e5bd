"""The scenarios: each puts some load on the operator, and returns figures."""

import asyncio
import re
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any

from bench.operator.client import Client
from bench.operator.fleet import Fleet, foreign_pod
from bench.operator.observer import Observer
from bench.operator.process import OperatorProcess
from hack.progress import say
from tenantzone_operator.pool.worker import DEBOUNCE_SECONDS

NAME = "operator"
_GROUP = "/apis/tenantzone.io/v1alpha1"
_AT_ONCE = 32
_WRITES = re.compile(
    r'^apiserver_request_total\{.*resource="(?:tenantzones|zonepools|configmaps|pods|events)".*'
    r'verb="(?:APPLY|PATCH|POST|PUT|DELETE)"\} (\d+)',
    re.MULTILINE,
)

RESERVED = 2
"""Number of blocks that a zone reserves at first."""

Figures = dict[str, float]


@dataclass(slots=True)
class Bench:
    """The environment of a measurement: an operator, and an empty namespace."""

    client: Client
    namespace: str
    port: int
    operator: OperatorProcess
    standby: OperatorProcess
    """Second operator, which is not started."""
    observer: Observer
    fleet: Fleet

    async def add_pool(self, name: str, engines: int) -> None:
        spec = {"selector": {"matchLabels": {"pool": name}}, "adminPort": self.port}
        await self.client.call("POST", self._path("zonepools"), body=_manifest("ZonePool", name, spec))
        await self.fleet.add(self.namespace, name, engines)

    async def add_zone(self, name: str, pool: str) -> None:
        spec = {"pool": pool, "reserved": RESERVED, "priority": 10, "lending": {"maxLoan": "10m"}}
        await self.client.call("POST", self._path("tenantzones"), body=_manifest("TenantZone", name, spec))

    async def change_zone(self, name: str, **spec: Any) -> int:
        """Change fields of a zone's spec; returns the new generation."""
        path = f"{self._path('tenantzones')}/{name}"
        content_type = "application/merge-patch+json"
        found = await self.client.call("PATCH", path, body={"spec": spec}, content_type=content_type)
        return int(found["metadata"]["generation"])

    async def delete_zone(self, name: str) -> None:
        await self.client.call("DELETE", f"{self._path('tenantzones')}/{name}")

    async def settle(self) -> None:
        """Wait until all zones are Programmed and the operator has stopped writing."""
        zones = self.observer.zones
        await self.observer.until(lambda: all(seen.is_programmed for seen in zones.values()))
        before = -1
        while (now := await self.operator.writes()) != before:
            say(NAME, f"{now:,} writes so far; waiting for rest")
            before = now
            await asyncio.sleep(3)

    async def writes_seen(self) -> int:
        """Returns the API server's count of writes, by any client, to the kinds that the operator writes."""
        return sum(map(int, _WRITES.findall(await self.client.text("/metrics"))))

    def _path(self, plural: str) -> str:
        return f"{_GROUP}/namespaces/{self.namespace}/{plural}"


async def created_at_once(bench: Bench, zones: int, engines: int) -> Figures:
    """Create all zones of one pool at once."""
    say(NAME, f"{zones:,} zones created at once, in one pool with {engines} engines")
    await bench.add_pool("pool", engines)
    names = [f"zone-{number:04}" for number in range(zones)]
    seen = bench.observer.zones
    began = time.monotonic()
    await at_once(bench.add_zone(name, "pool") for name in names)
    created = time.monotonic() - began
    await bench.observer.until(lambda: all(name in seen and seen[name].accepted for name in names))
    accepted = max(found.accepted_at for found in seen.values()) - began
    await bench.observer.until(lambda: all(found.is_programmed for found in seen.values()))
    programmed = max(found.programmed_at for found in seen.values()) - began
    return {
        "created per second": zones / created,
        "accepted per second": zones / accepted,
        "all programmed after s": programmed,
    }


async def large_pool(bench: Bench, zones: int, samples: int) -> Figures:
    """Create more zones in one pool than fit into a ConfigMap as plain text."""
    say(NAME, f"{zones:,} zones in one pool")
    await bench.add_pool("pool", 1)
    seen = bench.observer.zones
    began = time.monotonic()
    await at_once(bench.add_zone(f"zone-{number:05}", "pool") for number in range(zones))
    created = time.monotonic() - began

    async def tell_progress() -> None:
        while True:
            await asyncio.sleep(10.0)
            say(NAME, f"{sum(found.is_programmed for found in seen.values()):,} are Programmed")

    progress = asyncio.create_task(tell_progress())
    await bench.observer.until(lambda: len(seen) == zones and all(found.is_programmed for found in seen.values()))
    progress.cancel()
    programmed = time.monotonic() - began
    await bench.settle()
    taken = []
    for number in range(samples):
        name = f"zone-{number * 37 % zones:05}"
        began = time.monotonic()
        generation = await bench.change_zone(name, priority=100 + number)
        await bench.observer.until(lambda: seen[name].programmed >= generation)  # noqa: B023
        taken.append(seen[name].programmed_at - began)
        say(NAME, f"change {number + 1} of {samples}: programmed after {taken[-1]:.1f} s")
    taken.sort()
    pool = await bench.client.call("GET", f"{bench._path('zonepools')}/pool")
    return {
        "large pool: zones": pool["status"]["zonesAccepted"],
        "large pool: created after s": created,
        "large pool: all Programmed after s": programmed,
        "large pool: config bytes": pool["status"]["configBytes"],
        "large pool: apply to programmed p50 s": quantile(taken, 0.5),
        "large pool: apply to programmed max s": taken[-1],
        "large pool: resident MB": bench.operator.resident_mb,
        "large pool: resident MB, at most": bench.operator.peak_mb,
    }


async def foreign_pods(bench: Bench, number: int) -> Figures:
    """Create pods that are no engines in a separate namespace, as large as pods of production clusters are."""
    say(NAME, f"{number:,} pods that are no engines")
    await bench.client.call("POST", "/api/v1/namespaces", body={"metadata": {"name": "foreign"}})
    pods = [foreign_pod(f"pod-{index:05}") for index in range(number)]
    await at_once(bench.client.call("POST", "/api/v1/namespaces/foreign/pods", body=pod) for pod in pods)
    return {"foreign pods": number}


async def latency(bench: Bench, samples: int) -> Figures:
    """Change one zone at a time in an idle pool; measure the time from the request until a watch shows Programmed."""
    await bench.settle()
    say(NAME, f"{samples} changes, one by one")
    seen = bench.observer.zones
    names = list(seen)
    taken = []
    for number in range(samples):
        began = time.monotonic()
        if number % 2:
            name, generation = f"late-{number:03}", 1
            await bench.add_zone(name, "pool")
        else:
            name = names[number * 37 % len(names)]
            generation = await bench.change_zone(name, priority=100 + number)
        await bench.observer.until(lambda: name in seen and seen[name].programmed >= generation)  # noqa: B023
        taken.append(seen[name].programmed_at - began)
        await asyncio.sleep(0.2)
    taken.sort()
    return {
        "apply to programmed p50 s": quantile(taken, 0.5),
        "apply to programmed p99 s": quantile(taken, 0.99),
    }


async def many_pools(bench: Bench, zones: int, pools: int) -> Figures:
    """Create many zones in many pools."""
    say(NAME, f"{zones:,} zones in {pools} pools, one engine each")
    names = [f"pool-{number:02}" for number in range(pools)]
    for name in names:
        await bench.add_pool(name, 1)
    began = time.monotonic()
    await at_once(bench.add_zone(f"many-{number:04}", names[number % pools]) for number in range(zones))
    seen = bench.observer.zones
    await bench.observer.until(lambda: len(seen) == zones and all(found.is_programmed for found in seen.values()))
    took = time.monotonic() - began
    await bench.settle()
    sizes = [
        (await bench.client.call("GET", f"{bench._path('zonepools')}/{name}"))["status"]["configBytesPerZone"]
        for name in names
    ]
    return {
        "zones programmed per second": zones / took,
        "resident MB": bench.operator.resident_mb,
        "resident MB, at most": bench.operator.peak_mb,
        "config bytes per zone": max(sizes),
    }


async def restart(bench: Bench, pools: int) -> Figures:
    """Kill the operator, change a few zones, and start the operator again, which then has to process all objects."""
    say(NAME, "killed and started again")
    bench.operator.kill()
    seen = bench.observer.zones
    changed = {f"many-{number:04}": 0 for number in range(pools)}
    for name in changed:
        changed[name] = await bench.change_zone(name, priority=7)
    await bench.observer.until(lambda: all(seen[name].generation == changed[name] for name in changed))
    began = time.monotonic()
    bench.operator.start()
    await bench.observer.until(lambda: all(found.is_programmed for found in seen.values()))
    took = time.monotonic() - began
    await bench.settle()
    return {
        "restart to converged s": took,
        "resident MB after a restart": bench.operator.resident_mb,
        "resident MB after a restart, at most": bench.operator.peak_mb,
    }


async def failover(bench: Bench, times: int) -> Figures:
    """Kill the leader, change a zone at once, and measure the time until the standby has programmed the change."""
    await bench.add_pool("pool", 1)
    await bench.add_zone("acme", "pool")
    leader, standby, taken = bench.operator, bench.standby, []
    for number in range(times):
        await bench.observer.until(lambda: "acme" in bench.observer.zones)
        await bench.observer.until(lambda: bench.observer.zones["acme"].is_programmed)
        standby.start()
        await standby.writes()
        say(NAME, f"leader killed, {number + 1} of {times}")
        leader.kill()
        began = time.monotonic()
        generation = await bench.change_zone("acme", priority=100 + number)
        await bench.observer.until(lambda: bench.observer.zones["acme"].programmed >= generation)  # noqa: B023
        taken.append(time.monotonic() - began)
        leader, standby = standby, leader
    return {"leader lost, at most s": max(taken)}


async def edits_in_one_window(bench: Bench, pools: int, edits: int) -> Figures:
    """Edit several zones of a pool at once, one pool after the other; the edits of a pool should make one config.

    A pool does not count if its edits took longer than the operator's debounce time, because several configs are right
    then.
    """
    await bench.settle()
    say(NAME, f"{edits} edits at once, in each of {pools} pools")
    writes = []
    for pool in range(pools):
        config = f"tenantzone-pool-{pool:02}"
        before = bench.observer.configs[config]
        names = [f"many-{pool + pools * number:04}" for number in range(edits)]
        began = time.monotonic()
        generations = await at_once(bench.change_zone(name, priority=50) for name in names)
        took = time.monotonic() - began
        wanted, seen = dict(zip(names, generations, strict=True)), bench.observer.zones
        await bench.observer.until(lambda: all(seen[name].programmed >= wanted[name] for name in wanted))  # noqa: B023
        if took <= DEBOUNCE_SECONDS:
            writes.append(bench.observer.configs[config] - before)
    return {
        "pools with all edits in one window": len(writes),
        "config writes for edits in one window, at most": max(writes, default=0),
    }


async def rest(bench: Bench, seconds: float) -> Figures:
    """Change nothing for some time, and measure the operator's writes and CPU time."""
    await bench.settle()
    say(NAME, f"at rest for {seconds:.0f} s")
    before = await bench.writes_seen(), await bench.operator.writes(), bench.operator.cpu_seconds
    await asyncio.sleep(seconds)
    return {
        "writes at rest, by the API server": await bench.writes_seen() - before[0],
        "writes at rest, by the operator": await bench.operator.writes() - before[1],
        "CPU at rest, % of a core": 100 * (bench.operator.cpu_seconds - before[2]) / seconds,
    }


async def at_once(jobs: Iterable[Awaitable[Any]]) -> list[Any]:
    """Await all jobs, a limited number of them at a time, and return their results in the order of the jobs."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def run(job: Awaitable[Any]) -> Any:
        async with limit:
            return await job

    return await asyncio.gather(*map(run, jobs))


def quantile(ordered: list[float], fraction: float) -> float:
    """Returns the quantile of sorted numbers for a fraction from 0 to 1."""
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def _manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "tenantzone.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
