"""Measures the operator with a real API server and engines that send real reports, and compares with the budgets.

The exit code is 1 if a budget is missed. Run it on an otherwise idle machine, because etcd, the API server, the
operator and the engines share its cores.
"""

import argparse
import asyncio
import signal
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from bench.operator import scenarios
from bench.operator.scenarios import Bench, Figures
from bench.operator.stage import OPERATOR, bench_of, control_plane

_BUDGETS = Path(__file__).parent / "budgets.toml"
_NAMESPACE = "bench"

Part = Callable[[Bench, argparse.Namespace], AsyncIterator[Figures]]


async def _one_pool(bench: Bench, options: argparse.Namespace) -> AsyncIterator[Figures]:
    yield await scenarios.created_at_once(bench, options.zones, options.engines)
    yield await scenarios.latency(bench, options.samples)
    yield await scenarios.rest(bench, options.rest)


async def _many_pools(bench: Bench, options: argparse.Namespace) -> AsyncIterator[Figures]:
    yield await scenarios.foreign_pods(bench, options.foreign_pods)
    yield await scenarios.many_pools(bench, options.many_zones, options.pools)
    yield await scenarios.restart(bench, options.pools)
    yield await scenarios.edits_in_one_window(bench, options.pools, options.edits)
    at_rest = await scenarios.rest(bench, options.rest)
    yield {f"{name} (many pools)": value for name, value in at_rest.items()}


async def _large_pool(bench: Bench, options: argparse.Namespace) -> AsyncIterator[Figures]:
    yield await scenarios.large_pool(bench, options.large_zones, options.large_samples)


async def _failover(bench: Bench, options: argparse.Namespace) -> AsyncIterator[Figures]:
    yield await scenarios.failover(bench, options.failovers)


_PARTS: dict[str, Part] = {
    "one-pool": _one_pool,
    "many-pools": _many_pools,
    "large-pool": _large_pool,
    "failover": _failover,
}
_ALONE = ("--no-leader-elect",)
_ELECTED = ("--leader-elect-namespace", "tenantzone-system")


def main() -> int:
    """Measure the parts that the user selected; returns the exit code, which is 1 if a budget was missed."""
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    budgets = tomllib.loads(_BUDGETS.read_text())
    missed = [asyncio.run(_run(name, options, budgets)) for name in _PARTS if name in options.part]
    return 1 if any(missed) else 0


async def _run(name: str, options: argparse.Namespace, budgets: Mapping[str, Any]) -> bool:
    """Measure one part, and print each figure as soon as it is known; returns whether a budget was missed."""
    missed, flags = False, _ELECTED if name == "failover" else _ALONE
    with control_plane([_NAMESPACE]) as (plane, folder):
        kubeconfig = plane.user_kubeconfig(OPERATOR)
        async with bench_of(plane, folder, kubeconfig, _NAMESPACE, options.profile, flags) as bench:
            async for figures in _PARTS[name](bench, options):
                for figure, value in figures.items():
                    decision = _decision(value, budgets.get(figure, {}))
                    missed = missed or decision.startswith("MISSED")
                    print(f"{figure:<44} {value:>12,.2f}   {decision}", flush=True)
    return missed


def _decision(value: float, budget: dict[str, Any]) -> str:
    if "at_most" in budget:
        return ("ok" if value <= budget["at_most"] else "MISSED") + f", at most {budget['at_most']:,}"
    if "at_least" in budget:
        return ("ok" if value >= budget["at_least"] else "MISSED") + f", at least {budget['at_least']:,}"
    return ""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.operator", description=__doc__)
    parser.add_argument(
        "--part", nargs="+", choices=tuple(_PARTS), default=tuple(_PARTS), help="only these parts (default: all)"
    )
    parser.add_argument("--zones", type=int, default=1000, help="in the one pool (default: %(default)s)")
    parser.add_argument("--engines", type=int, default=2, help="of the one pool (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=100, help="single changes (default: %(default)s)")
    parser.add_argument("--many-zones", type=int, default=5000, help="in many pools (default: %(default)s)")
    parser.add_argument(
        "--foreign-pods", type=int, default=10_000, help="of others, in addition to many pools (default: %(default)s)"
    )
    parser.add_argument("--large-zones", type=int, default=20_000, help="in a large pool (default: %(default)s)")
    parser.add_argument("--large-samples", type=int, default=20, help="single changes there (default: %(default)s)")
    parser.add_argument("--failovers", type=int, default=3, help="leaders killed (default: %(default)s)")
    parser.add_argument("--pools", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--edits", type=int, default=5, help="of one pool at once (default: %(default)s)")
    parser.add_argument(
        "--rest",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long nothing happens; 300 is what the budgets are about (default: %(default)s)",
    )
    parser.add_argument("--profile", type=Path, metavar="FILE", help="cProfile's statistics of the operator")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
