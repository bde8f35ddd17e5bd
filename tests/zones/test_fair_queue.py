"""Whose turn it is, by weighted virtual token time."""

import random

import pytest

from tenantzone_runtime.zones.model.fair_queue import Account, FairQueue


@pytest.fixture
def queue():
    return FairQueue()


def everybody(account):
    return True


def serve(queue, rounds, cost=100.0, admissible=everybody):
    """Serves `rounds` requests, each of this cost. Returns the accounts in order."""
    served = []
    for _ in range(rounds):
        account = queue.next(admissible)
        account.charge(cost)
        queue.end_round()
        served.append(account)
    return served


def waiting(queue, *accounts):
    for account in accounts:
        queue.enter(account)
    return accounts


def test_no_zone_is_served_where_no_request_waits(queue):
    assert queue.next(everybody) is None


def test_equals_take_turns_in_the_order_in_which_they_came(queue):
    one, other = waiting(queue, Account(), Account())
    assert serve(queue, 4) == [one, other, one, other]


def test_three_times_the_weight_is_three_times_the_service(queue):
    heavy, light = waiting(queue, Account(weight=3), Account(weight=1))
    served = serve(queue, 400)
    assert served.count(heavy) == 300
    assert served.count(light) == 100


def test_who_costs_more_is_served_less_often(queue):
    long, short = waiting(queue, Account(), Account())
    served = []
    for _ in range(100):
        account = queue.next(everybody)
        account.charge(300 if account is long else 100)
        queue.end_round()
        served.append(account)
    assert served.count(short) == pytest.approx(75, abs=1)


def test_who_returns_after_a_pause_starts_level_and_has_banked_nothing(queue):
    busy, away = waiting(queue, Account(), Account())
    queue.leave(away)
    serve(queue, 1000)
    queue.enter(away)
    assert away.service == busy.service - 100
    assert serve(queue, 10).count(away) in (5, 6)


def test_who_returns_to_an_empty_queue_starts_where_the_last_one_was_served(queue):
    busy, away = Account(), Account()
    queue.enter(busy)
    serve(queue, 10)
    queue.leave(busy)
    queue.enter(away)
    assert away.service == busy.service - 100


def test_who_had_more_than_the_others_does_not_lose_its_debt_by_leaving(queue):
    greedy, patient = Account(service=500.0), Account()
    queue.enter(patient)
    queue.enter(greedy)
    queue.leave(greedy)
    queue.enter(greedy)
    assert greedy.service == 500
    assert serve(queue, 5) == [patient] * 5


def test_a_request_that_cannot_be_admitted_delays_no_other(queue):
    blocked, other = waiting(queue, Account(), Account(service=10_000.0))
    assert queue.next(lambda account: account is not blocked) is other
    assert queue.next(lambda account: account is not blocked) is other


def test_who_stood_aside_is_asked_again_in_the_next_round_and_not_before(queue):
    blocked, other = waiting(queue, Account(), Account(service=10.0))
    assert queue.next(lambda account: account is not blocked) is other
    assert queue.next(everybody) is other
    other.charge(1.0)
    queue.end_round()
    assert queue.next(everybody) is blocked


def test_who_is_set_aside_by_others_waits_for_the_next_round_too(queue):
    first, second = waiting(queue, Account(), Account())
    queue.set_aside(first)
    assert queue.next(everybody) is second
    queue.set_aside(second)
    assert queue.next(everybody) is None
    queue.end_round()
    assert queue.next(everybody) is first


def test_setting_aside_who_does_not_wait_is_harmless(queue):
    away = Account()
    queue.set_aside(away)
    queue.end_round()
    assert queue.next(everybody) is None


def test_who_leaves_while_it_stands_aside_is_gone(queue):
    (account,) = waiting(queue, Account())
    queue.set_aside(account)
    queue.leave(account)
    queue.end_round()
    assert queue.next(everybody) is None


def test_entering_and_leaving_twice_is_entering_and_leaving_once(queue):
    one, other = waiting(queue, Account(), Account())
    queue.enter(one)
    assert serve(queue, 4) == [one, other, one, other]
    queue.leave(one)
    queue.leave(one)
    assert serve(queue, 2) == [other, other]


