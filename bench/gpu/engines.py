"""Stock and zones engines with the same flags, started side by side on a GPU or on CPUs."""

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import psutil

from bench.gpu.shapes import MODEL, Shape
from hack.controlplane.server import Server
from hack.ports import free_ports
from tenantzone_contract.reports.report import METRICS_PATH, REPORT_PATH, EngineReport, parse_report
from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config

_LOG_LINES: Final = 30
_STACKS_LINES: Final = 300
_ABORT_SECONDS: Final = 20.0
_ERROR: Final = re.compile(r"Error|error:")
_NO_CAUSE: Final = re.compile(r"See root cause above|\b(?:DEBUG|INFO|WARNING)\b")
"""Matches lines that name no cause: vLLM's last line after the engine core failed, and lines below level ERROR."""
_NOT_A_STACK: Final = "Extension modules:"
"""Start of a very long line that faulthandler adds after the stacks."""
_POLL_SECONDS: Final = 0.1
_PROGRESS_SECONDS: Final = 2.0
_WATCH_SECONDS: Final = 0.5
_APPLY_SECONDS: Final = 60.0
_SILENCE_SECONDS: Final = 120.0
"""Maximum time that a client waits for the next token of an answer."""
_ADMIN_SECONDS: Final = 30.0
_HEALTH_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 2.0
"""Time after which a client drops an idle connection; below 5 s, because vLLM then closes the connection."""
_SPARE_CACHE_BYTES: Final = 1 << 28
_HALF_A_CARD: Final = "0.42"
"""Fraction of the card's memory for each engine, so that two engines fit on one card and leave room for CUDA."""


class EngineError(Exception):
    """An engine exited, did not start in time, or did not apply its zones; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine to start.

    Attributes:
        name: the engine's name in its group, such as ``stock`` or ``zones``.
        zones: the initial zones; None starts stock vLLM.
        flags: flags of vLLM or ``tenantzone-runtime serve``, in addition to the flags of all engines.
        variables: environment variables, in addition to those of this process.
        eager: whether to run without CUDA graphs and torch.compile.
        model: the folder of a model for this engine only; if None, the engine runs the model of the run.
        dummy: whether vLLM makes up the weights; if None, the shape decides.
    """

    name: str
    zones: tuple[ZoneConfig, ...] | None
    flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    eager: bool = True
    model: Path | None = None
    dummy: bool | None = None


