from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from hack.ports import free_ports
from tests.console.browsing import chromium
from tests.console.served import Block, Engine, ServedConsole
from tests.operator.conftest import operator_kubeconfig

__all__ = ["operator_kubeconfig"]


# Playwright's loop runs for as long as its fixture lives, and tests of other modules have their own loops.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def console() -> Iterator[ServedConsole]:
    made = ServedConsole()
    with made.running():
        yield made


@pytest.fixture
def engine_of(console: ServedConsole) -> Iterator[Callable[..., Engine]]:
    """Makes an engine of the console's one pool."""
    (port,) = free_ports(1)
    with ExitStack() as stack:

        def make(
            blocks: list[Block], *zones: str, number: int = 0, reported: Mapping[str, Any] | None = None
        ) -> Engine:
            engine = Engine(f"engine-{number}", blocks, (f"127.0.0.{number + 1}", port))
            engine.zones |= reported or {}
            stack.callback(engine.stop)
            console.add_pool(port=port)
            console.add_pod(engine.name, engine.host)
            for name in zones:
                console.add_zone(name)
            return engine

        yield make
