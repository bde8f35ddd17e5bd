"""Measures the effect of lending on hits and waits, compared with a static partition of the blocks.

The same load is served by a partition (each tenant has exactly its share of the blocks), by zones that reserve all
blocks equally and lend nothing, by such zones that lend, and by zones without reservations, which share one LRU cache.
Misses are the prompt tokens that had to be computed. Only requests that the partition served count, because it refuses
requests larger than a share. The loads are the Mooncake trace; chats of tenants with very unequal demand; two groups of
such tenants that chat in turns; and tenants with equal demand next to a tenant that floods the engine with unique
prompts.

The bench runs on the zone core and its arbiter in the simulated engine, as in ``bench.simulator``, with blocks of 512
tokens, and with ``--replay`` on vLLM's real scheduler in virtual time, with blocks of 64 tokens.
"""

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.simulator.checks import Checks
from bench.simulator.engine import Engine, Model
from bench.simulator.request import BLOCK_TOKENS, Request
from bench.simulator.trace import replay as mooncake
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.zone_terms import Idle, Lending
from tenantzone_replay.simulation.hardware import MODELS
from tenantzone_replay.simulation.measures import Target
from tenantzone_replay.simulation.policies import Policy
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.load import Asked
from tenantzone_replay.traces.made_up import CONTENT_TOKENS, Chats
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape

UPKEEP_SECONDS: Final = 0.1
MODES: Final = ("partition", "not lent", "lent", "one LRU")
LOADS: Final = ("mooncake", "chats", "in turns", "flood")
_TURN_SECONDS: Final = 600.0
_FLOOD_TOKENS: Final = 8192
_FLOOD: Final = "flood"
_PARTS: Final = BLOCK_TOKENS // CONTENT_TOKENS


@dataclass(slots=True)
class Served:
    """The result of serving a load."""

    misses: dict[int, int] = field(default_factory=dict)
    """Number of prompt tokens that had to be computed, by number of the served request."""
    tenant: dict[int, str] = field(default_factory=dict)
    prompt: dict[int, int] = field(default_factory=dict)
    refused: int = 0
    waited: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Total seconds until admission of all requests, by tenant."""
    evicted: Counter[str] = field(default_factory=Counter)

    def longest_wait(self) -> float:
        """Returns the longest mean wait of any tenant, in seconds."""
        served = Counter(self.tenant.values())
        return max((self.waited[tenant] / count for tenant, count in served.items()), default=0.0)

    def compare(self, partition: "Served") -> tuple[float, float, float]:
        """Compare the result with the result of a partition.

        Returns:
            The hit rate, the relative change of misses, and the smallest gain in hit rate of any tenant.
        """
        both = [number for number in self.misses if number in partition.misses]
        misses, before, prompts = Counter[str](), Counter[str](), Counter[str]()
        for number in both:
            tenant = self.tenant[number]
            misses[tenant] += self.misses[number]
            before[tenant] += partition.misses[number]
            prompts[tenant] += self.prompt[number]
        # Leave out the flood, which has no hits in any mode.
        others = [tenant for tenant in prompts if tenant != _FLOOD]
        worst = min((before[tenant] - misses[tenant]) / prompts[tenant] for tenant in others)
        hit_rate = 1 - sum(self.misses.values()) / sum(self.prompt.values())
        return hit_rate, misses.total() / before.total() - 1, worst


def chats(tenants: int, skew: float, *, in_turns: bool) -> list[Asked]:
    """Returns generated chats; if ``in_turns``, halves of the tenants chat alternately, for ten minutes each."""
    made_up = Chats(tenants=tenants, skew=0.5 if in_turns else skew, seconds=3600 if in_turns else 1800, chats=0.6)
    asked = list(made_up.load())
    if not in_turns:
        return asked

    def has_turn(each: Asked) -> bool:
        return int(each.tenant.rpartition("-")[2]) % 2 == int(each.arrival // _TURN_SECONDS) % 2

    return [each for each in asked if has_turn(each)]


def flooded(tenants: int, rate: float) -> list[Asked]:
    """Returns chats of all but one tenant, which sends ``rate`` unique prompts per second."""
    rng, at = random.Random(1), 0.0
    quiet = Chats(tenants=tenants - 1, skew=0, seconds=1800, chats=0.1)
    asked = list(quiet.load())
    while at < quiet.seconds:
        at += rng.expovariate(rate)
        asked.append(Asked(arrival=at, prompt_tokens=_FLOOD_TOKENS, output_tokens=64, tenant=_FLOOD))
    return sorted(asked, key=lambda each: each.arrival)


def as_requests(load: Sequence[Asked]) -> list[Request]:
    """Returns the same load for the simulated engine, whose blocks are larger."""
    return [
        Request(
            number,
            asked.tenant,
            asked.arrival,
            asked.prompt_tokens,
            asked.output_tokens,
            asked.content[_PARTS - 1 :: _PARTS],
        )
        for number, asked in enumerate(load)
    ]


def zones(tenants: Sequence[str], blocks: int, idle: float, mode: str) -> tuple[ZoneConfig, ...]:
    """Returns zones with equal reservations."""
    share = blocks // len(tenants)
    return tuple(
        ZoneConfig(
            name=name,
            tenant=name,
            generation=1,
            reserved=0 if mode == "one LRU" else share,
            limit=share if mode == "partition" else None,
            lending=Lending(lendable="100%" if mode == "lent" else 0),
            idle=Idle(after_seconds=idle),
        )
        for name in tenants
    )


def simulated(load: Sequence[Request], declared: Sequence[ZoneConfig], blocks: int) -> Served:
    """Serve a load on the simulated engine."""
    served = Served()
    engine = Engine(Model(capacity=blocks), 0.0, Checks())
    engine.apply(make_config(1, PoolConfig(namespace="bench", name="pool"), tuple(declared)))
    sent, upkeep_due = 0, 0.0
    requests = [
        Request(each.number, each.tenant, each.arrival, each.prompt_tokens, each.output_tokens, each.prefix)
        for each in load
    ]
    while sent < len(requests) or not engine.is_idle:
        if engine.now >= upkeep_due:
            engine.upkeep()
            upkeep_due = engine.now + UPKEEP_SECONDS
        while sent < len(requests) and requests[sent].arrival <= engine.now:
            served.refused += engine.submit(requests[sent]) is not None
            sent += 1
        engine.schedule()
        elapsed = engine.compute()
        for request in engine.finished:
            served.misses[request.number] = request.prompt_tokens - request.hit_tokens
            served.prompt[request.number] = request.prompt_tokens
            served.tenant[request.number] = request.tenant
            served.waited[request.tenant] += (request.admitted or 0.0) - request.arrival
        engine.now += elapsed or UPKEEP_SECONDS
    for zone in engine.ledger.zones.values():
        served.evicted.update(zone.counters.evicted)
    return served


def replayed(load: Sequence[Asked], declared: Sequence[ZoneConfig], blocks: int) -> Served:
    """Serve a load on vLLM's scheduler in virtual time."""
    from tenantzone_replay.simulation.replay import replay

    tokens = next(each.content_tokens for each in load if each.content)
    found = profile(load)
    shape = EngineShape(blocks, tokens, longest=max(8192, found.longest))
    served = Served()

    def ended(number: int, tenant: str, prompt_tokens: int, hit_tokens: int) -> None:
        served.misses[number] = prompt_tokens - hit_tokens
        served.prompt[number], served.tenant[number] = prompt_tokens, tenant

    at = Setting(lambda: iter(load), found, shape, MODELS["8b"].on(4), Target(), on_answered=ended)
    result = replay(at, Policy("zones", "zones", zones=tuple(declared)))
    served.refused = sum(each.refused for each in result.tenants.values())
    served.waited.update({tenant: each.first_token.total for tenant, each in result.tenants.items()})
    for each in result.tenants.values():
        served.evicted.update(each.evicted)
    return served


