"""Requests that wait for their grammars cost a step nothing, count as waiting, and return to their places."""

import gc
import threading
import weakref
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.engine import FinishReason
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import AnyToken, Driver, compiled, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.zone_config.zone_terms import Fairness
from tenantzone_runtime.engine.blocks.requests import state_of
from tenantzone_runtime.engine.core.zone_engine import ZoneEngine
from tenantzone_runtime.engine.queues.deferred_requests import LOOKUPS_AT_ONCE, MOST_AT_ONCE, DeferredRequests
from tenantzone_runtime.engine.queues.placed_queue import PlacedQueue
from tenantzone_runtime.housekeeping.report.reporting import make_report
from tests.engine.measured import abort, figures_of, zone
from tests.engine.tiered_driver import TieredEngine

STEPS = 100
BY_USER = Fairness(header="x-user-id")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config):
    driver = Driver(make_scheduler(config, 500))
    driver.declare(zone("acme", reserved=250), zone("burst"))
    return driver


def one_at_a_time(config, **scheduling):
    """An engine with one seat."""
    driver = Driver(make_scheduler(with_flags(config, max_num_seqs=1, **scheduling), 100))
    driver.declare(zone("acme"))
    return driver


def compiling(driver, count, tenant="burst"):
    """Requests whose grammars are being compiled."""
    return [driver.send(tenant, prompt(2), max_tokens=2, grammar=Future()) for _ in range(count)]


def compilation_of(request):
    return request.structured_output_request._grammar


def order_of_ends(driver):
    driver.run()
    return [name.rpartition("-")[2] for name in driver.finished]


@contextmanager
def counted_looks(driver):
    """Counts how often the scheduler or the arbiter looks at each waiting request."""
    looks = []
    scheduler = type(driver.scheduler)
    handle, blocks_at_most = scheduler._handle_blocked_waiting_request, ZoneEngine.blocks_at_most

    def counted_handle(self, request):
        looks.append(request.request_id)
        return handle(self, request)

    def counted_blocks(self, request):
        looks.append(request.request_id)
        return blocks_at_most(self, request)

    with (
        patch.object(scheduler, "_handle_blocked_waiting_request", counted_handle),
        patch.object(ZoneEngine, "blocks_at_most", counted_blocks),
    ):
        yield looks


def test_no_step_looks_at_a_request_whose_grammar_is_being_compiled(driver):
    driver.send("acme", prompt(3), max_tokens=2 * STEPS)
    waiting = {request.request_id for request in compiling(driver, 300)}
    with counted_looks(driver) as looks:
        for _ in range(STEPS):
            driver.step()
            # Each step has requests to admit, so that it goes through the queue.
            driver.send("burst", prompt(1))
    assert len(looks) >= STEPS
    assert not waiting & set(looks)


def test_deferred_requests_count_as_waiting(driver):
    compiling(driver, 7)
    driver.send("acme", prompt(3), max_tokens=50)
    driver.step()
    scheduler = driver.scheduler
    assert len(scheduler.waiting) == 7
    assert scheduler.get_request_counts() == (1, 7)
    assert scheduler.get_num_unfinished_requests() == 8
    assert scheduler.make_stats().num_skipped_waiting_reqs == 7
    assert figures_of(driver)["burst"].waiting_requests == 7


def test_an_engine_that_waits_for_a_grammar_only_does_not_sleep(driver):
    [request] = compiling(driver, 1)
    for _ in range(3):
        assert driver.scheduler.has_unfinished_requests()
        assert driver.scheduler.has_requests()
        assert not driver.step()
    compilation_of(request).set_result(AnyToken())
    assert driver.step() == [request.request_id]


def test_a_grammar_that_is_compiled_in_a_pause_counts_after_it(driver):
    [request] = compiling(driver, 1)
    driver.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    compilation_of(request).set_result(AnyToken())
    driver.scheduler.set_pause_state(PauseState.UNPAUSED)
    assert driver.step() == [request.request_id]


