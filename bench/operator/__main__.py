"""Measures the operator with a real API server and engines that speak the real report, and compares with the budgets.

Exit code 1 if a budget is missed. Run it on a machine that does nothing else: etcd, the API server, the operator and
the engines share its cores.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.operator import scenarios
from bench.operator.client import Client
from bench.operator.fleet import Fleet
from bench.operator.observer import Observer
from bench.operator.process import OperatorProcess
from bench.operator.scenarios import Bench, Figures
from controlplane import ControlPlane
from controlplane.server import free_ports
from tenantzone_operator.connection import Connection

_ROOT = Path(__file__).parents[2]
_BUDGETS = Path(__file__).parent / "budgets.toml"
_USER = "system:serviceaccount:tenantzone-system:tenantzone-operator"
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
    options = _parse()
    budgets = tomllib.loads(_BUDGETS.read_text())
    missed = [asyncio.run(_run(name, options, budgets)) for name in _PARTS if name in options.part]
    return 1 if any(missed) else 0


async def _run(name: str, options: argparse.Namespace, budgets: Mapping[str, Any]) -> bool:
    """Measure, and print each figure as soon as there is one. Returns whether a budget was missed."""
    missed = False
    async with _bench(options, _ELECTED if name == "failover" else _ALONE) as bench:
        try:
            async for figures in _PARTS[name](bench, options):
                for figure, value in figures.items():
                    verdict = _verdict(value, budgets.get(figure, {}))
                    missed = missed or verdict.startswith("MISSED")
                    print(f"{figure:<44} {value:>12,.2f}   {verdict}", flush=True)
        except BaseException:
            with contextlib.suppress(OSError):
                print(bench.operator.log.read_text()[-4000:], file=sys.stderr)
            raise
    return missed


@asynccontextmanager
async def _bench(options: argparse.Namespace, flags: Sequence[str]) -> AsyncIterator[Bench]:
    with _control_plane() as (plane, folder):
        (port,) = free_ports(1)
        kubeconfig = plane.user_kubeconfig(_USER)
        async with Client(Connection(str(plane.kubeconfig)).for_kopf) as client:
            operator = OperatorProcess(kubeconfig, folder, options.profile, flags)
            standby = OperatorProcess(kubeconfig, folder / "standby", None, flags)
            observer, fleet = Observer(client, _NAMESPACE), Fleet(client, port)
            observer.start()
            await fleet.start(_NAMESPACE)
            operator.start()
            try:
                yield Bench(client, _NAMESPACE, port, operator, standby, observer, fleet)
            finally:
                operator.stop()
                standby.stop()
                await observer.stop()
                await fleet.stop()


@contextlib.contextmanager
def _control_plane() -> Iterator[tuple[ControlPlane, Path]]:
    """Our own, with the CRDs and the operator's rights, and an empty namespace."""
    with tempfile.TemporaryDirectory(prefix="tenantzone-bench-") as name:
        folder = Path(name)
        with ControlPlane(folder / "plane") as plane:
            for manifest in ("crds/tenantzones.yaml", "crds/zonepools.yaml"):
                plane.kubectl("apply", "--server-side", "--filename", str(_ROOT / manifest))
            crds = ("crd/tenantzones.tenantzone.io", "crd/zonepools.tenantzone.io")
            plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *crds)
            for manifest in ("manifests/base/namespace.yaml", "manifests/base/rbac.yaml", "manifests/base/guard.yaml"):
                plane.kubectl("apply", "--filename", str(_ROOT / manifest))
            plane.kubectl("create", "namespace", _NAMESPACE)
            yield plane, folder


def _verdict(value: float, budget: dict[str, Any]) -> str:
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
        "--foreign-pods", type=int, default=10_000, help="of others, beside many pools (default: %(default)s)"
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
