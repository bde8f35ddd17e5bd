"""The engines to compare: stock vLLM and vLLM with zones, with otherwise equal settings."""

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

import httpx
import psutil

from bench.end_to_end.model import LONGEST
from hack.controlplane.server import Server
from hack.ports import free_ports
from tenantzone_contract.reports.report import METRICS_PATH, REPORT_PATH, EngineReport, parse_report
from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config

BLOCKS = 1024
BLOCK_TOKENS = 32
MODEL = "bench"

_START_SECONDS = 900.0
_LOOK_SECONDS = 5.0


class EngineError(Exception):
    """An engine exited, or did not start in time; the message has the end of its log."""


class Engine:
    """One engine, stock or with zones.

    Args:
        name: the engine's name in logs and tables.
        zones: the zones to declare, or a number of default zones. With 0, zones are enabled without a config; with
            None, the engine is stock vLLM.
        model: the folder of the model.
        folder: an existing folder for the engine's config, keys and log.
        cores: the cores for all processes of the engine.
        start_cores: the cores until `settle` is called; if None, the same cores.
        tenants: the number of tenants, from the first on, that get a key.
        flags: vLLM flags in addition to the flags of all engines.
        variables: environment variables in addition to those of all engines.
    """

    def __init__(
        self,
        name: str,
        zones: int | Sequence[ZoneConfig] | None,
        *,
        model: Path,
        folder: Path,
        cores: Sequence[int],
        tenants: int = 1,
        flags: Sequence[str] = (),
        start_cores: Sequence[int] | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._cores = cores
        port, admin_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        declared = _plain_zones(zones) if isinstance(zones, int) else tuple(zones or ())
        self._zones = len(declared)
        self.admin_url = f"http://127.0.0.1:{admin_port}"
        self._log = folder / "engine.log"
        command = _stock_command(model) if zones is None else _zone_command(model, folder, admin_port=admin_port)
        if declared:
            _declare(folder, declared, tenants)
        with _running_on(start_cores or cores):
            self._server = Server(
                [*command, "--port", str(port), *flags], log=self._log, env={**_environment(cores), **variables}
            )

    @property
    def headers(self) -> tuple[str, ...]:
        """Returns the credentials of the first tenant's requests, as NAME=VALUE."""
        return tuple(f"{name}={value}" for name, value in self.headers_of(0).items())

    @property
    def model(self) -> str:
        """Name of the model in requests."""
        return MODEL

    def headers_of(self, tenant: int) -> dict[str, str]:
        """Returns the credentials of this tenant's requests."""
        return {"Authorization": f"Bearer {_key(tenant)}"} if self._zones else {}

    def is_ready(self) -> bool:
        """Returns whether the engine answers and enforces its zones.

        Raises:
            EngineError: the engine has exited.
        """
        if not self._server.is_running:
            raise EngineError(f"{self.name} has ended; {self._server.log_tail()}")
        try:
            if httpx.get(f"{self.url}/health", timeout=60).status_code != 200:
                return False
            if not self._zones:
                return True
            report = self.report()
        except (httpx.TransportError, httpx.HTTPStatusError):
            return False
        return len(report.zones) == self._zones

    def report(self) -> EngineReport:
        """Returns the report of an engine with zones.

        Raises:
            httpx.HTTPError: the engine does not answer yet.
        """
        return parse_report(httpx.get(f"{self.admin_url}{REPORT_PATH}", timeout=60).raise_for_status().content)

    def log(self) -> str:
        """Returns the engine's whole log so far."""
        return self._log.read_text(errors="replace")

    def metrics(self) -> str:
        """Returns a scrape of the admin port; empty if there is none."""
        return httpx.get(f"{self.admin_url}{METRICS_PATH}", timeout=60).text if self._zones else ""

    def cpu_seconds(self) -> float:
        """Returns the CPU time that the engine's processes have used so far, in seconds."""
        used = 0.0
        for process in psutil.Process(self._server.pid).children(recursive=True):
            times = process.cpu_times()
            used += times.user + times.system
        return used

    def api_server_bytes(self) -> int:
        """Returns the resident memory of the engine's API server, in bytes."""
        (api_server,) = psutil.Process(self._server.pid).children()
        return int(api_server.memory_info().rss)

    def settle(self) -> None:
        """Restrict the started engine to its cores."""
        for process in psutil.Process(self._server.pid).children(recursive=True):
            for thread in process.threads():
                os.sched_setaffinity(thread.id, self._cores)

    def stop(self) -> None:
        """Stop the engine and wait until it has exited."""
        self._server.stop()

    def timeout(self) -> EngineError:
        return EngineError(f"{self.name} was not ready after {_START_SECONDS:.0f} s; {self._server.log_tail()}")


class Engines:
    """Engines that start side by side and are stopped together."""

    def __init__(self) -> None:
        self._running: list[Engine] = []

    def add(self, engine: Engine) -> None:
        self._running.append(engine)

    def __iter__(self) -> Iterator[Engine]:
        return iter(self._running)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self._running:
            engine.stop()

    def await_ready(self) -> None:
        """Wait until all engines are ready, and show which ones are starting.

        Raises:
            EngineError: an engine has exited, or is not ready in time.
        """
        began = time.monotonic()
        waiting = list(self._running)
        while waiting := [engine for engine in waiting if not engine.is_ready()]:
            passed = time.monotonic() - began
            if passed > _START_SECONDS:
                raise waiting[0].timeout()
            names = ", ".join(engine.name for engine in waiting)
            print(f"{passed:>5.0f} s: {names} starting", file=sys.stderr, flush=True)
            time.sleep(_LOOK_SECONDS)


def _stock_command(model: Path) -> list[str]:
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *_flags()]


