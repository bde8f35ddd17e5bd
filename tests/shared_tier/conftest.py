"""Managers as processes, for all tests of the shared tier in this process."""

from collections.abc import Iterator

import pytest

from hack.harness.cache_manager import CacheManagerProcess
from tests.shared_tier.engines import BRIEF, LONG, POOLS, engines_of, group


def _started(folder, timing) -> CacheManagerProcess:
    made = CacheManagerProcess(folder, POOLS, arguments=timing)
    made.start()
    return made


@pytest.fixture(scope="session")
def manager(tmp_path_factory) -> Iterator[CacheManagerProcess]:
    made = _started(tmp_path_factory.mktemp("manager"), LONG)
    made.share(group("chat"), group("other"))
    yield made
    made.kill()


@pytest.fixture(scope="session")
def brief(tmp_path_factory) -> Iterator[CacheManagerProcess]:
    """A manager whose readers have half a second."""
    made = _started(tmp_path_factory.mktemp("brief"), BRIEF)
    made.share(group("chat"))
    yield made
    made.kill()


@pytest.fixture
def own_manager(tmp_path) -> Iterator[CacheManagerProcess]:
    """A manager to which the test may do anything."""
    made = _started(tmp_path / "manager", LONG)
    yield made
    made.kill()


@pytest.fixture
def shared(own_manager) -> CacheManagerProcess:
    """Such a manager with a group of the pool ``chat``."""
    own_manager.share(group("chat"))
    return own_manager


@pytest.fixture
def engine(manager):
    """Makes engines of the pool ``chat``."""
    with engines_of(manager.url) as make:
        yield make
