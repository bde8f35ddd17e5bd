"""A request that is denied headroom: the arbiter, with the simulated engine."""

import pytest

from bench.simulator.checks import Checks
from bench.simulator.engine import Engine, Model
from bench.simulator.request import BLOCK_TOKENS, Request
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config


@pytest.fixture
def engine():
    """An engine of 10 blocks: ``busy`` uses 4 and caches 3, 3 are free, and 4 must stay free or cached."""
    engine = Engine(Model(capacity=10, headroom=4), 0.0, Checks())
    zones = tuple(ZoneConfig(name=name, tenant=name, generation=1) for name in ("busy", "waiting"))
    engine.apply(make_config(1, PoolConfig(namespace="tests", name="pool"), zones))
    submit(engine, 0, "busy", 3, 1)
    while not engine.is_idle:
        step(engine)
    submit(engine, 1, "busy", 3, 100)
    step(engine)
    return engine


def submit(engine, number, tenant, blocks, answer):
    """Submits a request of `blocks` full blocks and a token more."""
    prefix = tuple(number * 100 + index for index in range(blocks))
    request = Request(number, tenant, engine.now, blocks * BLOCK_TOKENS + 1, answer, prefix)
    assert engine.submit(request) is None
    return request


def step(engine):
    engine.schedule()
    engine.now += engine.compute()


def test_no_cache_goes_for_a_request_that_must_wait_for_headroom(engine):
    busy, waiting = engine.ledger.zones.values()
    assert (busy.in_use, len(busy.cached), engine.free_blocks) == (4, 3, 3)
    submit(engine, 2, "waiting", 4, 1)
    step(engine)
    assert waiting.in_use == 0
    assert len(busy.cached) == 3


def test_a_request_that_waits_for_headroom_is_not_looked_at_before_it_is_there(engine):
    waiting = engine.ledger.zones["waiting"]
    submit(engine, 2, "waiting", 3, 1)
    step(engine)
    ticket = waiting.backoff_ticket
    assert ticket
    step(engine)
    assert waiting.backoff_ticket == ticket
    while waiting.backoff_ticket:
        step(engine)
    assert [request.zone for request in engine.running] == [waiting]
