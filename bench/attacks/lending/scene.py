"""A lender and a borrower on a simulated engine in virtual time: the zone core and its arbiter are the real ones.

Compute is not scarce here, so the two affect each other only through blocks.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.simulator.checks import Checks
from bench.simulator.engine import Engine, Model
from bench.simulator.request import BLOCK_TOKENS, Request
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.zone_terms import Idle, Lending

CAPACITY = 1024
"""Number of blocks of the engine."""
RESERVED = CAPACITY // 2
"""Reservation and limit of the lender, in blocks."""
_MODEL = Model(capacity=CAPACITY, max_running=10_000, prompt_tokens_per_step=1 << 30, prompt_tokens_per_second=1e15)
_UPKEEP_SECONDS = 0.1

LENDER, BORROWER = "lender", "borrower"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which the lender lends."""

    name: str
    idle_after_seconds: float = 2.0
    lending: Lending = field(default_factory=Lending)
    is_borrower_confined: bool = False
    """Whether the borrower reserves all blocks that the lender does not reserve, and has them as its limit."""

    @property
    def are_of_loans(self) -> bool:
        """Whether the borrower can use blocks of the lender's reservation while the lender is idle."""
        return self.lending.lendable not in (0, "0%") and not self.is_borrower_confined

    @property
    def room_of_borrower(self) -> int:
        """Maximum number of blocks that the borrower can have."""
        return CAPACITY - RESERVED if self.is_borrower_confined else CAPACITY


class Scene:
    """The lender and the borrower on one engine. Prompts are lists of block ids; equal ids stand for equal text.

    Args:
        terms: the lender's terms.
    """

    def __init__(self, terms: Terms) -> None:
        self._engine = Engine(_MODEL, 0.0, Checks())
        lender = ZoneConfig(
            name=LENDER, tenant=LENDER, generation=1, reserved=RESERVED, limit=RESERVED,
            idle=Idle(after_seconds=terms.idle_after_seconds), lending=terms.lending,
        )  # fmt: skip
        own = terms.room_of_borrower if terms.is_borrower_confined else None
        borrower = ZoneConfig(name=BORROWER, tenant=BORROWER, generation=1, reserved=own or 0, limit=own)
        self._engine.apply(make_config(1, PoolConfig(namespace="bench", name="pool"), (lender, borrower)))
        self._numbers = itertools.count()
        self._upkeep_due = 0.0
        self._under_way: set[Request] = set()

    @property
    def now(self) -> float:
        return self._engine.now

    def new_blocks(self, count: int) -> tuple[int, ...]:
        """Returns a new prompt of ``count`` blocks, which was never sent."""
        return tuple(itertools.islice(self._numbers, count))

    def send(
        self,
        tenant: str,
        prompt: tuple[int, ...],
        output_tokens: int = 1,
    ) -> Request:
        """Send a prompt now."""
        request = Request(
            number=next(self._numbers), tenant=tenant, arrival=self.now,
            # Add a token after the blocks, because the last token of a prompt is never looked up in the cache.
            prompt_tokens=len(prompt) * BLOCK_TOKENS + 1, output_tokens=output_tokens, prefix=prompt,
        )  # fmt: skip
        refused = self._engine.submit(request)
        assert refused is None, refused
        self._under_way.add(request)
        return request

    def go_on_until(self, moment: float) -> None:
        """Run the engine until a time."""
        while self.now < moment:
            self._turn(moment)

    def ask(self, tenant: str, prompts: Iterable[tuple[int, ...]]) -> int:
        """Send prompts one after the other, and return how many of their blocks were not in the cache."""
        missing = 0
        for prompt in prompts:
            request = self.send(tenant, prompt)
            while request in self._under_way:
                self._turn(self.now + _UPKEEP_SECONDS)
            missing += len(prompt) - request.hit_tokens // BLOCK_TOKENS
        return missing

    def _turn(self, until: float) -> None:
        engine = self._engine
        if engine.now >= self._upkeep_due:
            engine.upkeep()
            self._upkeep_due = engine.now + _UPKEEP_SECONDS
        engine.schedule()
        elapsed = engine.compute()
        engine.now = engine.now + elapsed if elapsed else min(until, engine.now + _UPKEEP_SECONDS)
        self._under_way.difference_update(engine.finished)
