"""A pool and an engine of their own for tests of the zone core."""

import pytest

from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine


@pytest.fixture
def core():
    """A pool of 100 blocks."""
    return Core(100)


@pytest.fixture
def engine(core):
    """It serves requests of that pool."""
    return SmallEngine(core)
