"""``python -m bench.kubernetes_clients``: which credentials each client takes, and what it costs."""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import bench.kubernetes_clients
from bench.kubernetes_clients.cases import CASES, REMARK
from bench.kubernetes_clients.libraries import AT_ONCE, CLIENTS
from bench.kubernetes_clients.outcomes import Figures, Finding, costs, judge, matrix
from bench.kubernetes_clients.stage import OTHER_NAME, USER, Certificates, Stage
from hack.controlplane.credentials import Authority


def main() -> None:
    """Pass over what is not installed, go through the cases, then measure; print both tables."""
    parser = argparse.ArgumentParser(
        description=bench.kubernetes_clients.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="of the environment that has the clients")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS), help="default: all")
    parser.add_argument(
        "--cases", nargs="*", choices=CASES, default=list(CASES), help="default: all; none: costs alone"
    )
    parser.add_argument("--reads", type=int, default=2000, help="timed ones of each client (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each client; 0: none (default: 3)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_Bench(arguments, Path(folder)).run())


class _Bench:
    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        authority = Authority(folder / "certificates")
        self._certificates = Certificates(
            authority, authority.issue_server("server", [OTHER_NAME]), authority.issue_client(USER)
        )

    async def run(self) -> None:
        """Print which clients there are, what they take, and what they cost."""
        clients = [name for name in self._arguments.clients if await self._is_installed(name)]
        if not clients:
            sys.exit("no client is installed")
        if self._arguments.cases:
            print("", *matrix(await self._findings(clients)), "", REMARK, sep="\n", flush=True)
        if self._arguments.rounds:
            reads = f"{self._arguments.reads:,} reads of a small object over TLS, {AT_ONCE} at a time"
            print(f"\n{reads}; medians of {self._arguments.rounds}:\n", flush=True)
            print(*costs({name: await self._figures(name) for name in clients}), sep="\n")

    async def _is_installed(self, name: str) -> bool:
        async with self._stage(name, "greeting").client() as client:
            print(f"{name}: {client.greeting.get('version') or client.greeting['error']}", flush=True)
            return "version" in client.greeting

    async def _findings(self, clients: Sequence[str]) -> dict[str, dict[str, Finding]]:
        found: dict[str, dict[str, Finding]] = {name: {} for name in clients}
        for number, case in enumerate(self._arguments.cases):
            # At once: a case may have to wait for a minute.
            stages = [self._stage(name, f"case-{number}") for name in clients]
            for name, finding in zip(clients, await asyncio.gather(*map(CASES[case], stages)), strict=True):
                found[name][case] = finding
        return found

    async def _figures(self, name: str) -> Figures:
        rounds = [await self._round(name, number) for number in range(self._arguments.rounds)]
        return Figures(*(statistics.median(values) for values in zip(*rounds, strict=True)))

    async def _round(self, name: str, number: int) -> tuple[float, ...]:
        stage = self._stage(name, f"round-{number}")
        async with stage.server(lambda visit: visit.authorization == "Bearer known") as server:
            stage.write(server.url, {"token": "known"})
            async with stage.client() as client:
                first = await client.send("get")
                load = await client.send(f"load {self._arguments.reads}")
                seconds = client.greeting["import_seconds"]
            async with stage.client(with_kopf=True) as client:
                with_kopf = await client.send("get")
        for answer in (first, load, with_kopf):
            if "error" in answer:
                raise RuntimeError(f"{name}: {judge(answer['error'], as_asked=False, names='').error}")
        return seconds, first["resident_mb"], with_kopf["resident_mb"], load["per_second"], load["processor_ms"]

    def _stage(self, name: str, scene: str) -> Stage:
        folder = self._folder / name / scene
        folder.mkdir(parents=True)
        return Stage(name, self._arguments.python, folder, self._certificates)


if __name__ == "__main__":
    main()
