"""A request that is refused is never served, whatever else it asks for, and its client hears so at once."""

from concurrent.futures import Future

import pytest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, AnyToken, Driver, compiled, make_scheduler, prompt, vllm_config
from tenantzone_contract.config import ZoneConfig
from tenantzone_runtime.engine.refusals import refusal_in

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


def refusal(driver, request):
    """What the API server makes of the request's last output."""
    name = request.request_id
    completion = CompletionOutput(
        0, "", [], None, None, finish_reason=driver.finished[name], stop_reason=driver.stop_reasons[name]
    )
    return refusal_in(RequestOutput(name, None, None, None, [completion], finished=True))


@pytest.mark.parametrize(
    ("tenant", "blocks", "status", "message"),
    [
        (None, 3, 503, "it did not come through the front door"),
        ("stranger", 3, 403, "tenant 'stranger' has no zone"),
        (
            "acme",
            LIMIT,
            400,
            f"the prompt of {LIMIT * BLOCK_TOKENS + 1} tokens does not fit into the limit of zone acme",
        ),
    ],
)
def test_its_client_hears_why_with_a_status_of_its_own(driver, tenant, blocks, status, message, caplog):
    request = driver.send(tenant, prompt(blocks))
    driver.step()
    told = refusal(driver, request)
    assert told.status == status
    assert message in told.message
    assert not caplog.records, "a client's mistake is no news for whoever runs the server"


def test_an_error_of_the_engine_stays_one(driver):
    grammar = Future()
    grammar.set_exception(RuntimeError("it does not compile"))
    request = driver.send("acme", prompt(1), grammar=grammar)
    driver.run()
    assert driver.finished[request.request_id] == "error"
    assert refusal(driver, request) is None


def test_no_text_that_a_client_stops_at_is_taken_for_a_refusal():
    completion = CompletionOutput(0, "", [], None, None, finish_reason="stop", stop_reason="tenantzone refuses 403 x")
    assert refusal_in(RequestOutput("a", None, None, None, [completion], finished=True)) is None


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
