"""What lending does to hits and to waits: the Mooncake trace, zones with equal reservations of all blocks.

The zone core and its arbiter under the simulated engine, as in ``bench.simulator``, with one config from the beginning
to the end. What is refused without lending, because it fits no zone, is told beside the hit rate: it hits nothing
where it is served, so that to refuse it makes a rate look better.
"""

import argparse
from collections import Counter

from bench.simulator.checks import Checks
from bench.simulator.engine import Engine, Model
from bench.simulator.request import Request
from bench.simulator.trace import replay
from tenantzone_contract.config import PoolConfig, ZoneConfig
from tenantzone_contract.config_text import make_config
from tenantzone_contract.zone_terms import Idle, Lending

UPKEEP_SECONDS = 0.1


class Run:
    """The trace on one engine.

    Args:
        options: of the command.
        tenants: how many.
        blocks: of the engine.
        lends: whether zones lend what they do not use.
    """

    def __init__(self, options: argparse.Namespace, tenants: int, blocks: int, *, lends: bool) -> None:
        self.refused = 0
        self.ended: list[Request] = []
        names = [f"tenant-{number}" for number in range(tenants)]
        self._load = list(replay(options.requests, names, options.speed))
        self._engine = Engine(Model(capacity=blocks), 0.0, Checks())
        zones = (
            ZoneConfig(
                name=name,
                tenant=name,
                generation=1,
                reserved=blocks // tenants,
                lending=Lending(lendable="100%" if lends else 0),
                idle=Idle(after_seconds=options.idle),
            )
            for name in names
        )
        self._engine.apply(make_config(1, PoolConfig(namespace="bench", name="pool"), tuple(zones)))

    def go(self) -> None:
        """Serve all requests."""
        engine, sent, upkeep_due = self._engine, 0, 0.0
        while sent < len(self._load) or not engine.is_idle:
            if engine.now >= upkeep_due:
                engine.upkeep()
                upkeep_due = engine.now + UPKEEP_SECONDS
            while sent < len(self._load) and self._load[sent].arrival <= engine.now:
                self.refused += engine.submit(self._load[sent]) is not None
                sent += 1
            engine.schedule()
            elapsed = engine.compute()
            self.ended += engine.finished
            engine.now += elapsed or UPKEEP_SECONDS

    def line(self) -> str:
        """Hit rate, that of the tenant with the lowest, refused requests, mean wait, and evicted blocks by reason."""
        hits, prompts = Counter[str](), Counter[str]()
        for request in self.ended:
            hits[request.tenant] += request.hit_tokens
            prompts[request.tenant] += request.prompt_tokens
        waited = sum((request.admitted or 0.0) - request.arrival for request in self.ended)
        evicted = Counter[str]()
        for zone in self._engine.ledger.zones.values():
            evicted.update(zone.counters.evicted)
        return (
            f"{hits.total() / prompts.total():>9.1%}{min(hits[name] / prompts[name] for name in prompts):>9.1%}"
            f"{self.refused:>9}{waited / len(self.ended):>8.2f} s  "
            + ", ".join(f"{reason} {count:,}" for reason, count in sorted(evicted.items()))
        )


def main() -> None:
    """Print a line for each number of tenants and of blocks, without lending and with it."""
    parser = argparse.ArgumentParser(prog="python -m bench.lending_hits", description=__doc__)
    parser.add_argument("--requests", type=int, default=6000, help="of the trace (default: %(default)s)")
    parser.add_argument("--speed", type=float, default=0.3, help="to the trace's own (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds until a zone is quiet (default: %(default)s)")
    parser.add_argument("--tenants", type=int, nargs="+", default=[8, 40], help="default: %(default)s")
    parser.add_argument("--blocks", type=int, nargs="+", default=[2000, 4000, 8000], help="default: %(default)s")
    options = parser.parse_args()
    print(f"{'tenants':>7}{'blocks':>8}{'lending':>9}{'hit rate':>9}{'lowest':>9}{'refused':>9}{'wait':>10}  evicted")
    for tenants in options.tenants:
        for blocks in options.blocks:
            for lends in (False, True):
                run = Run(options, tenants, blocks, lends=lends)
                run.go()
                print(f"{tenants:>7}{blocks:>8,}{'on' if lends else 'off':>9}{run.line()}", flush=True)


if __name__ == "__main__":
    main()
