"""A second engine, without vLLM: the simulator's, in real time. It shows that housekeeping needs only its port.

Blocks, requests and steps are the simulator's, which is the arbiter's engine, too. This module adds the lock, the
clock, and the methods for housekeeping.
"""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bench.simulator.checks import Checks
from bench.simulator.engine import Engine, Model
from bench.simulator.request import BLOCK_TOKENS, Request
from tenantzone_contract.cache.blocks import BlockUse
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.tiers import TierName
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.housekeeping.engine import ServedEngine, ServedSharedTier
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds

CHUNK_BYTES = 1000
NO_TIERS: Mapping[TierName, int] = {}
NO_BOUNDS = TransferBounds(10**6, 10**6)


class SimulatedTier:
    """A tier whose chunks are numbers. The test sets its failures, and the outcomes of its files."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.problem = ""
        self.receipts: list[Receipt] = []

    def take_receipts(self) -> Sequence[Receipt]:
        receipts, self.receipts = self.receipts, []
        return receipts


class SimulatedEngine:
    """One engine, with requests and steps from one thread and housekeeping from others.

    Args:
        capacity: blocks.
        tiers: the number of chunks in each tier, the fastest first.
    """

    engine_version = "simulated"
    api_servers = 0
    block_size_tokens = BLOCK_TOKENS
    migration = None

    def __init__(self, capacity: int, tiers: Mapping[TierName, int] = NO_TIERS) -> None:
        self._model = Model(capacity=capacity)
        self._engine = Engine(self._model, time.monotonic(), Checks())
        self._numbers = itertools.count()
        self.tenancy = self._engine.tenancy
        self.block_ids = range(capacity)
        self.zone_lock = threading.Lock()
        now = time.monotonic()
        self.shared_tiers: list[ServedSharedTier] = []
        self.tiers = [SimulatedTier(Tier(name, chunks, CHUNK_BYTES, NO_BOUNDS, now)) for name, chunks in tiers.items()]

    # Queries from housekeeping

    @property
    def served(self) -> ServedEngine:
        return self

    @property
    def free_blocks(self) -> int:
        return self._engine.free_blocks

    def running_zones(self) -> Iterator[Zone]:
        return (request.zone for request in self._engine.running)

    adapter_slots = encoder_embeddings = 0

    def put_adapters(self, values: list[Zone | str | None]) -> None:
        pass

    def put_encodings(self, values: list[Zone | int]) -> None:
        pass

    def use_of_unowned(self, block_id: int) -> BlockUse:
        # Each request has a zone, so each used or remembered block has an owner.
        return "free"

    def apply_config(self, config: RuntimeConfig) -> Mapping[str, int]:
        enforcement, pool = self.tenancy.enforcement, self._engine.pool
        plan = enforcement.plan(config)
        with self._at_present():
            enforcement.begin(plan, self._engine.now)
            for zone, evicted in enforcement.make(enforcement.changes(plan)):
                pool.return_evicted([(zone, evicted)])
            pool.return_evicted(enforcement.end(plan))
            for served in self.tiers:
                served.tier.apply(config, self._engine.now)
        return {spec.name: spec.awaited for spec in plan.specs.values() if spec.awaited}

    def evict_cache(self) -> int:
        pool = self._engine.pool
        with self._at_present():
            evicted = [
                (zone, pool.ledger.evict(zone, len(zone.cached), "reset")) for zone in pool.ledger.zones.values()
            ]
            pool.return_evicted(evicted)
            for served in self.tiers:
                served.tier.reset()
        return sum(len(block_ids) for _, block_ids in evicted)

    def let_time_pass(self) -> None:
        with self._at_present():
            self._engine.upkeep()
            for served in self.tiers:
                served.tier.upkeep(self._engine.now)

    # Actions of a test

    def send(self, tenant: str, blocks: int, *, steps: int = 1) -> None:
        number = next(self._numbers)
        with self._at_present():
            request = Request(
                number,
                tenant,
                self._engine.now,
                prompt_tokens=blocks * BLOCK_TOKENS + 1,
                output_tokens=steps * self._model.tokens_per_step,
                prefix=tuple(range(number * self._model.capacity, number * self._model.capacity + blocks)),
            )
            refusal = self._engine.submit(request)
            if refusal is not None:
                self.tenancy.refused(tenant, refusal)

    def offload(self, name: TierName, tenant: str, chunks: int, *, begin: int = 0) -> list[int]:
        """Makes a request of the tenant that stores `chunks` chunks in a tier, and begins to store `begin` more.

        Returns:
            the stored chunks.
        """
        with self._at_present():
            tier = self.tier(name)
            zone = tier.zone_for(tenant, self._engine.now)
            assert zone is not None, "it has a zone"
            tier.request_arrived(zone, self._engine.now)
            granted, _ = tier.make_room(zone, chunks + begin)
            free = [chunk for chunk, owner in enumerate(tier.ledger.owner) if owner is None][:granted]
            tier.store(zone, free)
            tier.stored(free[:chunks])
            tier.request_finished(zone, self._engine.now)
        return free[:chunks]

    def load(self, name: TierName, tenant: str, chunks: list[int]) -> None:
        """Makes a request of the tenant that loads chunks which it has stored."""
        with self._at_present():
            tier = self.tier(name)
            zone = tier.zone_for(tenant, self._engine.now)
            assert zone is not None, "it has a zone"
            tier.load(zone, chunks)
            tier.loaded(chunks)

    def tier(self, name: TierName) -> Tier:
        return next(served.tier for served in self.tiers if served.tier.name == name)

    def step(self) -> None:
        with self._at_present():
            self._engine.schedule()
            self._engine.compute()

    @property
    def is_idle(self) -> bool:
        return self._engine.is_idle

    @contextmanager
    def _at_present(self) -> Iterator[None]:
        """Holds the lock, with the simulator's time set to the real time."""
        with self.zone_lock:
            self._engine.now = time.monotonic()
            yield
