"""What tests of the engine's adapter share."""

import pytest

from tests.engine.clock import Clock
from tests.shared_engine import runs_here


@pytest.fixture
def clock():
    """Time passes only when the test says so."""
    clock = Clock()
    with clock.in_force():
        yield clock


@pytest.fixture(scope="session")
def starting_tiered(request):
    """An engine with tiers, while it starts and to start again; one process has all tests that want it."""
    from tests.engine import tiered_engine
    from tests.engine.real_engine import StartingEngine

    assert runs_here(request.session) or hasattr(request.config, "workerinput")
    starting = StartingEngine(tiered_engine.options)
    yield starting
    starting.stop()


@pytest.fixture(scope="session")
def tiered(starting_tiered):
    """The same, as soon as it serves tenants of `tiered_engine.ZONES`."""
    from tests.engine import tiered_engine

    engine = starting_tiered.await_health()
    engine.add_keys(*tiered_engine.TENANTS)
    engine.declare(*tiered_engine.ZONES)
    return engine