def test_who_comes_and_leaves_again_and_again_without_a_turn_leaves_nothing_behind(queue):
    first, second = waiting(queue, Account(), Account(service=1000.0))
    for _ in range(1000):
        queue.leave(second)
        queue.enter(second)
        assert queue.next(everybody) is first
        queue.end_round()
    assert len(queue._heap) <= 65


def test_places_that_are_given_up_go_when_there_are_twice_as_many_as_are_in_use(queue):
    waiting(queue, *(Account() for _ in range(200)))
    restless, most = Account(), 0
    for _ in range(1000):
        queue.enter(restless)
        most = max(most, len(queue._heap))
        queue.leave(restless)
    assert most == 2 * 201


def test_tidying_up_changes_no_turn():
    tidy, untidy = FairQueue(), FairQueue()
    untidy._max_places = 1e9
    queues = [(queue, [Account() for _ in range(20)]) for queue in (tidy, untidy)]
    rng = random.Random(1)
    most = 0
    for _ in range(5000):
        number, cost, blocked = rng.randrange(20), rng.randrange(100), rng.sample(range(20), 5)
        act = "serve" if rng.random() < 0.02 else rng.choice(["enter", "leave"])
        served = []
        for queue, accounts in queues:
            if act == "serve":
                others = {account for index, account in enumerate(accounts) if index not in blocked}
                account = queue.next(others.__contains__)
                if account is not None:
                    account.charge(cost)
                served.append(None if account is None else accounts.index(account))
                queue.end_round()
            else:
                getattr(queue, act)(accounts[number])
        assert len(set(served)) <= 1
        assert len(tidy._heap) <= 65
        most = max(most, len(untidy._heap))
    assert most > 65, "there was something to tidy up"


def test_who_waits_for_blocks_stands_at_the_front_and_saves_up_no_claim(queue):
    blocked, other = waiting(queue, Account(), Account())
    serve(queue, 10, admissible=lambda account: account is not blocked)
    served = serve(queue, 10)
    assert served[0] is blocked
    assert served.count(blocked) in (5, 6)
    assert other in served


def test_a_newcomer_does_not_inherit_the_claim_of_one_that_is_blocked(queue):
    blocked, busy = waiting(queue, Account(), Account())
    serve(queue, 1000, admissible=lambda account: account is not blocked)
    newcomer = Account()
    queue.enter(newcomer)
    assert serve(queue, 10, admissible=lambda account: account is not blocked).count(busy) >= 4


def test_a_changed_weight_counts_from_now_on(queue):
    one, _ = waiting(queue, Account(), Account())
    serve(queue, 100)
    one.weight = 4
    assert serve(queue, 100).count(one) == pytest.approx(80, abs=1)


def test_who_stood_aside_and_is_held_since_stays_held_when_the_round_ends(queue):
    account = Account()
    queue.enter(account)
    queue.set_aside(account)
    queue.hold(account)
    queue.end_round()
    assert queue.next(lambda account: True) is None
    queue.release(account)
    assert queue.next(lambda account: True) is account


def test_who_left_while_it_was_held_is_not_released_into_the_queue(queue):
    (account,) = waiting(queue, Account())
    queue.hold(account)
    queue.leave(account)
    queue.release(account)
    assert queue.next(everybody) is None


def test_a_called_account_returns_to_its_place(queue):
    first, called, last = waiting(queue, Account(service=1.0), Account(service=2.0), Account(service=3.0))
    queue.hold(called)
    assert list(queue.in_order()) == [first, last]
    queue.call(called)
    assert list(queue.in_order()) == [first, called, last]


def test_the_order_is_that_in_which_accounts_are_served_and_reading_it_changes_nothing(queue):
    accounts = waiting(queue, *(Account(service=float(service)) for service in (5, 3, 8, 1, 3, 9, 2)))
    for account, cost in zip(accounts, (0, 4, 0, 6, 0, 1, 3), strict=True):
        account.charge(cost)
    queue.leave(accounts[2])
    expected = list(queue.in_order())
    assert list(queue.in_order()) == expected
    served = []
    while (account := queue.next(everybody)) is not None:
        served.append(account)
        queue.leave(account)
    assert served == expected
    assert [account.service for account in served] == [3.0, 5.0, 5.0, 7.0, 7.0, 10.0]
