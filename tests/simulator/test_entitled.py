"""Zones that claim their reservations all at once: the arbiter, with the simulated engine."""

import pytest

from bench.simulator.checks import Checks
from bench.simulator.engine import Engine, Model
from bench.simulator.request import BLOCK_TOKENS, Request
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config

OWNERS = ("ada", "bea", "cleo", "dora")


@pytest.fixture(params=[20, 16], ids=["nothing is free", "one owner's blocks are free"])
def engine(request):
    """An engine of 40 blocks; each owner reserves 10 and lends them to ``borrower``, whose requests have 2 each."""
    engine = Engine(Model(capacity=40), 0.0, Checks())
    weights = (100, 1, 1, 1)
    zones = [
        ZoneConfig(name=name, tenant=name, generation=1, reserved=10, weight=weight)
        for name, weight in zip(OWNERS, weights, strict=True)
    ]
    zones.append(ZoneConfig(name="borrower", tenant="borrower", generation=1))
    engine.apply(make_config(1, PoolConfig(namespace="tests", name="pool"), tuple(zones)))
    for number in range(request.param):
        submit(engine, number, "borrower", 2)
    step(engine)
    assert engine.ledger.zones["borrower"].in_use == 2 * request.param
    return engine


def submit(engine, number, tenant, blocks):
    """Submits a request of `blocks` blocks, with room for its answer in the last."""
    prefix = tuple(number * 100 + index for index in range(blocks - 1))
    request = Request(number, tenant, engine.now, (blocks - 1) * BLOCK_TOKENS + 1, 500, prefix)
    assert engine.submit(request) is None


def step(engine):
    engine.schedule()
    engine.now += engine.compute()


def test_all_owners_that_come_at_once_have_their_reservations_in_the_same_step(engine):
    for number, owner in enumerate(OWNERS):
        submit(engine, 100 + number, owner, 8)
    step(engine)
    assert [engine.ledger.zones[owner].in_use for owner in OWNERS] == [8, 8, 8, 8]
    assert engine.ledger.zones["borrower"].in_use == 8


def test_what_is_kept_for_an_owner_goes_to_no_other_owners_second_request(engine):
    """Its weight lets all of its requests be asked first."""
    for number, owner in enumerate(OWNERS):
        submit(engine, 100 + number, owner, 4)
    for number in range(5):
        submit(engine, 200 + number, "ada", 1)
    step(engine)
    assert all(engine.ledger.zones[owner].in_use >= 4 for owner in OWNERS)
