"""A real vLLM engine with zones, in its own process, reached over HTTP."""

import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import openai
import psutil

from hack.controlplane.server import Server
from hack.demo.models import tiny_model
from hack.ports import free_address
from tenantzone_contract.keys.salt import SALT_KEY_FILE, new_salt_key, salt_key_id
from tenantzone_contract.reports.report import (
    HEALTH_PATH,
    METRICS_PATH,
    REPORT_PATH,
    EngineReport,
    SaltKeyStatus,
    parse_report,
)
from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tests.processes import descendants

API_PORT = 8000
ADMIN_PORT = 9464
START_SECONDS = 600
_STACKS_LINES = 300
FRONTEND_DELAY_SECONDS = 0.2
"""The frontend checks by its own clock, at most ten times a second."""


class RealEngine:
    """A vLLM with zones, as a pod would run it: folders of config, keys and salt key, an API port and an admin port."""

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        self.log = folder / "engine.log"
        self.config_folder = folder / "config"
        self.keys_folder = folder / "keys"
        self.salt_folder = folder / "salt"
        self.journal_folder = folder / "journal"
        self.record_folder = folder / "recorded"
        self.config_folder.mkdir()
        self.keys_folder.mkdir()
        self.salt_folder.mkdir()
        self.salt_key = b""
        self.give_salt_key(new_salt_key())
        self.pid = 0
        self._generations = itertools.count(1)
        self.cached_tokens_before_any_config: list[int] = []

    @contextmanager
    def stopped_core(self) -> Iterator[None]:
        """Stops the engine core: all requests sent meanwhile have arrived when its next step begins."""
        (core,) = (each for each, line in descendants(self.pid, "cmdline") if "EngineCore" in " ".join(line))
        core.suspend()
        try:
            yield
        finally:
            core.resume()

    @property
    def config_file(self) -> Path:
        return self.config_folder / "config.json"

    def client(self, tenant: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"http://{self.address}:{API_PORT}/v1", api_key=f"key-of-{tenant}", max_retries=0)

    def add_keys(self, *tenants: str) -> None:
        """Gives tenants keys that look old: the frontend waits for further writes to a new file."""
        for tenant in tenants:
            unfinished = self.keys_folder / f".{tenant}"
            unfinished.write_text(f"key-of-{tenant}\n")
            os.utime(unfinished, (0, 0))
            unfinished.rename(self.keys_folder / tenant)

    def renew_salt_key(self) -> None:
        """Replaces the salt key, and waits until the engine and its frontend have it."""
        self.give_salt_key(new_salt_key())
        status = SaltKeyStatus(id=salt_key_id(self.salt_key))
        self.wait(lambda: self.report().salt_key == status, "the engine has the new salt key")
        time.sleep(FRONTEND_DELAY_SECONDS)

    def give_salt_key(self, key: bytes) -> None:
        """Writes a salt key."""
        self.salt_key = key
        unfinished = self.salt_folder / "unfinished"
        unfinished.write_text(self.salt_key.hex())
        unfinished.rename(self.salt_folder / SALT_KEY_FILE)

    def admin(self, path: str) -> httpx.Response:
        return httpx.get(f"http://{self.address}:{ADMIN_PORT}{path}", timeout=60)

    def report(self) -> EngineReport:
        """A report made after the call."""
        now = time.time()
        while True:
            report = parse_report(self.admin(REPORT_PATH).content)
            if report.published_unix_time >= now:
                return report
            time.sleep(0.01)

    def zone(self, tenant: str):
        return next(zone for zone in self.report().zones if zone.tenant == tenant)

    def metrics(self) -> str:
        return self.admin(METRICS_PATH).text

    def config(self, *zones: ZoneConfig) -> RuntimeConfig:
        return make_config(next(self._generations), PoolConfig(namespace="test", name="pool"), zones)

    def write(self, text: str) -> None:
        """Replaces the config file as a whole."""
        unfinished = self.config_folder / "unfinished"
        unfinished.write_text(text)
        unfinished.rename(self.config_file)

    def declare(self, *zones: ZoneConfig) -> RuntimeConfig:
        """Writes a config, and waits until the engine and its frontend have it."""
        config = self.config(*zones)
        self.write(dump_config(config))
        self.wait(lambda: self.report().config.applied_hash == config.hash, "the engine applied the config")
        time.sleep(FRONTEND_DELAY_SECONDS)
        return config

    @staticmethod
    def wait(condition, what: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.02)


