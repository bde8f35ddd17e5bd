"""Tenants on one real engine with too few blocks for both: with zones and, earlier in the same engine, without."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tenantzone_contract.zone_config.zone_terms import Idle
from tests.engine.features import contention
from tests.engine.features.asking import generated, zone
from tests.engine.features.contention import LENGTHS, PROMPTS


@pytest.mark.shows("one tenant's request that does not fit")
def test_a_tenant_whose_request_does_not_fit_delays_no_other(engine, stock):
    engine.declare(zone("acme"), zone("burst"))
    passed, small = contention.small_one_passes_one_that_does_not_fit(engine)
    assert (stock.small_one_passed, passed) == (False, True)
    assert small == stock.alone["small"]


@pytest.mark.shows("one tenant that grows", "preemption and resume")
def test_a_tenant_that_grows_preempts_none_within_its_entitlement(engine, stock):
    engine.declare(zone("acme", reserved=30, idle=Idle(after_seconds=0)), zone("burst"))
    before = engine.zone("burst").preemptions
    hog, calm = contention.both_grow(engine)
    assert len(calm.answer()) == LENGTHS["calm"]
    assert engine.zone("acme").preemptions == 0
    assert len(hog.answer()) == LENGTHS["hog"], "it was preempted, and resumed"
    assert engine.zone("burst").preemptions > before
    assert stock.preempted_calm_one


@pytest.mark.shows("chunked prefill")
def test_chunks_of_long_prompts_and_tokens_of_short_ones_share_steps(engine, stock):
    engine.declare(zone("acme"), zone("burst"))
    tenants = {"small": "acme", "hog": "burst", "calm": "acme"}
    clients = {tenant: engine.client(tenant) for tenant in ("acme", "burst")}
    with ThreadPoolExecutor() as at_once:
        asked = {
            name: at_once.submit(generated, clients[tenant], PROMPTS[name], 20) for name, tenant in tenants.items()
        }
    assert {name: each.result() for name, each in asked.items()} == {name: stock.alone[name][:20] for name in tenants}
