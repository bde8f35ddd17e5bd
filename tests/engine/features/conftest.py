"""A second real engine: small, and with the flags on of whatever users of stock vLLM have."""

import json
from pathlib import Path

import pytest

from tests.engine.features.adapters import make_adapter
from tests.engine.real_engine import RealEngine, StartingEngine

USABLE_BLOCKS = 63
BLOCK_TOKENS = 32
EVENTS_PORT = 5557
STEP_TOKENS = 64
"""Tokens of one step: any longer prompt is prefilled in chunks."""


def _options(address: str, folder: Path) -> list[str]:
    for number, tenant in enumerate(("acme", "burst")):
        make_adapter(folder / f"{tenant}-adapter", seed=number)
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://{address}:{EVENTS_PORT}"}
    return [
        "--num-gpu-blocks-override", str(USABLE_BLOCKS + 1), "--max-model-len", "2016",
        "--max-num-batched-tokens", str(STEP_TOKENS), "--max-num-seqs", "8",
        "--scheduling-policy", "priority", "--kv-events-config", json.dumps(events),
        "--enable-lora", "--max-loras", "2", "--max-lora-rank", "8",
        "--lora-modules", *(f"{tenant}-adapter={folder}/{tenant}-adapter" for tenant in ("acme", "burst")),
    ]  # fmt: skip


_STARTING = pytest.StashKey[StartingEngine]()


def _needs_engine(item: pytest.Item) -> bool:
    return "engine_before_any_zone" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_needs_engine)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(map(_needs_engine, session.items)):
        session.config.stash[_STARTING] = StartingEngine(_options)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STARTING in config.stash:
        config.stash[_STARTING].stop()


@pytest.fixture(scope="session")
def engine_before_any_zone(request: pytest.FixtureRequest) -> RealEngine:
    return request.config.stash[_STARTING].await_health()
