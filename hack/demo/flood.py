"""Tenants that ask one long question after the other, none of them twice, until the pool was turned over."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock

from hack.demo.asking import Tenant, make_prompt
from hack.demo.console import wait_until
from hack.demo.engines import BLOCKS

PROMPT_BLOCKS = 32
CONCURRENT = 4
"""Half of the pool in use at a time: enough pressure, and no request has to wait for long."""

_TIMEOUT_SECONDS = 900.0


@dataclass(slots=True)
class Flood:
    """One tenant's flood, as far as it is."""

    tenant: Tenant
    turnovers_wanted: float
    requests: int = 0
    blocks: int = 0
    _numbers: "count[int]" = field(default_factory=count)
    _lock: Lock = field(default_factory=Lock)

    @property
    def turnovers(self) -> float:
        """How often the prompts would have filled the whole pool."""
        return self.blocks / BLOCKS

    def run(self, stop: Event) -> None:
        """Ask until there is enough. Several threads may run the same flood.

        Raises:
            openai.OpenAIError: the engine refused a request.
        """
        while self.turnovers < self.turnovers_wanted and not stop.is_set():
            with self._lock:
                prompt = make_prompt(self.tenant.model, PROMPT_BLOCKS, seed=f"flood {next(self._numbers)}")
            answer = self.tenant.ask(prompt, answer_tokens=1)
            with self._lock:
                self.requests += 1
                self.blocks += answer.prompt_blocks


def flood(tenants: list[Tenant], turnovers: float) -> list[Flood]:
    """Flood all engines at once, each until its tenant's prompts have filled the pool ``turnovers`` times.

    Raises:
        openai.OpenAIError: an engine refused a request.
        TimeoutError: the engines are too slow.
    """
    floods = [Flood(tenant, turnovers) for tenant in tenants]
    stop = Event()
    with ThreadPoolExecutor(CONCURRENT * len(floods)) as workers:
        running = [workers.submit(one.run, stop) for one in floods for _ in range(CONCURRENT)]
        try:
            wait_until(
                lambda: all(one.done() for one in running),
                lambda: "the flood: " + " and ".join(f"{one.turnovers:.1f}" for one in floods) + " turnovers",
                timeout=_TIMEOUT_SECONDS,
            )
        finally:
            # If the wait was interrupted: no more requests than those under way.
            stop.set()
    for one in running:
        one.result()
    return floods