def _zone_command(model: Path, folder: Path, *, admin_port: int) -> list[str]:
    return [
        sys.executable, "-m", "tenantzone_runtime", "serve", str(model), *_flags(),
        "--zones-config", str(folder / "config"),
        "--tenant-keys", str(folder / "keys"),
        "--admin-host", "127.0.0.1",
        "--admin-port", str(admin_port),
        "--admin-open",
    ]  # fmt: skip


def _flags() -> Sequence[str]:
    return (
        "--served-model-name", MODEL,
        "--host", "127.0.0.1",
        "--num-gpu-blocks-override", str(BLOCKS),
        "--block-size", str(BLOCK_TOKENS),
        "--max-model-len", str(LONGEST),
        "--dtype", "float32",
        "--enforce-eager",
    )  # fmt: skip


def _plain_zones(count: int) -> tuple[ZoneConfig, ...]:
    # The first tenant, which sends requests, is sometimes within its reservation, and sometimes above it.
    reserved = ["50%"] + [0] * (count - 1)
    names = [f"tenant-{number}" for number in range(count)]
    return tuple(
        ZoneConfig(name=name, tenant=name, generation=1, reserved=amount)
        for name, amount in zip(names, reserved[:count], strict=True)
    )


def _declare(folder: Path, zones: Sequence[ZoneConfig], tenants: int) -> None:
    (folder / "config").mkdir()
    (folder / "keys").mkdir()
    for number, zone in enumerate(zones[:tenants]):
        (folder / "keys" / zone.tenant).write_text(_key(number))
    config = make_config(1, PoolConfig(namespace="bench", name="pool"), tuple(zones))
    (folder / "config" / CONFIG_KEY).write_text(dump_config(config))


def _key(tenant: int) -> str:
    return f"key-of-tenant-{tenant}"


@contextlib.contextmanager
def _running_on(cores: Iterable[int]) -> Iterator[None]:
    """Run processes that are started in the block only on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _environment(cores: Iterable[int]) -> dict[str, str]:
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_NO_USAGE_STATS": "1",
        # This applies to processes other than the worker, whose number of threads follows from its cores.
        "OMP_NUM_THREADS": "1",
    }
