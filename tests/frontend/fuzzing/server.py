"""The fuzzed engine: a real one on the CPU with zones, whose frontend is measured."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import QueueBounds
from tests.engine.real_engine import API_PORT, RealEngine, StartingEngine
from tests.frontend.fuzzing.drawn import KEYS, ZONES
from tests.frontend.fuzzing.measured import STATE_PATH

_ROOT = Path(__file__).parents[3]
_PLUGIN = "[vllm.general_plugins]\nmeasured_frontend = tests.frontend.fuzzing.measured:register\n"


@dataclass(frozen=True, slots=True)
class Held:
    """The resources of the server's processes."""

    rss_bytes: int
    files: int
    threads: int
    tasks: int
    requests: int
    """Requests in the frontend, and in the engine."""
    body_bytes: int
    """Bytes of request bodies that the frontend holds, by its own count."""


class Fuzzed:
    """The engine to fuzz.

    Args:
        engine: the started engine.
    """

    def __init__(self, engine: RealEngine) -> None:
        self.engine = engine
        self.host, self.port = engine.address, API_PORT
        self.url = f"http://{self.host}:{self.port}"
        self._read = 0

    def description(self) -> dict[str, Any]:
        """The server's own OpenAPI description."""
        described: dict[str, Any] = self._get("/openapi.json").json()
        return described

    def state(self, *, reset: bool = False) -> dict[str, Any]:
        """The measured frontend's state; see `MeasuredMiddleware`.

        Args:
            reset: whether the measurement begins anew.
        """
        state: dict[str, Any] = self._get(STATE_PATH + ("?reset" if reset else "")).json()
        return state

    def held(self) -> Held:
        """The resources that the processes hold now."""
        server = psutil.Process(self.engine.pid)
        processes = [server, *server.children(recursive=True)]
        state = self.state()
        return Held(
            rss_bytes=sum(each.memory_info().rss for each in processes),
            files=sum(each.num_fds() for each in processes),
            threads=sum(each.num_threads() for each in processes),
            tasks=state["tasks"],
            requests=state["requests_of_the_frontend"] + state["requests_of_the_engine"],
            body_bytes=state["bytes_of_the_frontend"],
        )

    def new_tracebacks(self) -> list[str]:
        """The tracebacks that the server has printed since the last call."""
        with self.engine.log.open(errors="replace") as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        return tracebacks_in(text)

    def _get(self, path: str) -> httpx.Response:
        answer = httpx.get(self.url + path, headers=dict(KEYS["acme"]), timeout=60)
        answer.raise_for_status()
        return answer


def tracebacks_in(text: str) -> list[str]:
    """Each traceback in a log, with the surrounding lines that explain it."""
    lines = text.splitlines()
    begins = [place for place, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    return ["\n".join(lines[max(0, place - 1) : place + _LINES]) for place in begins]


_LINES = 200


@contextmanager
def fuzzed_engine() -> Iterator[Fuzzed]:
    """Starts the engine with its zones.

    Raises:
        AssertionError: it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
        starting = StartingEngine(_options, PYTHONPATH=_with_plugin(Path(folder)))
        try:
            engine = starting.await_health()
            engine.add_keys(*ZONES, "stranger")
            engine.declare(
                ZoneConfig(name="acme", tenant="acme", generation=1, reserved="40%"),
                ZoneConfig(name="burst", tenant="burst", generation=1),
                ZoneConfig(name="tight", tenant="tight", generation=1, limit=8, queue=QueueBounds(requests=2)),
            )
            yield Fuzzed(engine)
        finally:
            starting.stop()


def _options(address: str, folder: Path) -> list[str]:
    return [
        "--num-gpu-blocks-override", "256", "--max-model-len", "4096",
        "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
    ]  # fmt: skip


def _with_plugin(folder: Path) -> str:
    """A search path on which vLLM finds the measuring plugin as if it were installed."""
    installed = folder / "measured_frontend-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: measured-frontend\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(_PLUGIN)
    ours = (folder, _ROOT, _ROOT / "operator", _ROOT / "runtime")
    return os.pathsep.join([*map(str, ours), *filter(None, [os.environ.get("PYTHONPATH")])])
