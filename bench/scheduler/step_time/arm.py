"""A scheduler under a load, with the times of its steps."""

import time
from collections import Counter
from typing import Any

from bench.scheduler.step_time.loads import Load
from bench.scheduler.step_time.results import Record
from hack.harness.scheduler import Driver, prompt
from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.housekeeping.report.reporting import make_report

HOUSEKEEPING_SECONDS = 0.1
REPORT_SECONDS = 1.0

_AT_ONCE = 256
_FILLING_SEEDS = 10_000_000
"""First seed of prompts that are sent only once, to fill the pool."""


class Arm:
    """A scheduler under the same load as the other arms.

    Args:
        driver: the driver of the scheduler.
        load: the load.
        zones: the number of declared zones, among which the tenants are divided; 0 for no zones.
        terms: fields of each zone, in addition to its reservation.
    """

    def __init__(self, driver: Driver, load: Load, zones: int, **terms: Any) -> None:
        self.zones = zones
        self.record = Record(zones)
        self._driver = driver
        self._scheduler = driver.scheduler
        self._load = load
        self._sent = 0
        self._tenant_of: dict[str, int] = {}
        """Tenant of each request that has not ended, by request id."""
        self._kept_house = self._reported = time.perf_counter()
        if zones:
            names = [f"tenant-{number}" for number in range(zones)]
            driver.declare(
                *(ZoneConfig(name=name, tenant=name, generation=1, reserved=load.reserved, **terms) for name in names)
            )

    @property
    def outstanding(self) -> Counter[int]:
        """Returns the number of requests of each tenant that have not yet been followed by another request."""
        return Counter(self._tenant_of.values())

    def start(self) -> None:
        """Fill the pool with unique prompts, then with the tenants' prefixes, and send the first requests."""
        load = self._load
        blocks = load.prefix + load.own
        filling = (prompt(blocks, seed=_FILLING_SEEDS + number) for number in range(load.capacity // blocks))
        self._run([(number, tokens) for number, tokens in enumerate(filling)])
        self._run([(tenant, load.prefix_tokens(tenant)) for tenant in range(load.tenants)])
        for number in range(load.requests):
            self._send_next(number % load.tenants)

    def step(self) -> None:
        """Send a request for each one that has ended, then time one step."""
        finished = self._driver.finished
        self.record.ended += len(finished)
        while finished:
            self._send_next(self._load.follower(self._tenant_of.pop(finished.popitem()[0])))
        began = time.thread_time()
        self._driver.step()
        ended = time.thread_time()
        self.record.times.append(ended - began)
        self.record.running.append(len(self._scheduler.running))
        self.record.waiting.append(len(self._scheduler.waiting))
        if self.zones:
            self._keep_house(time.perf_counter())
            self.record.outside += time.thread_time() - ended

    def forget(self) -> None:
        """Discard the measurements so far."""
        self.record = Record(self.zones)

    def _run(self, prompts: list[tuple[int, list[int]]]) -> None:
        for begin in range(0, len(prompts), _AT_ONCE):
            for number, tokens in prompts[begin : begin + _AT_ONCE]:
                self._send(number % self._load.tenants, tokens, 1)
            while self._scheduler.has_unfinished_requests():
                self._driver.step()
        self._driver.finished.clear()
        self._tenant_of.clear()

    def _send_next(self, tenant: int) -> None:
        load, number = self._load, self._sent
        self._send(tenant, load.prompt_tokens(tenant, number), load.answer_tokens(number))
        self._sent += 1

    def _send(self, tenant: int, tokens: list[int], answer: int) -> None:
        # Without zones, a salt separates the tenants' caches.
        salt: dict[str, Any] = {} if self.zones else {"client_salt": f"tenant-{tenant}"}
        zone = f"tenant-{tenant % self.zones}" if self.zones else None
        request = self._driver.send(zone, tokens, max_tokens=answer, **salt)
        self._tenant_of[request.request_id] = tenant

    def _keep_house(self, now: float) -> None:
        if now - self._kept_house >= HOUSEKEEPING_SECONDS:
            self._kept_house = now
            self._scheduler.let_time_pass()
            self._scheduler.tenancy.ledger.trail.collect()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            make_report(self._driver.served, ConfigStatus(), pod="bench", started_unix_time=0.0)
