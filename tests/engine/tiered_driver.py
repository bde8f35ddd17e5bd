"""An engine with tiers that a test steps: vLLM's real scheduler and connector, with stand-in workers."""

from random import Random

from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, with_flags
from tests.engine.tier_worker import TierWorker, give_disk, with_tiers

LOADING = RequestStatus.WAITING_FOR_REMOTE_KVS


class TieredEngine(Driver):
    """An engine of `capacity` blocks, with chunks and files of a block each; with one group if no kinds are given."""

    def __init__(self, config, capacity, chunks, files=None, *, failing=False, window=None, kinds=(), **flags):
        config = with_tiers(with_flags(config, **flags), chunks, len(kinds) or 1)
        super().__init__(make_scheduler(config, capacity, window=window, kinds=kinds))
        self.worker = TierWorker(self)
        self.disk = None
        if files is not None:
            self.disk = give_disk(self.scheduler, self.worker, files, Random(1), failing=failing)
        self.memory = self.scheduler.tiers.served[0].tier
        self.scheduler.let_time_pass()

    def rest(self):
        """Steps until no copy is in progress."""
        for _ in range(100):
            if not self.scheduler.has_requests():
                return
            self.step()
        raise AssertionError("copies are under way for ever")

    def ask(self, tenant, tokens, **arguments):
        request = super().ask(tenant, tokens, **arguments)
        self.rest()
        return request

    def evict(self, *tenants):
        """Evicts what these tenants cache in blocks; the tiers keep it."""
        for tenant in tenants:
            self.scheduler.block_pool.evict(self.zone(tenant), "reset")

    def stored(self, tenant, blocks):
        """A prompt of `blocks` blocks that the tiers have and the blocks do not."""
        tokens = prompt(blocks)
        self.ask(tenant, tokens)
        self.evict(tenant)
        return tokens

    def loading(self, tenant, tokens, **arguments):
        """A request whose load is in progress until the test lets the worker finish it."""
        self.worker.slowest = self.worker.fastest = 10_000
        request = self.send(tenant, tokens, **arguments)
        self.step()
        assert request.status == LOADING
        return request

    def land(self):
        """Makes all copies in the next step."""
        self.worker.hurry()

    def blocks_of(self, request):
        return len(self.scheduler.kv_cache_manager.get_blocks(request.request_id).blocks[0])

    def held(self, tenant, tier=None):
        zone = (tier or self.memory).ledger.zones.get(tenant)
        return 0 if zone is None else zone.held
