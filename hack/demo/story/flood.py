"""Tenants that send unique long prompts one after the other, until these have filled the pool."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock

from hack.demo.console import wait_until
from hack.demo.engines import BLOCKS
from hack.demo.story.asking import Tenant, make_prompt

PROMPT_BLOCKS = 32
CONCURRENT = 4
"""Number of concurrent requests per flood; they use half of the pool, so that no request waits for long."""

_TIMEOUT_SECONDS = 900.0


@dataclass(slots=True)
class Flood:
    """One tenant's flood, with its progress."""

    tenant: Tenant
    turnovers_wanted: float
    requests: int = 0
    blocks: int = 0
    _numbers: "count[int]" = field(default_factory=count)
    _lock: Lock = field(default_factory=Lock)

    @property
    def turnovers(self) -> float:
        """Number of times that the prompts so far would fill the whole pool."""
        return self.blocks / BLOCKS

    def run(self, stop: Event) -> None:
        """Send prompts until they have filled the pool often enough. Several threads may run the same flood.

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
            # If the wait was interrupted, send no further requests.
            stop.set()
    for one in running:
        one.result()
    return floods
