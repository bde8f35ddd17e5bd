"""A zone's queue: which requests may wait, and when a refused client should retry."""

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.zone_terms import QueueBounds
from tenantzone_runtime.zones.model.queue import (
    MAX_CLOSED_SECONDS,
    MAX_RETRY_SECONDS,
    MIN_RETRY_SECONDS,
    WINDOW_SECONDS,
    Queue,
)

TOKENS = 100


def filled(requests, now=0.0, tokens=TOKENS):
    queue = Queue()
    for _ in range(requests):
        queue.enter(tokens, now)
    return queue


def serve(queue, *, every, seconds, since=0.0):
    """Removes a request and adds another, again and again. Returns the time afterwards."""
    now = since
    while now < since + seconds:
        now += every
        queue.leave(TOKENS, now, is_served=True)
        queue.enter(TOKENS, now)
    return now


def test_a_queue_that_is_full_is_so_for_a_part_of_what_serving_it_takes():
    bounds, queue = QueueBounds(requests=2), Queue()
    for _ in range(2):
        queue.enter(10, 0.0)
    assert queue.closed_seconds(bounds, 0.0) == 0.0, "its speed is not known yet"
    assert queue.closed_seconds(bounds, 100.0) == MAX_CLOSED_SECONDS
    fast = Queue()
    for number in range(1000):
        fast.enter(10, 0.01 * number)
        fast.leave(10, 0.01 * (number + 1), is_served=True)
    fast.enter(10, 10.0)
    fast.enter(10, 10.0)
    assert 0 < fast.closed_seconds(bounds, 10.0) < 0.01, "less than one is served in"


def test_what_is_within_both_bounds_may_wait():
    queue = filled(3)
    assert queue.has_room(QueueBounds(requests=4), TOKENS)
    assert not queue.has_room(QueueBounds(requests=3), TOKENS)
    assert queue.has_room(QueueBounds(tokens=400), TOKENS)
    assert not queue.has_room(QueueBounds(tokens=399), TOKENS)
    assert not queue.has_room(QueueBounds(requests=4, tokens=399), TOKENS)
    assert not queue.has_room(QueueBounds(requests=3, tokens=400), TOKENS)


def test_without_bounds_anything_may_wait():
    assert filled(10_000).has_room(QueueBounds(), 10**6)


def test_without_waiting_requests_a_request_of_any_length_may():
    assert Queue().has_room(QueueBounds(requests=1, tokens=10), 1000)
    assert not filled(1).has_room(QueueBounds(requests=5, tokens=1000), 1000)


def test_who_ends_before_it_is_scheduled_makes_room_and_counts_as_no_service():
    queue, bounds = filled(100), QueueBounds(requests=100)
    now = serve(queue, every=1.0, seconds=20)
    slow = queue.retry_after(bounds, now)
    for _ in range(50):
        queue.leave(TOKENS, now, is_served=False)
    assert queue.has_room(bounds, TOKENS)
    assert queue.retry_after(bounds, now) < slow == MAX_RETRY_SECONDS
    assert queue.retry_after(bounds, now) > 30


@given(
    waiting=st.integers(1, 200),
    per_second=st.floats(0.5, 50),
    bounds=st.sampled_from([QueueBounds(requests=1), QueueBounds(tokens=1), QueueBounds(requests=1, tokens=1)]),
)
def test_the_retry_time_is_when_all_that_waits_will_have_been_served(waiting, per_second, bounds):
    queue = filled(waiting)
    now = serve(queue, every=1 / per_second, seconds=5 * WINDOW_SECONDS)
    expected = waiting / per_second
    reported = queue.retry_after(bounds, now)
    if expected > 1.3 * MAX_RETRY_SECONDS:
        assert reported == MAX_RETRY_SECONDS
    else:
        # Five past windows are known, and one request more counts as served than was.
        assert 0.75 * expected - 1 <= reported <= max(MIN_RETRY_SECONDS, 1.15 * expected + 1)


def test_a_client_with_long_prompts_is_given_the_time_that_those_take():
    queue = filled(10)
    now = serve(queue, every=0.01, seconds=30)
    assert queue.retry_after(QueueBounds(tokens=1000), now) == MIN_RETRY_SECONDS
    for _ in range(10):
        queue.enter(100 * TOKENS, now)
    assert 8 <= queue.retry_after(QueueBounds(tokens=1000), now) <= 13
    assert queue.retry_after(QueueBounds(requests=10), now) == MIN_RETRY_SECONDS


def test_time_without_waiting_requests_makes_a_zone_no_slower():
    bounds = QueueBounds(requests=10)
    queue = filled(10)
    now = serve(queue, every=0.5, seconds=30)
    reported = queue.retry_after(bounds, now)
    for _ in range(10):
        queue.leave(TOKENS, now, is_served=False)
    now += 3600
    for _ in range(10):
        queue.enter(TOKENS, now)
    assert queue.retry_after(bounds, now) == reported


def test_a_burst_on_an_unmeasured_queue_is_asked_to_retry_soon_and_later_if_nothing_moves():
    queue, bounds = filled(100), QueueBounds(requests=100)
    reported = [queue.retry_after(bounds, now) for now in (0.0, 0.05, 0.2, 5.0)]
    assert reported[0] == MIN_RETRY_SECONDS
    assert reported == sorted(reported)
    assert reported[-1] == MAX_RETRY_SECONDS


def test_what_was_long_ago_is_forgotten():
    queue, bounds = filled(20), QueueBounds(requests=20)
    now = serve(queue, every=0.01, seconds=60)
    assert queue.retry_after(bounds, now) == MIN_RETRY_SECONDS
    now = serve(queue, every=1.0, seconds=6 * WINDOW_SECONDS, since=now)
    assert 15 <= queue.retry_after(bounds, now) <= 25


EVENTS = st.lists(st.tuples(st.sampled_from(["come", "served", "gone"]), st.integers(1, 10**6), st.floats(0, 10**4)))


@given(EVENTS, st.integers(1, 5), st.integers(1, 10**6))
def test_whatever_happens_no_more_waits_than_may_and_the_answer_is_a_time_that_clients_heed(events, requests, tokens):
    queue, bounds, waiting, now = Queue(), QueueBounds(requests=requests, tokens=tokens), [], 0.0
    for what, size, later in events:
        now += later
        if what == "come":
            if queue.has_room(bounds, size):
                queue.enter(size, now)
                waiting.append(size)
            else:
                assert waiting, "an empty queue turns no request away"
        elif waiting:
            queue.leave(waiting.pop(0), now, is_served=what == "served")
        assert (queue.requests, queue.tokens) == (len(waiting), sum(waiting))
        assert len(waiting) <= requests
        assert sum(waiting) <= tokens or len(waiting) == 1
        assert MIN_RETRY_SECONDS <= queue.retry_after(bounds, now) <= MAX_RETRY_SECONDS