def loads(options: argparse.Namespace, tenants: int) -> Iterator[tuple[str, list[Asked] | None, list[Request]]]:
    """Yields each load as its name, its requests for the replay, and its requests for the simulated engine."""
    for name in options.loads:
        if name == "mooncake":
            names = [f"tenant-{number}" for number in range(tenants)]
            yield name, None, list(mooncake(options.requests, names, options.speed))
        else:
            asked = (
                flooded(tenants, options.flood)
                if name == _FLOOD
                else chats(tenants, options.skew, in_turns=name == "in turns")
            )
            yield name, asked, as_requests(asked)


def main() -> None:
    """Print a line for each load, number of tenants and of blocks, partitioned, without lending and with it."""
    parser = argparse.ArgumentParser(prog="python -m bench.scheduler.lending_hits", description=__doc__)
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS), help="default: all of them")
    parser.add_argument(
        "--flood", type=float, default=4.0, help="of the flood's requests, a second (default: %(default)s)"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="default: all of them")
    parser.add_argument("--requests", type=int, default=6000, help="of the trace (default: %(default)s)")
    parser.add_argument("--speed", type=float, default=0.3, help="to the trace's own (default: %(default)s)")
    parser.add_argument("--skew", type=float, default=2.0, help="of the chats' tenants (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds until a zone is quiet (default: %(default)s)")
    parser.add_argument("--tenants", type=int, nargs="+", default=[8], help="default: %(default)s")
    parser.add_argument(
        "--blocks", type=int, nargs="+", default=[1000, 2000, 4000, 8000], help="of 512 tokens (default: %(default)s)"
    )
    parser.add_argument("--replay", action="store_true", help="on vLLM's scheduler; the chats only")
    options = parser.parse_args()
    print(
        f"{'load':<9}{'tenants':>8}{'blocks':>8}  {'':<10}{'hit rate':>9}{'misses':>8}{'worst tenant':>14}"
        f"{'refused':>9}{'longest wait':>14}  evicted"
    )
    for tenants in options.tenants:
        for name, asked, requests in loads(options, tenants):
            if options.replay and asked is None:
                continue
            for blocks in options.blocks:
                partition: Served | None = None
                for mode in dict.fromkeys(("partition", *options.modes)):
                    if options.replay and asked is not None:
                        size = blocks * _PARTS
                        served = replayed(asked, _zones(asked, size, options.idle, mode), size)
                    else:
                        served = simulated(requests, _zones(requests, blocks, options.idle, mode), blocks)
                    partition = partition or served
                    print(_line(name, tenants, blocks, mode, served, partition), flush=True)


def _zones(load: Sequence[Asked | Request], blocks: int, idle: float, mode: str) -> tuple[ZoneConfig, ...]:
    return zones(sorted({each.tenant for each in load}), blocks, idle, mode)


def _line(name: str, tenants: int, blocks: int, mode: str, served: Served, partition: Served) -> str:
    hit_rate, misses, worst = served.compare(partition)
    evicted = ", ".join(f"{reason} {count:,}" for reason, count in sorted(served.evicted.items()))
    return (
        f"{name:<9}{tenants:>8}{blocks:>8,}  {mode:<10}{hit_rate:>9.1%}{misses:>+8.1%}{100 * worst:>+11.1f} pp"
        f"{served.refused:>9}{served.longest_wait():>12.2f} s  {evicted}"
    )


if __name__ == "__main__":
    main()
