"""Samples an engine during a replay: the running requests and blocks of each tenant, and the events of the zones."""

from collections import Counter

from tenantzone_replay.simulation.measures import Moment, Result, TenantMeasures
from tenantzone_replay.simulation.policies import QUOTA_SECONDS, Policy
from tenantzone_replay.simulation.tenants_at_work import TenantsAtWork
from tenantzone_runtime.engine.modelless.schedulers import ModellessScheduler
from tenantzone_runtime.engine.modelless.stock_cache import StockCache
from tenantzone_runtime.zones.audit.events import Evicted, Lent, Preempted

_LOOK_SECONDS = 1.0
"""Minimum interval between two samples, in seconds."""


class Observer:
    """Samples an engine periodically, and enforces soft quotas.

    Args:
        scheduler: the engine's scheduler.
        policy: the policy that the engine runs.
        tenants: the clients, which know the tenant of each request in flight.
        result: the result to which the samples are added.
        begin: the clock's time at the beginning of the load, in seconds.
        interval: the minimum interval between two samples that are added to the result, in seconds.
    """

    def __init__(
        self,
        scheduler: ModellessScheduler,
        policy: Policy,
        tenants: TenantsAtWork,
        result: Result,
        begin: float,
        interval: float,
    ) -> None:
        self._scheduler = scheduler.scheduler
        self._policy = policy
        self._tenants = tenants
        self._result = result
        self._begin = self._looked = self._kept = self._trimmed = begin
        self._interval = max(interval, _LOOK_SECONDS)
        self._stock = StockCache(self._scheduler) if policy.zones is None else None
        self._name = {number + 1: tenant for number, tenant in enumerate(result.tenants)}
        self._lost_to_quota: Counter[int] = Counter()
        self._ran: Counter[str] = Counter()
        """Number of running requests at the last sample, by tenant."""
        self._held_then: dict[str, int] = {}
        """Number of blocks at the last sample, by tenant."""
        self._absent = TenantMeasures()
        """Measures of zones whose tenants send no requests in the load."""
        if policy.salted:
            self._quotas = {number: (policy.quotas or {}).get(tenant, 0) for number, tenant in self._name.items()}

    def look(self, now: float) -> None:
        """Take a sample if the last sample is old enough. Called several times per virtual second."""
        if self._policy.quotas is not None and self._stock is not None and now - self._trimmed >= QUOTA_SECONDS:
            self._trimmed = now
            self._lost_to_quota.update(self._stock.evict_above(self._quotas))
        # Take the first sample soon after the beginning, because the load may end within a second.
        if self._looked > self._begin and now - self._looked < _LOOK_SECONDS:
            return
        under_way = self._tenants.under_way
        self._ran = Counter(under_way[request.request_id].tenant for request in self._scheduler.running)
        self._held_then = self._held()
        self._account(now)
        self._collect()
        if now - self._kept >= self._interval:
            self._kept = now
            self._keep(now, self._held_then)

    def _account(self, now: float) -> None:
        """Add the values of the newest sample, multiplied by the time since the last call, to the integrals."""
        passed, self._looked = now - self._looked, now
        for tenant, requests in self._ran.items():
            self._of(tenant).seat_seconds += requests * passed
        for tenant, blocks in self._held_then.items():
            self._of(tenant).block_seconds += blocks * passed

    def finish(self, now: float) -> None:
        """Take the last sample and collect the final counts. Called after the last response."""
        # The last sample's values count up to now. A new sample would show no running requests, because all have ended.
        self._account(now)
        if self._stock is None:
            self._scheduler.let_time_pass()
        self._collect()
        self._keep(now, self._held())
        if self._stock is not None:
            for owner, blocks in self._stock.evicted.items():
                if owner in self._name:
                    quota = self._lost_to_quota[owner]
                    evicted = self._of(self._name[owner]).evicted
                    evicted.update({"lru": blocks - quota, **({"quota": quota} if quota else {})})
            return
        for tenant, zone in self._scheduler.tenancy.ledger.zones.items():
            self._of(tenant).withheld_tokens += zone.counters.withheld_tokens

    def _keep(self, now: float, held: dict[str, int]) -> None:
        every = self._result.tenants.values()
        hit, prompt = sum(each.hit_tokens for each in every), sum(each.prompt_tokens for each in every)
        waiting = len(self._scheduler.waiting)
        running = len(self._scheduler.running)
        self._result.moments.append(Moment(now - self._begin, held, hit, prompt, waiting, running, self._lent()))

    def _held(self) -> dict[str, int]:
        if self._stock is not None:
            return {self._name.get(owner, ""): blocks for owner, blocks in self._stock.cached.items()}
        return {tenant: zone.held for tenant, zone in self._scheduler.tenancy.ledger.zones.items()}

    def _lent(self) -> dict[str, int]:
        if self._stock is not None:
            return {}
        return {tenant: zone.lent for tenant, zone in self._scheduler.tenancy.ledger.zones.items() if zone.lent}

    def _collect(self) -> None:
        if self._stock is not None:
            return
        for event in self._scheduler.tenancy.ledger.trail.collect():
            if isinstance(event, Evicted):
                self._of(event.zone).evicted[event.reason] += event.blocks
            elif isinstance(event, Preempted) and event.zone is not None:
                self._of(event.zone).preemptions += event.requests
            elif isinstance(event, Lent):
                self._of(event.lender).lent += event.blocks
                self._of(event.borrower).borrowed += event.blocks

    def _of(self, tenant: str) -> TenantMeasures:
        return self._result.tenants.get(tenant, self._absent)
