"""A refused request is never served, whatever else it asks for, and its client learns so at once."""

from concurrent.futures import Future

import pytest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import BLOCK_TOKENS, AnyToken, Driver, compiled, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import QueueBounds, RequestLimits
from tenantzone_runtime.engine.patches.refusals import refusal_in

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
        pytest.param(None, 3, id="past the frontend"),
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
@pytest.mark.shows("structured output whose grammar comes late, or fails")
def test_with_structured_output_whose_grammar_is_ready_it_is_not_served(driver, tenant, blocks, answer):
    request = driver.send(tenant, prompt(blocks), max_tokens=answer, grammar=compiled())
    assert request.request_id not in driver.step()
    assert_was_not_served(driver, request)


@refused
@pytest.mark.shows("structured output whose grammar comes late, or fails")
def test_a_grammar_that_becomes_ready_later_does_not_bring_it_back(driver, tenant, blocks):
    grammar = Future()
    assert grammar.set_running_or_notify_cancel(), "it is being compiled, which nothing stops"
    request = driver.send(tenant, prompt(blocks), grammar=grammar)
    driver.step()
    grammar.set_result(AnyToken())
    for _ in range(3):
        assert request.request_id not in driver.step()
    assert_was_not_served(driver, request)


@refused
def test_a_grammar_without_a_waiting_request_is_not_compiled(driver, tenant, blocks):
    grammar = Future()
    driver.send(tenant, prompt(blocks), grammar=grammar)
    assert grammar.cancelled()
    driver.run()


def test_the_grammar_of_a_request_whose_client_goes_away_is_not_compiled(driver):
    grammars = [Future(), Future()]
    gone, stays = (driver.send("acme", prompt(1), grammar=grammar) for grammar in grammars)
    driver.step()
    driver.scheduler.finish_requests(gone.request_id, RequestStatus.FINISHED_ABORTED)
    assert [grammar.cancelled() for grammar in grammars] == [True, False]
    grammars[1].set_result(AnyToken())
    driver.run()
    assert driver.finished[stays.request_id] == "length"


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
        (None, 3, 503, "the request did not come through the frontend"),
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
    reported = refusal(driver, request)
    assert reported.status == status
    assert message in reported.message
    assert not caplog.records, "a client's mistake is not logged on the server"


def test_an_error_of_the_engine_stays_one(driver):
    request = driver.send("acme", prompt(1))
    driver.scheduler.end_with_error(request)
    driver.run()
    assert driver.finished[request.request_id] == "error"
    assert refusal(driver, request) is None


def test_a_form_that_does_not_compile_is_the_clients_mistake(driver):
    grammar = Future()
    grammar.set_exception(RuntimeError("it does not compile"))
    request = driver.send("acme", prompt(1), grammar=grammar)
    driver.run()
    assert driver.finished[request.request_id] == "error"
    reported = refusal(driver, request)
    assert (reported.status, "can't compile the schema or grammar" in reported.message) == (400, True)
    assert driver.scheduler.requests == {}


def test_no_text_that_a_client_stops_at_is_taken_for_a_refusal():
    completion = CompletionOutput(0, "", [], None, None, finish_reason="stop", stop_reason="tenantzone refuses 403 x")
    assert refusal_in(RequestOutput("a", None, None, None, [completion], finished=True)) is None


def assert_waits(driver, requests, tokens):
    queue = driver.zone("acme").queue
    assert (queue.requests, queue.tokens) == (requests, tokens)


def test_what_its_zones_queue_has_no_room_for_is_refused_with_a_time(driver):
    driver.declare(zone("acme", limit=LIMIT, queue=QueueBounds(requests=2)), zone("gold"))
    tokens = len(prompt(LIMIT - 2))
    running = driver.send("acme", prompt(LIMIT - 2), max_tokens=9)
    driver.step()
    assert_waits(driver, 0, 0)
    waiting = [driver.send("acme", prompt(LIMIT - 2)) for _ in range(2)]
    beyond, of_another = driver.send("acme", prompt(1), grammar=compiled()), driver.send("gold", prompt(1))
    assert_waits(driver, 2, 2 * tokens)
    scheduled = driver.step()
    assert of_another.request_id in scheduled, "no other zone's queue is full"
    assert beyond.request_id not in scheduled
    reported = refusal(driver, beyond)
    assert reported.status == 429
    assert 1 <= reported.retry_after <= 60
    assert reported.message.startswith(
        f"the queue of zone acme is full: 2 requests with {2 * tokens} prompt tokens wait for this engine"
    )
    assert (beyond.num_computed_tokens, list(beyond.output_token_ids)) == (0, [])
    assert driver.zone("acme").counters.requests == {"queue_full": 1}
    driver.run()
    assert {driver.finished[request.request_id] for request in (running, *waiting)} == {"length"}
    assert_waits(driver, 0, 0)


def test_a_queue_is_bounded_in_tokens_and_a_client_that_goes_away_makes_room(driver):
    driver.declare(zone("acme", queue=QueueBounds(tokens=5 * BLOCK_TOKENS)))
    first = driver.send("acme", prompt(9))
    beyond = driver.send("acme", prompt(1))
    driver.scheduler.finish_requests(first.request_id, RequestStatus.FINISHED_ABORTED)
    assert_waits(driver, 0, 0)
    within = driver.send("acme", prompt(1))
    driver.run()
    assert [driver.finished.get(each.request_id) for each in (beyond, within)] == ["error", "length"]
    assert refusal(driver, beyond).status == 429


def test_a_preempted_request_has_had_its_turn_and_takes_no_others_place(driver):
    driver.declare(zone("acme", queue=QueueBounds(requests=1)))
    preempted = driver.send("acme", prompt(2), max_tokens=9)
    driver.step()
    driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert preempted.status == RequestStatus.PREEMPTED
    assert_waits(driver, 0, 0)
    assert driver.finished.get(driver.ask("acme", prompt(2)).request_id) == "length"
    assert_waits(driver, 0, 0)


def test_an_answer_ends_at_its_zones_bound_whatever_was_asked_for(driver):
    driver.declare(zone("acme", request_limits=RequestLimits(max_tokens=7)), zone("gold"))
    long, short = driver.send("acme", prompt(1), max_tokens=50), driver.send("acme", prompt(1), max_tokens=3)
    of_another = driver.send("gold", prompt(1), max_tokens=50)
    long.sampling_params.min_tokens = 40
    driver.run()
    assert [each.num_output_tokens for each in (long, short, of_another)] == [7, 3, 50]
    assert driver.finished[long.request_id] == "length"


def test_requests_that_are_too_long_take_nothing_from_a_neighbour(config):
    """They ask for six times the limit, which would come out of the neighbour's share of the steps."""
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
