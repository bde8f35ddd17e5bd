"""Housekeeping with vLLM's scheduler; the model's tokens are made up."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tests.housekeeping.driven import CAPACITY
from tests.housekeeping.engine_port import EnginePort


class DrivenScheduler:
    """vLLM's scheduler, driven by the port's tests."""

    def __init__(self, driver):
        self._driver = driver
        self.served = driver.served
        self.step = driver.step

    def send(self, tenant, blocks, *, steps=1):
        self._driver.send(tenant, prompt(blocks), max_tokens=steps)

    @property
    def is_idle(self):
        return not self._driver.scheduler.has_unfinished_requests()


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=4096)


class TestScheduler(EnginePort):
    @pytest.fixture
    def engine(self, config):
        return DrivenScheduler(Driver(make_scheduler(config, CAPACITY)))
