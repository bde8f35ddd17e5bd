"""Users of one tenant, whose requests vLLM's scheduler admits in turn."""

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.engine.blocks.requests import ZoneRequest, user_of
from tenantzone_runtime.engine.queues.user_queue import UserRequestQueue
from tenantzone_runtime.zones.model.users import Users

FAIR = {"fairness": {"header": "x-user-id"}}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), sequences=1)


def zone(tenant, generation=1, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=generation, **fields)


def order(driver):
    """The requests in the order in which they end."""
    driver.run()
    return list(driver.finished)


def flood_and_one(driver, flood=5, **how):
    flooding = [driver.send("acme", prompt(2, seed=seed), user="ann", **how) for seed in range(flood)]
    return flooding, driver.send("acme", prompt(2, seed=99), user="bob", **how)


def test_one_users_request_does_not_wait_behind_all_of_anothers(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", **FAIR))
    _, one = flood_and_one(driver)
    assert order(driver).index(one.request_id) == 1


def test_without_the_field_who_comes_first_is_served_first(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme"))
    _, one = flood_and_one(driver)
    assert order(driver).index(one.request_id) == 5


def test_the_field_counts_for_who_waits_already_and_so_does_its_end(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme"))
    _, one = flood_and_one(driver, flood=6)
    driver.step()
    driver.declare(zone("acme", 2, **FAIR))
    driver.declare(zone("acme", 3))
    driver.declare(zone("acme", 4, **FAIR))
    assert order(driver).index(one.request_id) <= 2
    _, one = flood_and_one(driver)
    driver.step()
    driver.declare(zone("acme", 5))
    driver.run()
    assert list(driver.finished)[-1] == one.request_id
    assert driver.zone("acme").users is None


def test_a_user_of_another_tenant_is_another_one(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", **FAIR), zone("burst", **FAIR))
    driver.send("burst", prompt(40, seed=1), user="ann", max_tokens=20)
    driver.run()
    flooding, one = flood_and_one(driver)
    assert order(driver).index(one.request_id) == 2
    assert list(driver.finished)[1] == flooding[0].request_id


def test_priorities_go_before_users(config):
    driver = Driver(make_scheduler(with_flags(config, policy="priority"), 100))
    driver.declare(zone("acme", **FAIR))
    flooding, one = flood_and_one(driver)
    urgent = driver.send("acme", prompt(2, seed=7), user="ann", priority=-1)
    assert order(driver)[:1] == [urgent.request_id]
    assert list(driver.finished).index(one.request_id) <= 2
    assert len(flooding) == 5


def test_who_was_preempted_has_had_its_turn(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", **FAIR), zone("gold", seats={"reserved": 1}))
    first = driver.send("acme", prompt(2), user="ann", max_tokens=20)
    driver.step()
    driver.send("acme", prompt(2, seed=2), user="bob", max_tokens=2)
    driver.send("gold", prompt(2, seed=3), max_tokens=2)
    driver.run()
    assert first.num_preemptions == 1
    assert [each.partition("-")[0] for each in driver.finished] == ["gold", "acme", "acme"]
    assert list(driver.finished)[1] == first.request_id


def test_a_cancelled_flood_leaves_nothing(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme", **FAIR))
    flooding, one = flood_and_one(driver, flood=50)
    driver.step()
    driver.scheduler.finish_requests([each.request_id for each in flooding], RequestStatus.FINISHED_ABORTED)
    driver.run()
    assert driver.finished[one.request_id] == "length"
    assert not driver.scheduler.waiting._queues


def test_of_thousands_of_users_the_first_are_found_without_a_look_at_all():
    """They are queried before each step: a client that makes up users slows no one down."""
    users = Users()
    queue = UserRequestQueue(SchedulingPolicy.FCFS, users)
    for number in range(5000):
        queue.add_request(Asked(str(number), 0, number))
    looked_at = []
    first = users.first

    def watched():
        for place in first():
            looked_at.append(place)
            yield place

    users.first = watched
    fronts = [user_of(request) for request in islice(queue, 20)]
    assert fronts == [str(number) for number in range(20)]
    assert len(looked_at) <= 21


class Asked:
    """The attributes of a request that a queue reads."""

    def __init__(self, user, priority, number):
        self.zone_request = ZoneRequest(user=user)
        self.priority, self.arrival_time, self.request_id = priority, float(number), str(number)
        self.status = None

    def __lt__(self, other):
        return (self.priority, self.arrival_time) < (other.priority, other.arrival_time)


@settings(max_examples=100)
@given(st.sampled_from(SchedulingPolicy), st.integers(0, 2**32))
def test_the_queue_holds_what_was_put_in_and_not_taken_out(policy, seed):
    number, users = random.Random(seed), Users()
    queue, there = UserRequestQueue(policy, users), []
    for index in range(200):
        what = number.random()
        if what < 0.5:
            request = Asked(number.choice("abcd"), number.randint(-1, 1), index)
            number.choice([queue.add_request, queue.prepend_request])(request)
            there.append(request)
        elif there and what < 0.75:
            front = queue.peek_request()
            assert next(iter(queue)) is front
            assert queue.pop_request() is front
            there.remove(front)
            users.charge(user_of(front), number.uniform(0, 10))
        elif there:
            leaving = number.sample(there, min(len(there), number.randint(1, 3)))
            queue.remove_requests(leaving)
            there = [request for request in there if request not in leaving]
        assert (len(queue), bool(queue)) == (len(there), bool(there))
        assert {id(request) for request in queue} == {id(request) for request in there}
        if there and policy is SchedulingPolicy.PRIORITY:
            assert queue.peek_request().priority == min(request.priority for request in there)
