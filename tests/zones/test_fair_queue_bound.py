"""How far one zone can get ahead of another, under random loads: the bound that the fair queue promises."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.model.fair_queue import INPUT, OUTPUT, Account, FairQueue

LONGEST_PROMPT, LONGEST_ANSWER = 40, 20


@st.composite
def loads(draw):
    """For each account its weight, and by step of arrival the lengths of its prompts and answers in tokens."""
    accounts = []
    for _ in range(draw(st.integers(2, 4))):
        lengths = draw(
            st.lists(st.tuples(st.integers(1, LONGEST_PROMPT), st.integers(1, LONGEST_ANSWER)), min_size=1, max_size=3)
        )
        arrivals = {}
        for _ in range(draw(st.integers(1, 3))):
            arrivals[draw(st.integers(0, 300))] = lengths * draw(st.integers(1, 20))
        accounts.append((draw(st.integers(1, 4)), arrivals))
    return accounts


def simulate(load, pool, *, one_is_blocked):
    """An engine that holds ``pool`` tokens. Yields the waiting accounts and the service of all after each step."""
    accounts = [Account(weight=weight) for weight, _ in load]
    blocked = Account()
    queue = FairQueue()
    if one_is_blocked:
        queue.enter(blocked)
    waiting = [[] for _ in load]
    running: list[tuple] = []
    last_arrival = max(max(arrivals) for _, arrivals in load)
    for step in itertools.count():
        for account, requests, (_, arrivals) in zip(accounts, waiting, load, strict=True):
            if step in arrivals:
                requests += arrivals[step]
                queue.enter(account)
        while pool - sum(size for size, _, _ in running) >= LONGEST_PROMPT + LONGEST_ANSWER:
            account = queue.next(lambda account: account is not blocked)
            if account is None:
                break
            requests = waiting[accounts.index(account)]
            prompt, answer = requests.pop(0)
            account.charge(INPUT * prompt)
            running.append((prompt + answer, step + answer, account))
            if not requests:
                queue.leave(account)
        queue.end_round()
        for _, _, account in running:
            account.charge(OUTPUT)
        running = [request for request in running if request[1] > step + 1]
        yield [bool(requests) for requests in waiting], [account.service for account in accounts]
        if step >= last_arrival and not any(waiting):
            return


@given(loads(), st.integers(LONGEST_PROMPT + LONGEST_ANSWER, 200), st.booleans())
def test_the_bound_holds_between_any_two_that_are_backlogged(load, pool, one_is_blocked):
    """Over every interval in which two accounts always wait, neither gets ahead by more than the bound."""
    bound = 2 * max(INPUT * LONGEST_PROMPT, OUTPUT * pool)
    least: dict[tuple, float] = {}
    most: dict[tuple, float] = {}
    for backlogged, service in simulate(load, pool, one_is_blocked=one_is_blocked):
        for pair in itertools.combinations(range(len(load)), 2):
            one, other = pair
            if not (backlogged[one] and backlogged[other]):
                least.pop(pair, None)
                most.pop(pair, None)
                continue
            ahead = service[one] - service[other]
            least[pair] = min(ahead, least.get(pair, ahead))
            most[pair] = max(ahead, most.get(pair, ahead))
            assert most[pair] - least[pair] <= bound
