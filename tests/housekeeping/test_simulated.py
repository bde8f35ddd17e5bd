"""Housekeeping with an engine that is not vLLM."""

import pytest

from tests.housekeeping.driven import CAPACITY
from tests.housekeeping.engine_port import EnginePort
from tests.housekeeping.simulated import SimulatedEngine


class TestSimulatedEngine(EnginePort):
    @pytest.fixture
    def engine(self) -> SimulatedEngine:
        return SimulatedEngine(CAPACITY)
