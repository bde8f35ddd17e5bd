"""The order of turns among the users of one zone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.model.users import MAX_KEPT, NO_USER, UserAccount, Users


def serve(users, rounds, cost):
    """Serves `rounds` waiting requests, each at the cost of its user. Returns the users in order."""
    served = []
    for _ in range(rounds):
        user, _ = users.next()
        users.charge(user, cost[user])
        served.append(user)
    return served


def waiting(*names, priority=0):
    users = Users()
    for name in names:
        users.enter(name, priority)
    return users


def test_users_take_turns():
    assert serve(waiting("ann", "bob"), 4, {"ann": 10.0, "bob": 10.0}) == ["ann", "bob", "ann", "bob"]


def test_who_costs_twice_as_much_is_served_half_as_often():
    served = serve(waiting("ann", "bob"), 300, {"ann": 20.0, "bob": 10.0})
    assert served.count("bob") == pytest.approx(200, abs=2)


@given(st.lists(st.sampled_from(["ann", "bob", NO_USER]), max_size=60), st.randoms(use_true_random=False))
def test_of_two_that_always_wait_neither_gets_more_than_twice_a_request_ahead(others, number):
    users, largest = waiting("ann", "bob"), 100.0
    had = {"ann": 0.0, "bob": 0.0}
    for other in [*others, *["ann"] * 20]:
        user, _ = users.next()
        cost = number.uniform(1.0, largest)
        users.charge(user, cost)
        if user in had:
            had[user] += cost
        if other == NO_USER:
            users.enter(NO_USER, 0)
        assert abs(had["ann"] - had["bob"]) <= 2 * largest


def test_unused_time_is_not_banked():
    users = waiting("ann")
    serve(users, 100, {"ann": 10.0})
    users.enter("bob", 0)
    served = serve(users, 20, {"ann": 10.0, "bob": 10.0})
    assert abs(served.count("ann") - served.count("bob")) <= 1


def test_who_goes_away_for_a_moment_comes_back_with_what_it_had():
    users = waiting("ann", "bob")
    users.charge("ann", 100.0)
    users.leave("ann", 0)
    users.enter("ann", 0)
    assert serve(users, 9, {"ann": 10.0, "bob": 10.0}) == ["bob"] * 9


def test_priorities_go_before_users():
    users = waiting("ann")
    users.enter("bob", -1)
    users.charge("bob", 1e6)
    assert users.next() == ("bob", -1)
    users.leave("bob", -1)
    assert users.next() == ("ann", 0)


def test_a_user_that_waits_with_two_priorities_has_one_account():
    users = waiting("ann", "bob")
    users.enter("ann", 5)
    users.charge("ann", 30.0)
    assert serve(users, 3, {"ann": 10.0, "bob": 10.0}) == ["bob"] * 3
    users.leave("bob", 0)
    users.leave("ann", 0)
    users.enter("bob", 5)
    assert users.next() in (("ann", 5), ("bob", 5))
    users.charge("ann", 30.0)
    assert users.next() == ("bob", 5)


def test_a_user_with_many_priorities_costs_no_more_than_one_with_one(monkeypatch):
    looked_at = []
    before = UserAccount.service
    monkeypatch.setattr(
        UserAccount, "service", property(lambda self: looked_at.append(self) or before.fget(self), before.fset)
    )
    users = waiting("bob")
    for priority in range(1000):
        users.enter("ann", priority)
    looked_at.clear()
    for _ in range(100):
        users.charge("ann", 2.0)
    users.leave("ann", 500)
    users.enter("ann", 500)
    assert len(looked_at) < 10


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.floats(0.0, 1e6)), max_size=60))
def test_each_account_of_a_user_is_charged_alike(steps):
    """Compared with accounts that are charged one by one."""
    users, reached, service, accounts = Users(), 0.0, {}, {}
    for user, priority, cost in steps:
        mine = accounts.setdefault(user, {})
        if priority in mine:
            users.leave(user, priority)
            service[user] = max(service[user], mine.pop(priority))
        else:
            users.enter(user, priority)
            service.setdefault(user, reached)
            mine[priority] = max(service[user], reached, *mine.values())
        users.charge(user, cost)
        service[user] = max(service.get(user, reached), reached) + cost
        accounts[user] = {each: had + cost for each, had in mine.items()}
        first = min((each for mine in accounts.values() for each in mine), default=None)
        if first is not None:
            name, reported = users.next()
            least = min(mine[first] for mine in accounts.values() if first in mine)
            assert reported == first
            assert accounts[name][first] == pytest.approx(least, rel=1e-9, abs=1e-6)
            reached = max(reached, accounts[name][first])


def test_no_zone_is_next_where_no_request_waits():
    with pytest.raises(IndexError):
        Users().next()


def test_users_without_number_leave_nothing():
    users, number = waiting("ann"), random.Random(1)
    for index in range(20 * MAX_KEPT):
        user = f"user-{index}"
        users.enter(user, 0)
        users.charge(user, number.uniform(0.0, 10.0))
        users.leave(user, 0)
        if index % 3 == 0:
            users.charge("ann", 5.0)
            users.next()
    assert len(users) <= 2 * MAX_KEPT + 2
