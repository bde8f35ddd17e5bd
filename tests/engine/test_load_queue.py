"""Requests whose loads have begun, in the order in which vLLM takes them."""

from gc import get_referents

import pytest

from tenantzone_runtime.engine.queues.load_queue import LoadQueue


class Waiting:
    """A request whose load has ended."""

    can_go_on = True


@pytest.fixture
def went_on():
    return []


@pytest.fixture
def queue(went_on):
    return LoadQueue(lambda _: True, lambda request: request.can_go_on, went_on.append, lambda _: None)


def test_who_is_taken_is_who_was_looked_at_though_it_has_no_room_any_more(queue, went_on):
    """vLLM gives an image room in the encoder, and may free another image of the same request for it."""
    first, second = Waiting(), Waiting()
    queue.add_request(first)
    queue.add_request(second)
    assert queue.peek_request() is first
    first.can_go_on = False
    assert queue.pop_request() is first
    assert went_on == [first]
    assert queue.pop_request() is second


def test_who_has_gone_since_it_was_looked_at_is_not_taken(queue):
    first, second = Waiting(), Waiting()
    queue.add_request(first)
    queue.add_request(second)
    assert queue.peek_request() is first
    queue.remove_request(first)
    assert queue.pop_request() is second
    with pytest.raises(IndexError):
        queue.pop_request()


def test_nothing_is_kept_of_who_has_gone(queue):
    request = Waiting()
    queue.add_request(request)
    assert queue.peek_request() is request
    queue.remove_requests([request])
    assert request not in get_referents(queue.__dict__)
