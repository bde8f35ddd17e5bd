"""Random turns of the fair queue, compared with a scan of all waiting accounts."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenantzone_runtime.zones.model.fair_queue import Account, FairQueue
from tests.zones.reference import Pool, Zone


class Turns(RuleBasedStateMachine):
    """The queue against a scan of all waiting accounts, with rounds in which any account may be admitted."""

    def __init__(self):
        super().__init__()
        self.queue = FairQueue()
        self.naive = Pool(capacity=0)
        self.waiting = []
        """Zones of the naive model with waiting requests."""
        self.accounts = {}
        for name, weight in (("acme", 1), ("burst", 2), ("calm", 3), ("dusk", 1)):
            self.accounts[name] = Account(weight=weight)
            self.naive.zones[name] = Zone(name, weight=weight)

    names = st.sampled_from(("acme", "burst", "calm", "dusk"))

    @rule(name=names)
    def enter(self, name):
        self.queue.enter(self.accounts[name])
        zone = self.naive.zones[name]
        if zone not in self.waiting:
            self.naive.lift(zone)
            self.waiting.append(zone)

    @rule(name=names)
    def leave(self, name):
        self.queue.leave(self.accounts[name])
        self.waiting = [zone for zone in self.waiting if zone.tenant != name]

    @rule(name=names, weight=st.integers(1, 3))
    def follow(self, name, weight):
        self.accounts[name].weight = self.naive.zones[name].weight = weight

    @rule(name=names, cost=st.integers(1, 50))
    def generate(self, name, cost):
        """Charges a running request, whether others of its zone wait or not."""
        self.accounts[name].charge(cost)
        self.naive.charge(self.naive.zones[name], cost)

    @precondition(lambda self: self.waiting)
    @rule(cost=st.integers(1, 50))
    def serve(self, cost):
        account = self.queue.next(lambda account: True)
        zone = self._zone_of(account)
        assert zone in self.waiting
        assert account.service == self.naive.next_zone(self.waiting).service
        account.charge(cost)
        self.naive.admit(zone)
        self.naive.charge(zone, cost)
        self._end_round()

    @rule(admitted=st.sets(names))
    def serve_those_that_can_be_admitted(self, admitted):
        while (account := self.queue.next(lambda account: self._zone_of(account).tenant in admitted)) is not None:
            zone = self._zone_of(account)
            could_be = [zone for zone in self.waiting if zone.tenant in admitted]
            assert zone in could_be
            assert zone.service == self.naive.next_zone(could_be).service
            self.queue.leave(account)
            self.naive.admit(zone)
            self.waiting.remove(zone)
        assert not any(zone.tenant in admitted for zone in self.waiting)
        self._end_round()

    @invariant()
    def all_agree(self):
        for name, account in self.accounts.items():
            zone = self.naive.zones[name]
            assert account.service == zone.service
            assert bool(account.ticket) == (zone in self.waiting)

    def _zone_of(self, account):
        return next(self.naive.zones[name] for name, other in self.accounts.items() if other is account)

    def _end_round(self):
        self.queue.end_round()
        for zone in self.waiting:
            self.naive.lift(zone)


TestTurns = Turns.TestCase
