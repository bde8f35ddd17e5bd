"""One scheduler under a load, and what its steps take."""

import time
from collections import Counter
from typing import Any

from bench.step_time.loads import Load
from bench.step_time.results import Record
from hack.harness.scheduler import Driver, prompt
from tenantzone_contract.config import ZoneConfig
from tenantzone_contract.report import ConfigStatus
from tenantzone_runtime.housekeeping.reporting import make_report

HOUSEKEEPING_SECONDS = 0.1
REPORT_SECONDS = 1.0

_AT_ONCE = 256
_FILLING_SEEDS = 10_000_000
"""Prompts from here on are asked for once."""


class Arm:
    """One scheduler under the same load as the others.

    Args:
        driver: of the scheduler.
        load: that it serves.
        zones: the number of declared zones, for as many groups of tenants; 0: none.
        terms: of each zone, in addition to its reservation.
    """

    def __init__(self, driver: Driver, load: Load, zones: int, **terms: Any) -> None:
        self.zones = zones
        self.record = Record(zones)
        self._driver = driver
        self._scheduler = driver.scheduler
        self._load = load
        self._sent = 0
        self._tenant_of: dict[str, int] = {}
        """The tenant by request, for requests that have not ended."""
        self._kept_house = self._reported = time.perf_counter()
        if zones:
            names = [f"tenant-{number}" for number in range(zones)]
            driver.declare(
                *(ZoneConfig(name=name, tenant=name, generation=1, reserved=load.reserved, **terms) for name in names)
            )

    @property
    def outstanding(self) -> Counter[int]:
        """How many requests each tenant has that were sent and not yet followed by another."""
        return Counter(self._tenant_of.values())

    def start(self) -> None:
        """Fill the pool with prompts that are not repeated and then with prefixes, and send the first requests."""
        load = self._load
        blocks = load.prefix + load.own
        filling = (prompt(blocks, seed=_FILLING_SEEDS + number) for number in range(load.capacity // blocks))
        self._run([(number, tokens) for number, tokens in enumerate(filling)])
        self._run([(tenant, load.prefix_tokens(tenant)) for tenant in range(load.tenants)])
        for number in range(load.requests):
            self._send_next(number % load.tenants)

    def step(self) -> None:
        """Let a request follow each that has ended, then time one step."""
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
        """Let the record begin now."""
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
        # Where no zones keep tenants' caches apart, a salt does.
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
