"""Requests that wait for an adapter's slot cost a step nothing, count as waiting, and are served in order."""

from collections import Counter
from dataclasses import InitVar, dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.config.lora import LoRAConfig
from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.zone_config.zone_terms import Fairness
from tenantzone_runtime.engine.blocks.requests import state_of
from tenantzone_runtime.engine.queues.adapter_lines import MOST_AT_ONCE, QUEUED, AdapterLines
from tests.engine.measured import abort, figures_of, zone
from tests.engine.test_deferred_requests import counted_looks
from tests.python_steps import steps_of
from tests.zones.core import Core

STEPS = 50
BY_USER = Fairness(header="x-user-id")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config):
    return one_slot(config, zone("acme", reserved=250), zone("burst"))


def one_slot(config, *zones, **scheduling):
    """An engine in which requests for one adapter run at a time."""
    driver = Driver(make_scheduler(with_flags(config, **scheduling), 500))
    driver.scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)
    driver.declare(*zones)
    return driver


def adapter(number):
    return LoRARequest(lora_name=f"adapter-{number}", lora_int_id=number, lora_path="/nowhere")


def send(driver, count, number, tenant="burst", **arguments):
    arguments = {"max_tokens": 2, **arguments}
    return [driver.send(tenant, prompt(2), adapter=adapter(number), **arguments) for _ in range(count)]


def busy_slot(driver, tokens=2 * STEPS):
    """A request that has the slot, after a step."""
    [request] = send(driver, 1, 1, "acme", max_tokens=tokens)
    driver.step()
    return request


def names(requests):
    return [request.request_id for request in requests]


def order_of_first_steps(driver):
    """The requests in the order in which they are first scheduled."""
    order = {}
    while driver.scheduler.has_unfinished_requests():
        order |= dict.fromkeys(driver.step())
        driver.check()
    return list(order)


def test_no_step_looks_at_more_than_the_first_request_for_an_adapter_without_a_slot(driver):
    busy_slot(driver)
    first, *others = names(send(driver, 300, 2))
    with counted_looks(driver) as looks:
        for _ in range(STEPS):
            driver.step()
            # Each step has requests to admit, so that it goes through the queue.
            driver.send("burst", prompt(1))
    assert first in looks
    assert not set(others) & set(looks)


def test_many_requests_that_came_while_the_slot_was_free_are_looked_at_once(driver):
    """The slot is given to another zone's request, which comes first."""
    [first] = send(driver, 1, 1, "acme", max_tokens=2 * STEPS)
    waiting = names(send(driver, 300, 2))
    driver.step()
    assert first.num_computed_tokens
    with counted_looks(driver) as looks:
        for _ in range(STEPS):
            driver.step()
            driver.send("burst", prompt(1))
    assert not set(waiting[1:]) & set(looks)


def test_they_count_as_waiting(driver):
    busy_slot(driver)
    send(driver, 7, 2)
    driver.step()
    scheduler = driver.scheduler
    assert len(scheduler.waiting) == 7
    assert scheduler.get_request_counts() == (1, 7)
    assert scheduler.get_num_unfinished_requests() == 8
    assert scheduler.make_stats().num_skipped_waiting_reqs == 7
    assert figures_of(driver)["burst"].waiting_requests == 7


def test_they_are_served_in_their_order_once_the_slot_is_free(driver):
    running = busy_slot(driver, 10)
    waiting = names(send(driver, 2 * MOST_AT_ONCE, 2))
    assert order_of_first_steps(driver) == [running.request_id, *waiting]
    assert not driver.scheduler.deferred_waiting


@dataclass(eq=False)
class Waiting:
    """A waiting request, with the attributes that lines read."""

    adapter: int
    place: InitVar[int]
    status: RequestStatus = RequestStatus.WAITING

    def __post_init__(self, place):
        state_of(self).place = place


def lines_with(*kept):
    """Returns lines with a number of requests for each zone and adapter; all slots are free now."""
    are_free = []
    lines = AdapterLines(SchedulingPolicy.FCFS, lambda request: request.adapter, lambda _: bool(are_free))
    for of_zone, number, count in kept:
        for place in range(count):
            lines.keep(Waiting(number, place), of_zone)
    are_free.append(True)
    return lines


