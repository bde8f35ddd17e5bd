"""Tenants on one real engine that has too few blocks for both: with zones and, before in the same engine, without."""

from concurrent.futures import ThreadPoolExecutor

from tenantzone_contract.config import Idle
from tests.engine.features import contention
from tests.engine.features.asking import Asked, generated, zone
from tests.engine.features.contention import LENGTHS, PROMPTS

QUIET_AT_ONCE = Idle(after_seconds=0)


def test_a_tenant_whose_request_does_not_fit_delays_nobody_else(engine, stock):
    engine.declare(zone("acme"), zone("burst"))
    passed, small = contention.small_one_passes_one_that_does_not_fit(engine)
    assert (stock.small_one_passed, passed) == (False, True)
    assert small == stock.alone["small"]


def test_a_tenant_that_grows_preempts_none_within_its_entitlement(engine, stock):
    engine.declare(zone("acme", reserved=40, idle=QUIET_AT_ONCE), zone("burst"))
    before = engine.zone("burst").preemptions
    huge, calm = contention.two_that_grow(engine)
    assert engine.zone("acme").preemptions == 0
    assert calm == stock.alone["calm"]
    assert huge.answer() == stock.alone["huge"], "it was preempted, and resumed where it was"
    assert engine.zone("burst").preemptions > before
    assert stock.preemptions > 0
    assert not stock.calm_one_was_first


def test_a_request_that_runs_is_preempted_for_an_entitled_tenant_and_resumes_with_the_same_answer(engine, stock):
    engine.declare(zone("acme", reserved=45, idle=QUIET_AT_ONCE), zone("burst"))
    engine.wait(lambda: engine.zone("acme").state == "Idle", "acme is quiet, and lends")
    acme, burst, before = engine.client("acme"), engine.client("burst"), engine.zone("burst").preemptions
    hog = Asked(burst, PROMPTS["hog"], LENGTHS["hog"])
    hog.await_first_token()
    huge = generated(acme, PROMPTS["huge"] + PROMPTS["calm"], 1)
    assert len(huge) == 1
    assert hog.answer() == stock.alone["hog"]
    assert engine.zone("burst").preemptions > before


def test_chunks_of_long_prompts_and_tokens_of_short_ones_share_steps(engine, stock):
    engine.declare(zone("acme"), zone("burst"))
    tenants = {"small": "acme", "hog": "burst", "calm": "acme"}
    clients = {tenant: engine.client(tenant) for tenant in ("acme", "burst")}
    with ThreadPoolExecutor() as at_once:
        asked = {
            name: at_once.submit(generated, clients[tenant], PROMPTS[name], 20) for name, tenant in tenants.items()
        }
    assert {name: each.result() for name, each in asked.items()} == {name: stock.alone[name][:20] for name in tenants}
