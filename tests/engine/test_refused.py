"""A request that is refused is never served, whatever else it asks for, and its client hears so at once."""

from concurrent.futures import Future

import pytest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, AnyToken, Driver, compiled, make_scheduler, prompt, vllm_config
from tenantzone_contract.config import ZoneConfig

CAPACITY = 100
LIMIT = 10


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config):
    driver = Driver(make_scheduler(config, CAPACITY))
    driver.declare(zone("acme", limit=LIMIT), zone("gold", reserved=50))
    return driver


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


refused = pytest.mark.parametrize(
    ("tenant", "blocks"),
    [
        pytest.param(None, 3, id="past the door"),
        pytest.param("stranger", 3, id="of a tenant without a zone"),
        pytest.param("acme", LIMIT, id="too long for its zone's limit"),
    ],
)


def assert_was_not_served(driver, request):
    assert driver.finished[request.request_id] == "error"
    assert request.num_computed_tokens == 0
    assert list(request.output_token_ids) == []
    assert driver.scheduler.block_pool.free_block_queue.num_free_blocks == CAPACITY


@refused
@pytest.mark.parametrize("answer", [1, 5])
def test_with_structured_output_whose_grammar_is_ready_it_is_not_served(driver, tenant, blocks, answer):
    request = driver.send(tenant, prompt(blocks), max_tokens=answer, grammar=compiled())
    assert request.request_id not in driver.step()
    assert_was_not_served(driver, request)


@refused
def test_a_grammar_that_becomes_ready_later_does_not_bring_it_back(driver, tenant, blocks):
    grammar = Future()
    request = driver.send(tenant, prompt(blocks), grammar=grammar)
    driver.step()
    grammar.set_result(AnyToken())
    for _ in range(3):
        assert request.request_id not in driver.step()
    assert_was_not_served(driver, request)


@refused
@pytest.mark.parametrize("grammar", [None, compiled()], ids=["free text", "structured"])
def test_an_engine_without_other_work_ends_it_in_one_step(driver, tenant, blocks, grammar):
    request = driver.send(tenant, prompt(blocks), grammar=grammar)
    assert driver.scheduler.has_requests()
    driver.step()
    assert_was_not_served(driver, request)
    driver.step()
    assert not driver.scheduler.has_requests()


@refused
@pytest.mark.parametrize("grammar", [None, compiled()], ids=["free text", "structured"])
def test_its_client_may_go_away_first(driver, tenant, blocks, grammar):
    request = driver.send(tenant, prompt(blocks), grammar=grammar)
    driver.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
    assert request.request_id not in driver.step()
    driver.step()
    assert not driver.scheduler.has_requests()
    assert driver.scheduler.requests == {}


def test_requests_that_are_too_long_take_nothing_from_a_neighbour(config):
    """What they ask for would be six times the limit, and the neighbour's share of the steps would pay for it."""
    served = {}
    for cheats in (False, True):
        driver = Driver(make_scheduler(config, CAPACITY))
        driver.declare(zone("acme", limit=LIMIT), zone("gold", weight=10))
        gold = []
        for _ in range(60):
            if cheats:
                driver.send("acme", prompt(6 * LIMIT), grammar=compiled())
            while sum(not request.is_finished() for request in gold[-4:]) < 4:
                gold.append(driver.send("gold", prompt(12), max_tokens=BLOCK_TOKENS // 2))
            driver.step()
            assert driver.zone("acme").in_use == 0
        served[cheats] = sum(request.is_finished() for request in gold)
    assert served[True] == served[False]