@dataclass(eq=False)
class Compared(Waiting):
    """A waiting request with a priority that counts comparisons."""

    priority: int = 0
    comparisons: ClassVar = Counter()

    def __lt__(self, other):
        self.comparisons["in all"] += 1
        return self.priority < other.priority


def test_an_arrival_is_compared_with_few_requests_however_many_wait_for_an_adapter_that_has_a_slot():
    """Each comes before all others, so comparing it with each other one would take quadratic time."""
    core, count = Core(10), 5000
    lines = AdapterLines(SchedulingPolicy.PRIORITY, lambda request: request.adapter, lambda _: True)
    zone = core.zone("burst")
    requests = [Compared(1, place, priority=-place) for place in range(count)]
    Compared.comparisons.clear()
    assert not any(lines.keep(request, zone) for request in requests)
    for request in requests:
        lines.popped(request, zone)
    assert Compared.comparisons.total() <= 40 * count
    assert not lines._lines


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.booleans()), max_size=60))
def test_by_priority_no_request_is_kept_that_comes_before_all_in_the_queue(events):
    zone, waiting, is_free = Core(10).zone("burst"), [], False
    lines = AdapterLines(SchedulingPolicy.PRIORITY, lambda request: request.adapter, lambda _: is_free)
    for place, (arrives, choice, has_slot) in enumerate(events):
        is_free = has_slot
        if arrives:
            waiting.append(Compared(1, place, priority=choice))
            lines.keep(waiting[-1], zone)
        elif waiting:
            lines.removed([waiting.pop(choice % len(waiting))], zone)
        kept = list(lines)
        queued = [request.priority for request in waiting if request not in kept]
        assert all(min(queued) <= request.priority for request in kept)
        assert len(lines) == len(kept)
    lines.removed(waiting, zone)
    assert not lines._lines


