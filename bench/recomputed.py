"""Measures the share of computed tokens that is recomputed after preemptions, with zones and in stock vLLM.

Each load is served twice by vLLM's real scheduler without a model: by stock, and with zones. Both get the same requests
of several tenants in the same steps. The bench counts the tokens that are scheduled in each step. The figures depend on
no clock, so they are the same on any machine. The counters of zones must have the same values.
"""

import argparse
import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

from vllm.v1.request import Request

from hack.harness.kv_caches import BLOCK_TOKENS
from hack.harness.processed_tokens import TokenTally
from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.zones.model.processed_tokens import COUNTERS

CAPACITY: Final = 600
STEP_SECONDS: Final = 0.02
TENANTS: Final = ("acme", "burst", "calm", "dusk")
FLOODING: Final = "burst"


@dataclass(frozen=True, slots=True)
class Load:
    """The requests per second of each ordinary tenant, and of the flooding tenant."""

    title: str
    each: float
    flood: float
    answer: int
    """Maximum length of an answer, in tokens."""


LOADS: Final = {
    "fits": Load("all tenants alike, and it fits", 0.4, 0.4, 300),
    "full": Load("all tenants alike, more than fits", 1.0, 1.0, 600),
    "flood": Load("one tenant floods", 0.4, 4.0, 600),
}


def arrivals(load: Load, seconds: float, seed: int) -> Iterator[tuple[float, str, int, int]]:
    """Yields the requests in order of arrival, as second, tenant, blocks of the prompt and tokens of the answer."""
    chance = Random(seed)
    asked = []
    for tenant in TENANTS:
        second = 0.0
        while True:
            second += chance.expovariate(load.flood if tenant == FLOODING else load.each)
            if second >= seconds:
                break
            asked.append((second, tenant, chance.randint(4, 40), chance.randint(load.answer // 4, load.answer)))
    yield from sorted(asked)


class Served:
    """Serves one load and counts its tokens.

    Args:
        driver: the driver of the scheduler.
        owner_of: returns the tenant of a request.
    """

    def __init__(self, driver: Driver, owner_of: Callable[[Request], str | None]) -> None:
        self.driver = driver
        self.tally = TokenTally(driver.scheduler, owner_of)
        self.preemptions: Counter[str] = Counter()

    def serve(self, load: Load, seconds: float, seed: int, send: Callable[[str, list[int], int], Request]) -> None:
        """Send requests and run steps until all requests are answered."""
        waiting = list(arrivals(load, seconds, seed))[::-1]
        sent: list[tuple[str, Request]] = []
        for step in itertools.count():
            while waiting and waiting[-1][0] <= step * STEP_SECONDS:
                _, tenant, blocks, answer = waiting.pop()
                sent.append((tenant, send(tenant, prompt(blocks, seed=len(sent) + 1), answer)))
            if not waiting and not self.driver.scheduler.has_unfinished_requests():
                break
            with patch("time.monotonic", lambda now=step * STEP_SECONDS: now):
                output, result = self.driver.schedule()
                self.tally.scheduled(output)
                self.tally.ending(output, result)
                self.driver.update(output, result)
        for tenant, request in sent:
            self.preemptions[tenant] += request.num_preemptions


def main() -> None:
    """Serve each load, and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS), help="default: all of them")
    parser.add_argument("--seconds", type=float, default=60.0, help="in which requests arrive (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    own = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in own.loads:
            _compare(Path(folder), LOADS[name], own.seconds, own.seed)


def _compare(folder: Path, load: Load, seconds: float, seed: int) -> None:
    config = vllm_config(folder, sequences=64, max_batched_tokens=64 * BLOCK_TOKENS)
    config.scheduler_config.async_scheduling = False
    tenants: dict[str, str] = {}

    stock = Served(Driver(make_scheduler(config, CAPACITY, zones=False)), lambda each: tenants[each.request_id])

    def send_to_stock(tenant: str, tokens: list[int], answer: int) -> Request:
        name = f"None-{len(tenants)}"
        tenants[name] = tenant
        request = stock.driver.send(None, tokens, max_tokens=answer)
        assert request.request_id == name
        return request

    stock.serve(load, seconds, seed, send_to_stock)
    driver = Driver(make_scheduler(config, CAPACITY))
    reserved = CAPACITY // len(TENANTS)
    driver.declare(*[ZoneConfig(name=each, tenant=each, generation=1, reserved=reserved) for each in TENANTS])
    zones = Served(driver, lambda request: str(request.zone.spec.tenant))
    zones.serve(load, seconds, seed, lambda tenant, tokens, answer: driver.send(tenant, tokens, max_tokens=answer))
    for tenant, counted in zones.tally.counts.items():
        for kind in ("computed_first", "recomputed"):
            said = getattr(driver.zone(str(tenant)).counters, COUNTERS[kind])
            assert said == counted[kind], f"{tenant}: the zone's counters say {said} {kind}, its steps {counted[kind]}"
    print(f"\n{load.title}:\n")
    heads = "".join(f"{head:>16}" for head in ("computed first", "recomputed", "share", "preemptions"))
    print(f"{'':6}{'stock':>64}{'zones':>64}")
    print(f"{'tenant':6}{heads}{heads}")
    for tenant in (*TENANTS, "all"):
        print(f"{tenant:6}{_figures(stock, tenant)}{_figures(zones, tenant)}")


def _figures(served: Served, tenant: str) -> str:
    counted = served.tally.counts
    tokens: Counter[str] = sum(counted.values(), Counter()) if tenant == "all" else counted[tenant]
    preemptions = served.preemptions.total() if tenant == "all" else served.preemptions[tenant]
    first, again = tokens["computed_first"], tokens["recomputed"]
    return f"{first:16,}{again:16,}{again / max(1, first + again):16.1%}{preemptions:16,}"


if __name__ == "__main__":
    main()