class Engine:
    """A running engine.

    Args:
        spec: the engine to start.
        shape: the model's shape, with the size of the pool.
        model: the folder of the run's model.
        folder: an existing folder for the engine's zones, keys and log.
        flags: the user's flags, which come last and so override all others.
    """

    def __init__(self, spec: EngineSpec, shape: Shape, model: Path, folder: Path, flags: Sequence[str] = ()) -> None:
        self.name = spec.name
        self.has_zones = spec.zones is not None
        port, admin_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        self.admin_url = f"http://127.0.0.1:{admin_port}"
        self.log = folder / "engine.log"
        self.ready_seconds = 0.0
        self._config, self._keys = folder / "config", folder / "keys"
        self._generation = 0
        served = str(spec.model or model)
        dummy = shape.weights == "dummy" if spec.dummy is None else spec.dummy
        start = ["-m", "vllm.entrypoints.openai.api_server", "--model", served]
        if spec.zones is not None:
            self._config.mkdir()
            self._keys.mkdir()
            self.add_tenants(zone.tenant for zone in spec.zones)
            self._declare(spec.zones)
            start = [
                "-m", "tenantzone_runtime", "serve", served,
                "--zones-config", str(self._config),
                "--tenant-keys", str(self._keys),
                "--admin-host", "127.0.0.1",
                "--admin-port", str(admin_port),
                "--admin-open",
            ]  # fmt: skip
        self.command = [sys.executable, *start, *_flags(spec, shape, port, dummy=dummy), *spec.flags, *flags]
        # All requests outside of load share one client, because creating one takes longer than a first token. It closes
        # idle connections before vLLM does, so that no request is sent on a connection that vLLM is closing.
        limits = httpx.Limits(max_connections=None, keepalive_expiry=_IDLE_SECONDS)
        self.client = httpx.AsyncClient(timeout=_SILENCE_SECONDS, verify=False, limits=limits)
        self._began = time.monotonic()
        environment = {**_environment(shape, eager=spec.eager), **spec.variables}
        self._server = Server(self.command, log=self.log, env=environment)

    @property
    def pid(self) -> int:
        """Process id of the engine's parent process."""
        return self._server.pid

    def check_running(self) -> None:
        """Raise an error unless the engine is running.

        Raises:
            EngineError: the engine has exited.
        """
        if not self._server.is_running:
            passed = time.monotonic() - self._began
            raise EngineError(f"{self.name} ended after {passed:.0f} s: {self._last_words()}")

    def headers(self, tenant: str) -> dict[str, str]:
        """Returns the headers that authenticate a tenant's requests; empty on stock vLLM."""
        return {"Authorization": f"Bearer {_key(tenant)}"} if self.has_zones else {}

    def fields(self, tenant: str) -> dict[str, str]:
        """Returns the body fields that separate a tenant's cache on stock vLLM; empty with zones."""
        return {} if self.has_zones else {"cache_salt": tenant}

    async def wait_ready(self, limit_seconds: float, say: Callable[[str], None]) -> None:
        """Wait until the engine is healthy and enforces its zones, if it has any.

        Raises:
            EngineError: the engine exited, or is not healthy within the limit.
        """
        said = time.monotonic()
        while not await self._is_ready():
            passed = time.monotonic() - self._began
            self.check_running()
            if passed > limit_seconds:
                stacks = await asyncio.to_thread(self._abort)
                raise EngineError(f"{self.name} was not healthy after {passed:.0f} s; {stacks}")
            if time.monotonic() - said > _PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"{self.name} is starting: {passed:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)
        self.ready_seconds = time.monotonic() - self._began
        say(f"{self.name} is healthy after {self.ready_seconds:.1f} s")

    async def apply(self, zones: Sequence[ZoneConfig]) -> None:
        """Replace all zones, give their tenants keys, and wait until the engine's report shows the new generation.

        Raises:
            EngineError: the engine refused the zones, or did not apply them in time.
        """
        self.add_tenants(zone.tenant for zone in zones)
        self._declare(zones)
        deadline = time.monotonic() + _APPLY_SECONDS
        while not await self._is_applied(zones):
            config = (await self.report()).config
            if config.rejected is not None and config.rejected.generation == self._generation:
                raise EngineError(f"{self.name} refused the zones: {config.rejected.error}")
            if time.monotonic() > deadline:
                raise EngineError(f"{self.name} did not apply the zones in {_APPLY_SECONDS:.0f} s; {self.log_tail()}")
            await asyncio.sleep(_POLL_SECONDS)

    def add_tenants(self, tenants: Iterable[str]) -> None:
        """Give tenants API keys, which the engine reads within about a second."""
        for tenant in tenants:
            key = self._keys / tenant
            if not key.exists():
                key.write_text(f"{_key(tenant)}\n")

    async def report(self) -> EngineReport:
        """Returns the engine's report from the admin port.

        Raises:
            httpx.HTTPError: the admin port did not answer.
        """
        return parse_report(await self._admin(REPORT_PATH))

    async def metrics(self) -> str:
        """Returns the metrics from the admin port as text.

        Raises:
            httpx.HTTPError: the admin port did not answer.
        """
        return (await self._admin(METRICS_PATH)).decode()

    def log_tail(self, lines: int = _LOG_LINES) -> str:
        """Returns the last lines of the engine's log."""
        return self._server.log_tail(lines)

    async def stop(self) -> None:
        """Stop the engine and wait until it has exited."""
        await self.client.aclose()
        await asyncio.to_thread(self._server.stop)

    def _last_words(self) -> str:
        """Returns the last error in the log, followed by the end of the log."""
        error = last_error(self.log.read_text(errors="replace"))
        return "; ".join(filter(None, (error, self.log_tail())))

    def _abort(self) -> str:
        """End the engine's processes with SIGABRT, on which each logs the stacks of its threads; returns the stacks."""
        processes = []
        with contextlib.suppress(psutil.NoSuchProcess):
            processes = psutil.Process(self.pid).children(recursive=True)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGABRT)
        psutil.wait_procs(processes, timeout=_ABORT_SECONDS)
        lines = self.log_tail(_STACKS_LINES).splitlines()
        return "\n".join(line for line in lines if not line.startswith(_NOT_A_STACK))

    async def _admin(self, path: str) -> bytes:
        response = await self.client.get(f"{self.admin_url}{path}", timeout=_ADMIN_SECONDS)
        return response.raise_for_status().content

    async def _is_applied(self, zones: Sequence[ZoneConfig]) -> bool:
        """Returns whether the engine enforces these zones and accepts the key of the last zone's tenant."""
        if (await self.report()).config.applied_generation != self._generation:
            return False
        headers = self.headers(zones[-1].tenant)
        response = await self.client.get(f"{self.url}/v1/models", headers=headers, timeout=_ADMIN_SECONDS)
        return response.status_code == 200

    async def _is_ready(self) -> bool:
        try:
            if (await self.client.get(f"{self.url}/health", timeout=_HEALTH_SECONDS)).status_code != 200:
                return False
            return not self.has_zones or (await self.report()).config.applied_generation == self._generation
        except httpx.HTTPError:
            return False

    def _declare(self, zones: Sequence[ZoneConfig]) -> None:
        self._generation += 1
        stamped = tuple(zone.model_copy(update={"generation": self._generation}) for zone in zones)
        config = make_config(self._generation, PoolConfig(namespace="bench", name="pool"), stamped)
        new = self._config / f".{CONFIG_KEY}.new"
        new.write_text(dump_config(config))
        new.replace(self._config / CONFIG_KEY)