def test_zones_and_their_adapters_have_equal_parts_of_what_comes_back_in_a_step():
    core = Core(10)
    acme, burst = core.zone("acme"), core.zone("burst")
    lines = lines_with(*((burst, number, 1000) for number in range(1, 6)), (acme, 6, 1000))
    counts = Counter(request.adapter for request in lines.take_admissible())
    assert counts[6] == QUEUED - 1
    assert all(MOST_AT_ONCE // 12 <= counts[number] <= MOST_AT_ONCE // 8 for number in range(1, 6))


def test_the_first_request_comes_back_however_many_others_have_in_the_same_step():
    core = Core(10)
    zones = [core.zone(f"zone-{number}") for number in range(2 * MOST_AT_ONCE)]
    lines = lines_with(*((each, 1, 3) for each in zones))
    for each in zones:
        lines.popped(next(iter(lines._lines[each][1].queued._requests)), each)
    lines.take_admissible()
    assert all(adapters[1].queued for adapters in lines._lines.values())


def test_as_many_begin_in_a_step_as_have_seats(config):
    driver = one_slot(config, zone("acme"), zone("burst"), max_num_seqs=QUEUED)
    running = busy_slot(driver, 5)
    send(driver, 2 * QUEUED, 2, max_tokens=20)
    while running.request_id not in driver.finished:
        driver.step()
    for _ in range(3):
        driver.step()
    assert len(driver.scheduler.running) == QUEUED


def test_an_abort_costs_the_same_however_many_users_wait(config):
    """Thousands of clients of one zone may hang up one after another."""

    def steps_of_abort(users):
        driver = one_slot(config, zone("acme", reserved=250), zone("burst", fairness=BY_USER))
        busy_slot(driver)
        waiting = [send(driver, 1, 2, user=f"user-{number}")[0] for number in range(users)]
        abort(driver, waiting[1])
        return steps_of(lambda: abort(driver, waiting[users // 2]))

    assert steps_of_abort(200) == steps_of_abort(20)


def test_when_the_first_one_is_aborted_the_next_one_stands_in_for_it(driver):
    busy_slot(driver, 30)
    first, second, third, fourth = send(driver, 4, 2)
    driver.step()
    abort(driver, first)
    abort(driver, third)
    assert len(driver.scheduler.waiting) == 2
    driver.check()
    assert order_of_first_steps(driver)[1:] == names([second, fourth])


def test_all_can_be_aborted_at_once(driver):
    running = busy_slot(driver, 30)
    waiting = send(driver, 300, 2)
    driver.step()
    driver.scheduler.finish_requests(names(waiting), RequestStatus.FINISHED_ABORTED)
    assert len(driver.scheduler.waiting) == 0
    assert not driver.scheduler.deferred_waiting
    assert order_of_first_steps(driver) == [running.request_id]


def test_a_request_of_a_higher_priority_goes_before_those_that_wait_longer(config):
    driver = one_slot(config, zone("acme"), zone("burst"), max_num_seqs=1, policy="priority")
    assert driver.scheduler.policy is SchedulingPolicy.PRIORITY
    running = busy_slot(driver, 10)
    low = send(driver, 3, 2, priority=5)
    driver.step()
    high = send(driver, 3, 2, priority=1)
    assert order_of_first_steps(driver) == names([running, *high, *low])


def test_a_request_of_a_higher_priority_stands_in_for_one_that_is_aborted(config):
    driver = one_slot(config, zone("acme"), zone("burst"), max_num_seqs=1, policy="priority")
    running = busy_slot(driver, 10)
    low = send(driver, 1, 2, priority=5)
    driver.step()
    high = send(driver, 3, 2, priority=1)
    abort(driver, high[0])
    assert order_of_first_steps(driver) == names([running, *high[1:], *low])


def test_users_take_turns_however_many_requests_one_of_them_has(config):
    driver = one_slot(config, zone("acme"), zone("burst", fairness=BY_USER), max_num_seqs=1)
    running = busy_slot(driver, 10)
    many = send(driver, 2 * QUEUED, 2, user="many")
    driver.step()
    few = send(driver, 2, 2, user="few")
    order = order_of_first_steps(driver)
    assert order[0] == running.request_id
    assert set(names(few)) <= set(order[:6])
    assert [name for name in order if name in names(many)] == names(many)


def test_a_zone_that_begins_to_separate_users_keeps_its_requests(config):
    driver = one_slot(config, zone("acme"), zone("burst"), max_num_seqs=1)
    busy_slot(driver, 10)
    many, few = send(driver, QUEUED, 2, user="many"), send(driver, 2, 2, user="few")
    driver.step()
    driver.declare(zone("acme"), zone("burst", fairness=BY_USER))
    assert len(driver.scheduler.waiting) == QUEUED + 2
    order = order_of_first_steps(driver)
    assert set(names(few)) <= set(order[:6])
    assert sorted(order[1:]) == sorted(names(many + few))


def test_nothing_is_kept_of_requests_that_are_gone(driver):
    busy_slot(driver, 10)
    send(driver, 10, 2)
    send(driver, 10, 3, "acme")
    driver.run()
    assert not driver.scheduler.waiting.adapters._lines


EVENTS = st.lists(
    st.tuples(st.sampled_from(["send", "abort", "step"]), st.integers(0, 3), st.integers(0, 40)), max_size=60
)


@settings(max_examples=60)
@given(events=EVENTS, slots=st.integers(1, 2), seats=st.sampled_from([1, 3, 64]))
def test_of_any_zone_and_adapter_requests_begin_in_their_order(config, events, slots, seats):
    driver = one_slot(
        config, zone("acme", reserved=50, lending={"grace_seconds": 0}), zone("burst"), max_num_seqs=seats
    )
    driver.scheduler.lora_config = LoRAConfig(max_loras=slots, max_lora_rank=8)
    sent, began, left = {}, {}, set()
    for kind, number, choice in [*events, *[("step", 0, 0)] * 2]:
        if kind == "send":
            tenant = ("acme", "burst")[choice % 2]
            [request] = send(driver, 1, number, tenant) if number else [driver.send(tenant, prompt(2), max_tokens=2)]
            sent[request.request_id] = (tenant, number)
        elif kind == "abort" and sent:
            name = list(sent)[choice % len(sent)]
            if name in driver.scheduler.requests:
                left.add(name)
                abort(driver, driver.scheduler.requests[name])
        else:
            began |= dict.fromkeys(driver.step())
        driver.check()
        assert driver.scheduler.get_request_counts()[1] == len(driver.scheduler.waiting)
    began |= dict.fromkeys(order_of_first_steps(driver))
    assert sent.keys() - left <= began.keys()
    for line in set(sent.values()):
        mine = [name for name in sent if sent[name] == line and name in began]
        assert [name for name in began if sent[name] == line] == mine
    assert not driver.scheduler.waiting.adapters._lines
