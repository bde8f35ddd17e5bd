"""A queue of waiting requests: which of them leave, and that a few leave at little cost."""

from collections import Counter
from functools import total_ordering

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import RequestStatus

from tenantzone_runtime.engine.queues.placed_queue import PlacedQueue

POLICIES = [SchedulingPolicy.FCFS, SchedulingPolicy.PRIORITY]


@total_ordering
class Waiting:
    """The attributes that a queue reads of a request. It counts reads."""

    status = RequestStatus.WAITING

    def __init__(self, looks, priority=0):
        self.looks = looks
        self.priority = priority

    def __hash__(self):
        self.looks["hashed"] += 1
        return id(self)

    def __eq__(self, other):
        return self is other

    def __lt__(self, other):
        self.looks["compared"] += 1
        return self.priority < other.priority

    @property
    def zone_request(self):
        self.looks["place"] += 1
        return self._zone_request

    @zone_request.setter
    def zone_request(self, state):
        self._zone_request = state


@pytest.mark.parametrize("policy", POLICIES)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=60))
def test_exactly_those_leave_that_are_named_and_the_others_keep_their_order(policy, drawn):
    queue, looks = PlacedQueue(policy), Counter()
    requests = [Waiting(looks, priority) for priority, _, _ in drawn]
    for request in requests:
        queue.add_request(request)
    before = list(queue)
    for request, (_, goes_alone, _) in zip(requests, drawn, strict=True):
        if goes_alone:
            queue.remove_request(request)
    together = [request for request, (_, _, goes_together) in zip(requests, drawn, strict=True) if goes_together]
    queue.remove_requests([*together, Waiting(looks)])
    left = {request for request, (_, alone, together) in zip(requests, drawn, strict=True) if not alone | together}
    assert list(queue) == [request for request in before if request in left]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("is_there", [True, False])
def test_one_request_leaves_without_a_look_at_most_of_the_others(policy, is_there):
    """Clients hang up one by one: looking at each other request would take quadratic time."""
    queue, looks = PlacedQueue(policy), Counter()
    requests = [Waiting(looks, number) for number in range(5001)]
    for request in requests:
        queue.add_request(request)
    leaving = requests[2000]
    if not is_there:
        queue.remove_request(leaving)
    looks.clear()
    queue.remove_request(leaving)
    assert len(queue) == 5000
    assert looks.total() < 50