def test_other_threads_may_compile_while_steps_run(driver):
    requests = compiling(driver, 200)
    futures = [compilation_of(request) for request in requests]

    def compile_every_fourth(first):
        for future in futures[first::4]:
            future.set_result(AnyToken())

    threads = [threading.Thread(target=compile_every_fourth, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        driver.step()
    driver.run()
    assert [driver.finished[request.request_id] for request in requests] == ["length"] * 200


@pytest.mark.parametrize("first_in_line", [0, 1])
def test_a_request_comes_back_to_its_place_by_arrival(config, first_in_line):
    driver = one_at_a_time(config)
    running = driver.send("acme", prompt(1), max_tokens=5)
    for _ in range(first_in_line):
        driver.send("acme", prompt(1))
    [late] = compiling(driver, 1, "acme")
    for _ in range(2):
        driver.send("acme", prompt(1))
    driver.step()
    assert running.status == RequestStatus.RUNNING
    compilation_of(late).set_result(AnyToken())
    assert order_of_ends(driver) == [str(number) for number in range(4 + first_in_line)]


def test_many_come_back_in_the_order_in_which_they_came(config):
    driver = one_at_a_time(config)
    driver.send("acme", prompt(1), max_tokens=5)
    requests = compiling(driver, 20, "acme")
    driver.step()
    for request in reversed(requests):
        compilation_of(request).set_result(AnyToken())
    assert order_of_ends(driver) == [str(number) for number in range(21)]


def test_a_request_comes_back_to_its_place_by_priority(config):
    driver = one_at_a_time(config, policy="priority")
    driver.send("acme", prompt(1), max_tokens=5)
    driver.step()
    driver.send("acme", prompt(1), priority=5)
    late = driver.send("acme", prompt(1), priority=3, grammar=Future())
    driver.send("acme", prompt(1), priority=1)
    driver.send("acme", prompt(1), priority=3)
    driver.step()
    compilation_of(late).set_result(AnyToken())
    assert order_of_ends(driver) == ["0", "3", "2", "4", "1"]


def test_a_request_comes_back_to_its_place_among_those_of_its_user(config):
    driver = one_at_a_time(config)
    driver.declare(zone("acme", fairness=BY_USER))
    driver.send("acme", prompt(1), max_tokens=5, user="ann")
    driver.step()
    late = driver.send("acme", prompt(1), user="bob", grammar=Future())
    driver.send("acme", prompt(1), user="bob")
    driver.step()
    compilation_of(late).set_result(AnyToken())
    assert order_of_ends(driver) == ["0", "1", "2"]


@pytest.mark.parametrize("begins", [True, False])
def test_places_stay_when_a_zone_begins_or_ceases_to_separate_users(config, begins):
    driver = one_at_a_time(config)
    fair = zone("acme", fairness=BY_USER)
    driver.declare(zone("acme") if begins else fair)
    driver.send("acme", prompt(1), max_tokens=5)
    driver.step()
    late = driver.send("acme", prompt(1), grammar=Future())
    for _ in range(3):
        driver.send("acme", prompt(1))
    driver.declare(fair if begins else zone("acme"))
    driver.step()
    compilation_of(late).set_result(AnyToken())
    assert order_of_ends(driver) == ["0", "1", "2", "3", "4"]


def test_a_preempted_request_goes_before_a_deferred_one_that_came_earlier(config):
    driver = one_at_a_time(config)
    [late] = compiling(driver, 1, "acme")
    running = driver.send("acme", prompt(1), max_tokens=5)
    driver.step()
    driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert running.status == RequestStatus.PREEMPTED
    compilation_of(late).set_result(AnyToken())
    assert order_of_ends(driver) == ["1", "0"]


def test_requests_from_before_any_zone_are_deferred_when_zones_come(config):
    driver = Driver(make_scheduler(config, 100))
    late = driver.send(None, prompt(1), grammar=Future())
    driver.step()
    driver.declare(zone("acme"))
    with counted_looks(driver) as looks:
        for _ in range(3):
            driver.step()
    assert not looks
    compilation_of(late).set_result(AnyToken())
    driver.run()
    assert driver.finished[late.request_id] == "length"


@pytest.mark.parametrize("error", [ValueError("the grammar does not compile"), CancelledError()])
def test_a_request_whose_grammar_fails_ends_with_the_next_output(driver, error):
    [request] = compiling(driver, 1)
    driver.step()
    compilation_of(request).set_exception(error)
    driver.step()
    assert driver.finished[request.request_id] == str(FinishReason.ERROR)
    assert not driver.scheduler.has_unfinished_requests()
    assert state_of(request).refusal.reason == "unsupported"


def test_a_cancelled_compilation_ends_its_request(driver):
    [request] = compiling(driver, 1)
    driver.step()
    assert compilation_of(request).cancel()
    driver.step()
    assert driver.finished[request.request_id] == str(FinishReason.ERROR)


def test_a_request_whose_grammar_fails_needs_no_seat_to_end(config):
    driver = one_at_a_time(config)
    driver.send("acme", prompt(1), max_tokens=50)
    [request] = compiling(driver, 1, "acme")
    driver.step()
    compilation_of(request).set_exception(ValueError("the grammar does not compile"))
    driver.step()
    assert driver.finished[request.request_id] == str(FinishReason.ERROR)


def test_aborted_requests_leave_and_their_grammars_are_not_compiled(driver):
    requests = compiling(driver, 20)
    driver.step()
    abort(driver, requests[0])
    assert len(driver.scheduler.waiting) == 19
    driver.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    assert len(driver.scheduler.waiting) == 0
    assert all(compilation_of(request).cancelled() for request in requests)
    assert not driver.scheduler.has_unfinished_requests()


def test_an_aborted_request_is_forgotten_though_its_grammar_takes_hours(driver):
    [request] = compiling(driver, 1)
    future = compilation_of(request)
    future.set_running_or_notify_cancel()
    abort(driver, request)
    driver.step()
    driver.run()
    kept = weakref.ref(request)
    del request
    gc.collect()
    assert kept() is None
    assert future.running()


def test_the_end_of_an_aborted_requests_compilation_is_not_that_of_a_later_request_with_its_id(driver):
    [first] = compiling(driver, 1)
    future = compilation_of(first)
    future.set_running_or_notify_cancel()
    abort(driver, first)
    [second] = compiling(driver, 1)
    scheduler = driver.scheduler
    abort(driver, second)
    second = driver.send("burst", prompt(1), grammar=Future())
    scheduler.waiting.remove_request(second)
    second.request_id = first.request_id
    scheduler.waiting.add_request(second)
    future.set_result(AnyToken())
    with counted_looks(driver) as looks:
        driver.step()
    assert not looks
    assert list(scheduler.waiting) == [second]


def test_a_step_preempts_a_bounded_number_of_requests(config):
    driver = one_at_a_time(config)
    driver.send("acme", prompt(1), max_tokens=50)
    requests = compiling(driver, MOST_AT_ONCE + 5, "acme")
    for request in requests:
        compilation_of(request).set_result(AnyToken())
    driver.step()
    assert driver.scheduler.waiting.ready_count == MOST_AT_ONCE
    driver.step()
    assert driver.scheduler.waiting.ready_count == MOST_AT_ONCE + 5
    assert len(driver.scheduler.waiting) == MOST_AT_ONCE + 5


def test_a_compiled_grammar_is_not_waited_for(driver):
    request = driver.send("acme", prompt(1), grammar=compiled())
    assert driver.step() == [request.request_id]


@pytest.fixture
def engine(config):
    """An engine with a tier of CPU memory that is storing a prompt: a request for that prompt waits."""
    engine = TieredEngine(config, 500, 600)
    engine.declare(zone("acme"), zone("burst"))
    engine.worker.slowest = engine.worker.fastest = 10_000
    yield engine
    engine.scheduler.shutdown()


def looking_up(engine, **counts):
    """Each tenant's requests for its own prompt, which is being stored in the tier and is no longer in any block."""
    prompts = {tenant: prompt(8) for tenant in counts}
    stored = [engine.send(tenant, tokens) for tenant, tokens in prompts.items()]
    while not all(request.is_finished() for request in stored):
        engine.step()
    engine.evict(*prompts)
    requests = [engine.send(tenant, prompts[tenant]) for tenant, count in counts.items() for _ in range(count)]
    engine.step()
    assert all(map(engine.scheduler.tiers.is_looking_up, requests))
    return requests


def finish_copies(engine):
    engine.land()
    engine.worker.slowest = engine.worker.fastest = 0


def test_a_step_asks_about_few_of_the_requests_that_wait_for_a_tier(engine):
    steps = 12
    # It fills no further block: the pool would take one that is being stored, and the store would end at once.
    running = engine.send("acme", prompt(3), max_tokens=steps + 3)
    requests = looking_up(engine, burst=300)
    asked = []
    is_looking_up = engine.scheduler.connector.scheduler.is_looking_up
    engine.scheduler.connector.scheduler.is_looking_up = lambda each: asked.append(each) or is_looking_up(each)
    with counted_looks(engine) as looks:
        for _ in range(steps):
            assert engine.step() == [running.request_id]
    assert not {request.request_id for request in requests} & set(looks)
    assert len(asked) == steps * LOOKUPS_AT_ONCE
    assert len(engine.scheduler.waiting) == 300
    finish_copies(engine)
    engine.run()
    assert all(request.is_finished() for request in requests)


def test_requests_that_wait_for_a_tier_come_back_in_their_order(engine):
    requests = looking_up(engine, burst=5)
    finish_copies(engine)
    engine.run()
    ends = [name for name in engine.finished if name in {request.request_id for request in requests}]
    assert ends == [request.request_id for request in requests]


class LookingUp:
    """The attributes that are read of a request that waits for a tier."""

    structured_output_request = None

    def __init__(self, request_id, zone):
        self.request_id, self.zone = request_id, zone


def test_one_tenants_many_lookups_delay_no_other_tenants():
    requests = [LookingUp(str(number), "burst") for number in range(5 * LOOKUPS_AT_ONCE)]
    other = LookingUp("other", "acme")
    looking_up = {*requests, other}
    deferred = DeferredRequests(lambda request: request in looking_up)
    assert all(deferred.defer(request, request.zone) for request in [*requests, other])
    looking_up.clear()
    arrived = deferred.take_arrived()
    assert other in arrived
    assert len(arrived) == LOOKUPS_AT_ONCE


def test_aborted_requests_that_wait_for_a_tier_are_forgotten(engine):
    requests = looking_up(engine, burst=5)
    engine.scheduler.finish_requests([each.request_id for each in requests], RequestStatus.FINISHED_ABORTED)
    assert len(engine.scheduler.waiting) == 0
    assert not engine.scheduler.waiting._deferred._lookups


class Asked:
    """The attributes that a queue reads of a request."""

    status = RequestStatus.WAITING

    def __init__(self, number):
        self.number = number


@settings(max_examples=100)
@given(st.data())
def test_a_queue_by_arrival_yields_in_the_order_of_arrival_even_after_requests_left_and_came_back(data):
    queue = PlacedQueue(SchedulingPolicy.FCFS)
    outside, waiting = [], []
    for number in range(30):
        request = Asked(number)
        queue.add_request(request)
        waiting.append(number)
        action = data.draw(st.sampled_from(["nothing", "leave", "come back", "pass over"]))
        if action == "leave":
            leaving = data.draw(st.sampled_from(list(queue)))
            queue.remove_request(leaving)
            waiting.remove(leaving.number)
            outside.append(leaving)
        elif action == "come back" and outside:
            back = outside.pop(data.draw(st.integers(0, len(outside) - 1)))
            queue.put_back(back)
            waiting.append(back.number)
        elif action == "pass over":
            count = data.draw(st.integers(1, len(queue)))
            passed_over = [queue.pop_request() for _ in range(count)]
            queue.prepend_requests(reversed(passed_over))
        assert [request.number for request in queue] == sorted(waiting)
        assert (len(queue), bool(queue)) == (len(waiting), bool(waiting))


def reported(driver, tenant):
    """What an engine's report says that a tenant's requests wait for."""
    report = make_report(driver.served, ConfigStatus(), pod="p", started_unix_time=0.0)
    return next(each.waits_for for each in report.zones if each.tenant == tenant)


def test_a_zone_whose_requests_all_wait_for_grammars_reports_a_grammar(clock, driver):
    first, second = compiling(driver, 2)
    assert reported(driver, "burst") == "grammar"
    driver.step()
    clock.seconds += 3.0
    assert reported(driver, "burst") == "grammar"
    driver.send("burst", prompt(2), max_tokens=1)
    assert reported(driver, "burst") is None, "that one goes on"
    driver.step()
    assert reported(driver, "burst") == "grammar"
    abort(driver, first)
    driver.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    assert reported(driver, "burst") is None
    driver.scheduler.set_pause_state(PauseState.UNPAUSED)
    assert reported(driver, "burst") == "grammar"
    compilation_of(second).set_result(AnyToken())
    driver.step()
    assert reported(driver, "burst") is None
    driver.run()
    assert driver.zone("burst").counters.stalled_seconds["grammar"] == 3.0


@pytest.mark.parametrize("ends", ["fails", "is aborted"])
def test_a_zone_whose_last_grammar_fails_or_is_of_no_use_waits_for_none(driver, ends):
    [request] = compiling(driver, 1)
    if ends == "fails":
        compilation_of(request).set_exception(ValueError("it does not compile"))
    else:
        abort(driver, request)
    driver.step()
    assert reported(driver, "burst") is None


def test_a_zone_whose_requests_all_wait_for_a_tier_reports_a_load(engine):
    [request] = looking_up(engine, burst=1)
    assert reported(engine, "burst") == "load"
    finish_copies(engine)
    engine.run()
    engine.evict("burst")
    loading = engine.loading("burst", request.prompt_token_ids)
    assert reported(engine, "burst") == "load"
    other = engine.send("burst", prompt(2), max_tokens=20)
    engine.step()
    assert other.num_output_tokens
    assert reported(engine, "burst") == "load", "no other one waits"
    engine.land()
    while not loading.num_output_tokens:
        engine.step()
    assert reported(engine, "burst") is None
    engine.run()
