"""Fixtures shared by the tests of the engine's adapter."""

import pytest

from tests.engine.clock import Clock
from tests.shared_engine import runs_here


@pytest.fixture
def clock():
    """A clock that advances only when the test says so."""
    clock = Clock()
    with clock.in_force():
        yield clock


@pytest.fixture(scope="session")
def cache_manager(request, tmp_path_factory):
    """The KV-cache manager of the engines with tiers."""
    from tests.engine.tiered_engines import start_manager

    assert runs_here(request.session) or hasattr(request.config, "workerinput")
    manager = start_manager(tmp_path_factory.mktemp("manager"))
    yield manager
    manager.kill()


@pytest.fixture(scope="session")
def tiered_starting(cache_manager, tmp_path_factory):
    """Two engines of one pool with tiers; the first has a disk."""
    from tests.engine.tiered_engines import start_pair

    pair = start_pair(cache_manager, tmp_path_factory.mktemp("token") / "token")
    yield pair
    for each in pair:
        each.stop()


@pytest.fixture(scope="session")
def tiered(tiered_starting):
    """The first of the two engines with tiers."""
    return _declared(tiered_starting[0].await_health())


@pytest.fixture(scope="session")
def tiered_pair(tiered, tiered_starting):
    """Both engines with tiers."""
    return tiered, _declared(tiered_starting[1].await_health())


def _declared(engine):
    from tests.engine.tiered_engines import TENANTS, ZONES

    engine.add_keys(*TENANTS)
    engine.declare(*ZONES)
    return engine
