"""A second real engine: small, with every flag that users of stock vLLM turn on."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.features import contention
from tests.engine.features.adapters import make_adapter
from tests.engine.features.asking import BLOCK_TOKENS, STEP_TOKENS, USABLE_BLOCKS
from tests.engine.features.kv_events import EVENTS_PORT
from tests.engine.features.serving import ROOT_PATH, raising_template
from tests.engine.features.spans import SpanReceiver
from tests.engine.real_engine import RealEngine, StartingEngine
from tests.shared_engine import runs_here


def _options(address: str, folder: Path) -> list[str]:
    for number, tenant in enumerate(("acme", "burst")):
        make_adapter(folder / f"{tenant}-adapter", seed=number)
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://{address}:{EVENTS_PORT}"}
    return [
        "--num-gpu-blocks-override", str(USABLE_BLOCKS + 1), "--max-model-len", str(USABLE_BLOCKS * BLOCK_TOKENS),
        "--max-num-batched-tokens", str(STEP_TOKENS), "--max-num-seqs", "8",
        "--scheduling-policy", "priority", "--kv-events-config", json.dumps(events),
        "--enable-lora", "--max-loras", "2", "--max-lora-rank", "8",
        "--lora-modules", *(f"{tenant}-adapter={folder}/{tenant}-adapter" for tenant in ("acme", "burst")),
        "--root-path", ROOT_PATH, "--chat-template", str(raising_template(folder / "template.jinja")),
        "--enable-auto-tool-choice", "--tool-call-parser", "poolside_v1",
        "--enable-log-requests", "--log-error-stack", "--log-format", "json",
    ]  # fmt: skip


_STARTING = pytest.StashKey[StartingEngine]()
_SPANS = pytest.StashKey[SpanReceiver]()


def _needs_engine(item: pytest.Item) -> bool:
    return "stock" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves tests that need the engine to the end, so that they can be left out without one."""
    for item in filter(_needs_engine, items):
        item.add_marker(pytest.mark.flagged_engine)
    items.sort(key=_needs_engine)


def _starting(config: pytest.Config) -> StartingEngine:
    if _STARTING not in config.stash:
        spans = config.stash[_SPANS] = SpanReceiver()
        config.stash[_STARTING] = StartingEngine(
            lambda address, folder: [*_options(address, folder), "--otlp-traces-endpoint", spans.endpoint],
            TENANTZONE_OPEN_ROUTES="/metrics",
            POD_NAME="engine-0",
            TENANTZONE_WARM_UP="1",
            OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
            OTEL_BSP_SCHEDULE_DELAY="100",  # milliseconds between two exports
        )
    return config.stash[_STARTING]


def pytest_collection_finish(session: pytest.Session) -> None:
    if runs_here(session) and any(map(_needs_engine, session.items)):
        _starting(session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STARTING in config.stash:
        config.stash[_STARTING].stop()
        config.stash[_SPANS].stop()


@pytest.fixture(scope="session")
def spans(request: pytest.FixtureRequest) -> SpanReceiver:
    """Spans that the engine exports."""
    _starting(request.config)
    return request.config.stash[_SPANS]


@dataclass(frozen=True)
class Stock:
    """The behaviour of the same engine before any zone was declared, which is that of stock vLLM."""

    engine: RealEngine
    alone: dict[str, list[int]]
    small_one_passed: bool
    preempted_calm_one: bool


@pytest.fixture(scope="session")
def stock(request: pytest.FixtureRequest) -> Stock:
    engine = _starting(request.config).await_health()
    alone = contention.alone(engine)
    small_one_passed, _ = contention.small_one_passes_one_that_does_not_fit(engine)
    return Stock(engine, alone, small_one_passed, contention.calm_one_is_preempted(engine))


@pytest.fixture(scope="session")
def engine(stock: Stock) -> RealEngine:
    stock.engine.add_keys("acme", "burst")
    return stock.engine
