"""Records what a user would see: each zone's conditions, and when they became true."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.operator.client import Client


@dataclass(slots=True)
class Seen:
    """The latest state of a zone in the watch."""

    generation: int
    accepted: int = 0
    """Latest generation for which the zone was Accepted."""
    programmed: int = 0
    """Latest generation for which the zone was Programmed."""
    accepted_at: float = 0.0
    programmed_at: float = 0.0
    """Time at which the watch reported that generation as Programmed, on the monotonic clock."""
    refused: int = 0
    """Number of watch events in which the zone was not Accepted."""

    @property
    def is_programmed(self) -> bool:
        return self.programmed == self.generation


class Observer:
    """Watches the zones and ConfigMaps of one namespace or of all; names must be unique over all namespaces."""

    def __init__(self, client: Client, namespace: str | None) -> None:
        self._client = client
        self._where = "" if namespace is None else f"/namespaces/{namespace}"
        self.zones: dict[str, Seen] = {}
        self.on_config: Callable[[dict[str, Any]], None] = lambda _: None
        """Function that is called with each event of a ConfigMap."""
        self.configs: dict[str, int] = {}
        """Number of versions seen of each ConfigMap, by name."""
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._watch_zones()), asyncio.create_task(self._watch_configs())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], seconds: float = 600.0) -> float:
        """Wait until a condition holds, and return the time at which it was seen to hold.

        Raises:
            TimeoutError: the condition did not hold in time.
        """
        async with asyncio.timeout(seconds):
            while True:
                for task in self._tasks:
                    if task.done():
                        task.result()
                self._changed.clear()
                if condition():
                    break
                await self._changed.wait()
        return time.monotonic()

    async def _watch_zones(self) -> None:
        async for event in self._client.events(f"/apis/tenantzone.io/v1alpha1{self._where}/tenantzones"):
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                self.zones.pop(name, None)
            else:
                self._see(name, event["object"])
            self._changed.set()

    def _see(self, name: str, zone: dict[str, Any]) -> None:
        now = time.monotonic()
        seen = self.zones.setdefault(name, Seen(0))
        seen.generation = zone["metadata"]["generation"]
        conditions = {condition["type"]: condition for condition in zone.get("status", {}).get("conditions", [])}
        true = {
            kind: condition["observedGeneration"]
            for kind, condition in conditions.items()
            if condition["status"] == "True"
        }
        seen.refused += "Accepted" in conditions and "Accepted" not in true
        if true.get("Accepted", 0) > seen.accepted:
            seen.accepted, seen.accepted_at = true["Accepted"], now
        if true.get("Programmed", 0) > seen.programmed:
            seen.programmed, seen.programmed_at = true["Programmed"], now

    async def _watch_configs(self) -> None:
        async for event in self._client.events(f"/api/v1{self._where}/configmaps"):
            self.on_config(event)
            name = event["object"]["metadata"]["name"]
            self.configs[name] = self.configs.get(name, 0) + 1
            self._changed.set()