@contextlib.asynccontextmanager
async def watched(engines: Iterable[Engine]) -> AsyncIterator[None]:
    """Cancel the body as soon as one of the engines exits.

    Raises:
        EngineError: an engine has exited; this error replaces an error of the body.
    """
    watched_engines = list(engines)
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_watch(watched_engines))
            yield
            watching.cancel()
    except ExceptionGroup as errors:
        # When an engine crashes, its requests fail a moment before its process has exited.
        await asyncio.sleep(_WATCH_SECONDS)
        for engine in watched_engines:
            engine.check_running()
        raise errors.exceptions[0] from None
    for engine in watched_engines:
        engine.check_running()


async def _watch(engines: Sequence[Engine]) -> None:
    while True:
        for engine in engines:
            engine.check_running()
        await asyncio.sleep(_WATCH_SECONDS)


def last_error(log: str) -> str:
    """Returns the last line of a log that names an error and its cause; "" if no line does."""
    lines = (line.strip() for line in reversed(log.splitlines()))
    return next((line for line in lines if _ERROR.search(line) and not _NO_CAUSE.search(line)), "")


def _flags(spec: EngineSpec, shape: Shape, port: int, *, dummy: bool) -> list[str]:
    """Returns the flags that stock and zones engines have in common."""
    flags = [
        "--served-model-name", MODEL,
        "--host", "127.0.0.1",
        "--port", str(port),
        "--max-model-len", str(shape.longest),
        "--max-num-seqs", str(shape.seats),
        "--block-size", str(shape.block_tokens),
        "--num-gpu-blocks-override", str(shape.blocks),
        "--enable-prompt-tokens-details",
        "--async-scheduling",
    ]  # fmt: skip
    flags += ["--load-format", "dummy"] if dummy else []
    flags += ["--enforce-eager"] if spec.eager else []
    if not shape.on_gpu:
        return [*flags, "--dtype", "float32"]
    cache_bytes = str(shape.cache_bytes + _SPARE_CACHE_BYTES)
    return [*flags, "--gpu-memory-utilization", _HALF_A_CARD, "--kv-cache-memory-bytes", cache_bytes]


def _key(tenant: str) -> str:
    return f"key-of-{tenant}"


def _environment(shape: Shape, *, eager: bool) -> dict[str, str]:
    # With PYTHONFAULTHANDLER, an engine that hangs logs its stacks when it is aborted.
    common = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONFAULTHANDLER": "1"}
    # The benches read every counter of zones engines.
    common |= {"TENANTZONE_METRICS_LEVEL": "full"}
    if shape.on_gpu:
        return common
    # Eager engines do not compile the sampler either, because that takes longer than the whole computation on a CPU.
    common |= {"TORCHDYNAMO_DISABLE": "1"} if eager else {}
    return {
        **common,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # Compute with one thread, because two engines, the load and running tests share the cores.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        # Run the worker in the engine core's process, which cuts the start of an engine by a third.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
