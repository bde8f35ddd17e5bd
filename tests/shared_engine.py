"""One real engine for all tests that need one. It takes more than a minute to start, so it starts while other tests
run.

A pytest plugin: a test with the mark and the fixture ``engine`` gets it, in any folder.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.real_engine import RealEngine, StartingEngine


def _options(address: str, folder: Path) -> list[str]:
    return ["--num-gpu-blocks-override", "256", "--max-model-len", "4096"]


_STARTING = pytest.StashKey["StartingEngine"]()


def _needs_engine(item: pytest.Item) -> bool:
    return item.get_closest_marker("engine") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves tests that need the engine to the end."""
    items.sort(key=_needs_engine)


def _starting(config: pytest.Config) -> "StartingEngine":
    if _STARTING not in config.stash:
        # It needs vLLM's clients, which most tests do not.
        from tests.engine.real_engine import StartingEngine

        config.stash[_STARTING] = StartingEngine(_options)
    return config.stash[_STARTING]


def pytest_collection_finish(session: pytest.Session) -> None:
    if runs_here(session) and any(map(_needs_engine, session.items)):
        _starting(session.config)


def runs_here(session: pytest.Session) -> bool:
    """Whether this process runs every test that it collected: it is not one of several, and does not only list them."""
    return not session.config.option.collectonly and not hasattr(session.config, "workerinput")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STARTING in config.stash:
        config.stash[_STARTING].stop()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> "RealEngine":
    engine = _starting(request.config).await_health()
    prompt = "No zone has been declared yet. " * 20
    for _ in range(2):
        answer = engine.client("unknown").completions.create(model="tiny", prompt=prompt, max_tokens=1)
        engine.cached_tokens_before_any_config.append(answer.usage.prompt_tokens_details.cached_tokens)
    engine.add_keys("acme", "burst", "stranger")
    return engine
