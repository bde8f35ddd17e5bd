"""What tests of the engine's adapter share."""

import pytest

from tests.engine.clock import Clock


@pytest.fixture
def clock():
    """Time passes only when the test says so."""
    clock = Clock()
    with clock.in_force():
        yield clock
