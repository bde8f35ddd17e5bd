"""Random turns of the fair queue, compared with a scan of all waiting accounts."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenantzone_runtime.zones.model.fair_queue import Account, FairQueue
from tests.zones.reference import Vtc


class Turns(RuleBasedStateMachine):
    """The queue against a scan of all waiting accounts, with rounds in which any account may be admitted."""

    def __init__(self):
        super().__init__()
        self.queue = FairQueue()
        self.naive = Vtc()
        self.accounts = {}
        for name, weight in (("acme", 1), ("burst", 2), ("calm", 3), ("dusk", 1)):
            self.accounts[name] = Account(weight=weight)
            self.naive.service[name], self.naive.weight[name] = 0.0, weight

    names = st.sampled_from(("acme", "burst", "calm", "dusk"))

    @rule(name=names)
    def enter(self, name):
        self.queue.enter(self.accounts[name])
        self.naive.enter(name)

    @rule(name=names)
    def leave(self, name):
        self.queue.leave(self.accounts[name])
        self.naive.leave(name)

    @rule(name=names, weight=st.integers(1, 3))
    def follow(self, name, weight):
        self.accounts[name].weight = self.naive.weight[name] = weight

    @rule(name=names, cost=st.integers(1, 50))
    def generate(self, name, cost):
        """Charges a running request, whether others of its zone wait or not."""
        self.accounts[name].charge(cost)
        self.naive.service[name] += cost / self.naive.weight[name]

    @precondition(lambda self: self.naive.waiting)
    @rule(cost=st.integers(1, 50))
    def serve(self, cost):
        account = self.queue.next(lambda account: True)
        least = min(self.naive.service[name] for name in self.naive.waiting)
        name = next(name for name, other in self.accounts.items() if other is account)
        assert name in self.naive.waiting
        assert account.service == least
        account.charge(cost)
        self.naive.served(least)
        self.naive.service[name] += cost / self.naive.weight[name]
        self.queue.end_round()
        self.naive.end_round()

    @rule(admitted=st.sets(names))
    def serve_those_that_can_be_admitted(self, admitted):
        order = []
        while (account := self.queue.next(lambda account: self._name_of(account) in admitted)) is not None:
            order.append(self._name_of(account))
            self.queue.leave(account)
        expected = sorted(
            (name for name in self.naive.waiting if name in admitted), key=lambda name: self.naive.service[name]
        )
        assert [self.naive.service[name] for name in order] == [self.naive.service[name] for name in expected]
        assert set(order) == set(expected)
        for name in order:
            self.naive.served(self.naive.service[name])
            self.naive.leave(name)
        self.queue.end_round()
        self.naive.end_round()

    @invariant()
    def all_agree(self):
        for name, account in self.accounts.items():
            assert account.service == self.naive.service[name]
            assert bool(account.ticket) == (name in self.naive.waiting)

    def _name_of(self, account):
        return next(name for name, other in self.accounts.items() if other is account)


TestTurns = Turns.TestCase
