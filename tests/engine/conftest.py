"""One real vLLM engine for all HTTP tests. It needs more than a minute to start, so it does beside the other tests."""

import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

import httpx
import openai
import pytest

from controlplane.server import Server
from demo import tiny_model
from demo.engines import free_address
from tenantzone_contract.config import PoolConfig, RuntimeConfig, ZoneConfig, dump_config, make_config
from tenantzone_contract.report import HEALTH_PATH, METRICS_PATH, REPORT_PATH, EngineReport, parse_report

API_PORT = 8000
ADMIN_PORT = 9464
START_SECONDS = 600


class RealEngine:
    """A vLLM with zones, as a pod would run it: a config folder, a keys folder, an API port and an admin port."""

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        self.config_folder = folder / "config"
        self.keys_folder = folder / "keys"
        self.journal_folder = folder / "journal"
        self.config_folder.mkdir()
        self.keys_folder.mkdir()
        self._generations = itertools.count(1)
        self.cached_tokens_before_any_config: list[int] = []

    @property
    def config_file(self) -> Path:
        return self.config_folder / "config.json"

    def client(self, tenant: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"http://{self.address}:{API_PORT}/v1", api_key=f"key-of-{tenant}", max_retries=0)

    def add_keys(self, *tenants: str) -> None:
        for tenant in tenants:
            (self.keys_folder / tenant).write_text(f"key-of-{tenant}\n")

    def admin(self, path: str) -> httpx.Response:
        return httpx.get(f"http://{self.address}:{ADMIN_PORT}{path}")

    def report(self) -> EngineReport:
        """A report made after this was called."""
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
        """Put a config file in place, whole."""
        unfinished = self.config_folder / "unfinished"
        unfinished.write_text(text)
        unfinished.rename(self.config_file)

    def declare(self, *zones: ZoneConfig) -> RuntimeConfig:
        """Write a config, and wait until the engine and its front door have it."""
        config = self.config(*zones)
        self.write(dump_config(config))
        self.wait(lambda: self.report().config.applied_hash == config.hash, "the engine applied the config")
        door_delay = 0.2  # The front door looks on its own, no more often than each tenth of a second.
        time.sleep(door_delay)
        return config

    @staticmethod
    def wait(condition, what: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.02)


class StartingEngine:
    """An engine that starts while other tests run."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tenantzone-engine-")
        folder = Path(self._folder.name)
        tiny_model.make(folder / "tiny")
        self.engine = RealEngine(folder, free_address(API_PORT, ADMIN_PORT))
        self._lock = (folder / "lock").open("w")
        self.server = Server(
            _command(folder / "tiny", self.engine),
            log=folder / "engine.log",
            keep_open=self._lock.fileno(),
            env={
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "OMP_NUM_THREADS": "1",
            },
        )

    def stop(self) -> None:
        self.server.stop()
        self._lock.close()
        self._folder.cleanup()


def _command(model: Path, engine: RealEngine) -> list[str]:
    return [
        sys.executable, "-m", "tenantzone_runtime", "serve", str(model),
        "--served-model-name", "tiny", "--host", engine.address, "--port", str(API_PORT),
        "--num-gpu-blocks-override", "256", "--block-size", "32", "--max-model-len", "4096",
        "--dtype", "float32", "--enforce-eager", "--enable-prompt-tokens-details",
        "--zones-config", str(engine.config_folder), "--tenant-keys", str(engine.keys_folder),
        "--journal", str(engine.journal_folder), "--admin-host", engine.address, "--admin-port", str(ADMIN_PORT),
    ]  # fmt: skip


_STARTING = pytest.StashKey[StartingEngine]()


def _needs_engine(item: pytest.Item) -> bool:
    return item.get_closest_marker("engine") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the engine go last."""
    items.sort(key=_needs_engine)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(map(_needs_engine, session.items)):
        session.config.stash[_STARTING] = StartingEngine()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STARTING in config.stash:
        config.stash[_STARTING].stop()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> RealEngine:
    starting = request.config.stash[_STARTING]
    engine = starting.engine
    _await_health(engine, starting.server)
    prompt = "Nobody has declared a zone yet. " * 20
    for _ in range(2):
        answer = engine.client("nobody").completions.create(model="tiny", prompt=prompt, max_tokens=1)
        engine.cached_tokens_before_any_config.append(answer.usage.prompt_tokens_details.cached_tokens)
    engine.add_keys("acme", "burst", "stranger")
    return engine


def _await_health(engine: RealEngine, server: Server) -> None:
    def healthy() -> bool:
        assert server.is_running, server.log_tail()
        try:
            front = httpx.get(f"http://{engine.address}:{API_PORT}/health").status_code
            return front == 200 and engine.admin(HEALTH_PATH).status_code == 200
        except httpx.TransportError:
            return False

    engine.wait(healthy, "the engine is healthy", START_SECONDS)
