"""A scheduler with two tenants, and a grammar that takes too long."""

from collections.abc import Iterator

import pytest

from hack.harness.scheduler import Driver, make_scheduler, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tests.engine.grammars.stand_ins import Slow, rows_of_masks


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config) -> Driver:
    driver = Driver(make_scheduler(config, 100))
    driver.declare(*(ZoneConfig(name=name, tenant=name, generation=1) for name in ("acme", "gold")))
    driver.scheduler.structured_output_manager._grammar_bitmask = rows_of_masks()
    return driver


@pytest.fixture
def slow() -> Iterator[Slow]:
    grammar = Slow(9)
    yield grammar
    grammar.over.set()