class StartingEngine:
    """An engine that starts while other tests run.

    Args:
        options: vLLM's options, in addition to those of every engine here; made from the engine's address and its
            folder.
        partner: another engine of the same pool, whose model and salt key this one shares at first; None: it has its
            own.
        make_model: writes a model into a folder.
        variables: further environment variables.
    """

    def __init__(
        self,
        options: Callable[[str, Path], list[str]],
        partner: "StartingEngine | None" = None,
        make_model: Callable[[Path], None] = tiny_model.make,
        **variables: str,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tenantzone-engine-")
        folder = Path(self._folder.name)
        self.engine = RealEngine(folder, free_address(API_PORT, ADMIN_PORT))
        self._model = folder / "tiny" if partner is None else partner._model
        if partner is None:
            make_model(self._model)
        else:
            self.engine.give_salt_key(partner.engine.salt_key)
        self._lock = (folder / "lock").open("w")
        self._options = options(self.engine.address, folder)
        self._variables = variables
        self._start()

    def _start(self) -> None:
        self.server = Server(
            [*_command(self._model, self.engine), *self._options],
            log=self.engine.log,
            keep_open=self._lock.fileno(),
            env={
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "OMP_NUM_THREADS": "1",
                # The worker shares the core's process, as vLLM has it on one GPU. On CPUs it has its own process by
                # default, which takes as long to start as the others, and polls for work while it has none.
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "PYTHONFAULTHANDLER": "1",
                # It takes seconds at each start; one engine of the tests has it on.
                "TENANTZONE_WARM_UP": "0",
                "TENANTZONE_METRICS_LEVEL": "full",
                **self._variables,
            },
        )
        self.engine.pid = self.server.pid

    def kill(self) -> None:
        """Kills the engine with all of its processes."""
        for process in [*psutil.Process(self.server.pid).children(recursive=True), psutil.Process(self.server.pid)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.server.stop()

    def restart(self) -> RealEngine:
        """Kills the engine, and starts it again with the same folders."""
        self.kill()
        self._start()
        return self.await_health()

    def await_health(self) -> RealEngine:
        try:
            self.engine.wait(self._is_healthy, "the engine is healthy", START_SECONDS)
        except AssertionError as error:
            self._abort()
            raise AssertionError(f"{error}; {self.server.log_tail(_STACKS_LINES)}") from None
        return self.engine

    def _abort(self) -> None:
        """Makes each process log its threads' stacks and end."""
        processes = psutil.Process(self.server.pid).children(recursive=True)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGABRT)
        psutil.wait_procs(processes, timeout=60)

    def _is_healthy(self) -> bool:
        assert self.server.is_running, self.server.log_tail()
        try:
            front = httpx.get(f"http://{self.engine.address}:{API_PORT}/health", timeout=60).status_code
            return front == 200 and self.engine.admin(HEALTH_PATH).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        self.server.stop()
        self._lock.close()
        self._folder.cleanup()


def _command(model: Path, engine: RealEngine) -> list[str]:
    return [
        sys.executable, "-m", "tenantzone_runtime", "serve", str(model),
        "--served-model-name", "tiny", "--host", engine.address, "--port", str(API_PORT),
        "--block-size", "32", "--dtype", "float32", "--enforce-eager", "--enable-prompt-tokens-details",
        "--zones-config", str(engine.config_folder), "--tenant-keys", str(engine.keys_folder),
        "--salt-key", str(engine.salt_folder), "--journal", str(engine.journal_folder),
        "--record", str(engine.record_folder),
        "--admin-host", engine.address, "--admin-port", str(ADMIN_PORT), "--admin-open",
    ]  # fmt: skip
