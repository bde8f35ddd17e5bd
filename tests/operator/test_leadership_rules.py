"""No two replicas lead at once, whatever their clocks and the network do."""

import itertools
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.leader import lease
from tenantzone_operator.leader.lease import Election, Timing

TIMING = Timing(lease_seconds=15, renew_deadline=10.0, retry=2.0)


@coroutine
def the_network() -> Generator[None, None, None]:
    """An awaitable that continues when a test says so."""
    yield


class StoredLease:
    """The API server's part: versions, and one winner of each."""

    def __init__(self) -> None:
        self.body: dict[str, Any] | None = None
        self._versions = itertools.count(1)

    async def read(self) -> dict[str, Any] | None:
        await the_network()
        found = self.body
        await the_network()
        return found

    async def write(self, before: dict[str, Any] | None, spec: dict[str, Any]) -> dict[str, Any]:
        await the_network()
        if (before or {}).get("version") != (self.body or {}).get("version"):
            raise RestError(409, "the object has been modified")
        if spec.get("leaseTransitions", 0) >= 2**31:
            raise RestError(400, "leaseTransitions is no int32")
        self.body = {"version": next(self._versions), "spec": spec}
        written = self.body
        await the_network()
        return written


class Clock:
    def __init__(self, now: float = 0.0, rate: float = 1.0) -> None:
        self._now, self._rate = now, rate

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds * self._rate


class Candidate:
    """A process that may be stopped, and whose requests may get lost, at any point."""

    def __init__(self, stored: StoredLease, name: str, clock: Clock) -> None:
        self.clock = clock
        self.election = Election(stored, name, TIMING, clock)  # type: ignore[arg-type]
        self._running: Coroutine[Any, Any, Any] | None = None

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    def begin(self, what: Coroutine[Any, Any, Any]) -> None:
        assert self._running is None
        self._running = what
        self.go_on()

    def go_on(self, error: Exception | None = None) -> None:
        """Continues to the next point at which the network has the request."""
        assert self._running is not None
        try:
            if error is None:
                self._running.send(None)
            else:
                self._running.throw(error)
        except (StopIteration, RestError, TimeoutError):
            self._running = None

    def finish(self, what: Coroutine[Any, Any, Any]) -> None:
        """Runs without trouble."""
        self.begin(what)
        while self.is_busy:
            self.go_on()


@pytest.fixture(autouse=True)
def clocks_of_day_are_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process writes another time of day; the times jump back and forth."""
    numbers = itertools.count(1)
    monkeypatch.setattr(lease, "_now", lambda: f"{next(numbers) * 7919 % 9000}-06-01T00:00:00.{next(numbers):06}Z")


def two(**rates: float) -> tuple[StoredLease, Candidate, Candidate]:
    stored = StoredLease()
    return stored, Candidate(stored, "a", Clock(1e6)), Candidate(stored, "b", Clock(0.0, rates.get("b", 1.0)))


def pass_time(seconds: float, *candidates: Candidate) -> None:
    for candidate in candidates:
        candidate.clock.advance(seconds)


def test_the_first_leads_and_the_second_waits():
    _, a, b = two()

    a.finish(a.election.attempt())
    b.finish(b.election.attempt())

    assert a.election.is_leading
    assert not b.election.is_leading
    assert b.election.holder == "a"


def test_a_leader_that_renews_leads_on():
    _, a, b = two()
    for _ in range(20):
        a.finish(a.election.attempt())
        b.finish(b.election.attempt())
        pass_time(2.0, a, b)

    assert a.election.is_leading
    assert not b.election.is_leading


def test_a_leader_that_is_not_answered_stops_at_the_deadline_and_the_next_begins_later():
    _, a, b = two()
    a.finish(a.election.attempt())
    b.finish(b.election.attempt())

    pass_time(9.9, a, b)
    assert a.election.is_leading
    pass_time(0.2, a, b)
    assert not a.election.is_leading
    b.finish(b.election.attempt())
    assert not b.election.is_leading
    pass_time(5.0, a, b)
    b.finish(b.election.attempt())
    assert b.election.is_leading


def test_the_deadline_counts_from_the_question_not_from_the_answer():
    _, a, _ = two()
    a.begin(a.election.attempt())
    pass_time(10.1, a)
    while a.is_busy:
        a.go_on()

    assert not a.election.is_leading


def test_a_leader_that_goes_leaves_the_lease_to_the_next_at_once():
    stored, a, b = two()
    a.finish(a.election.attempt())
    b.finish(b.election.attempt())

    a.finish(a.election.release())
    b.finish(b.election.attempt())

    assert not a.election.is_leading
    assert b.election.is_leading
    assert stored.body is not None
    assert stored.body["spec"]["leaseTransitions"] == 1


def test_a_standby_that_goes_does_not_touch_the_lease():
    stored, a, b = two()
    a.finish(a.election.attempt())
    b.finish(b.election.attempt())
    before = stored.body

    b.finish(b.election.release())

    assert stored.body == before


def test_of_two_that_see_it_free_one_leads():
    _, a, b = two()
    for candidate in (a, b):
        candidate.begin(candidate.election.attempt())
        candidate.go_on()

    while a.is_busy or b.is_busy:
        for candidate in (a, b):
            if candidate.is_busy:
                candidate.go_on()

    assert a.election.is_leading != b.election.is_leading


def test_a_deleted_lease_is_not_free_for_the_others():
    stored, a, b = two()
    a.finish(a.election.attempt())
    b.finish(b.election.attempt())

    stored.body = None
    b.finish(b.election.attempt())

    assert not b.election.is_leading
    a.finish(a.election.attempt())  # finds that it is gone
    a.finish(a.election.attempt())
    assert a.election.is_leading
    assert stored.body is not None
    assert stored.body["spec"]["leaseTransitions"] == 0


def test_who_has_missed_the_last_leader_waits_when_the_lease_is_deleted():
    stored, a, b = two()
    a.finish(a.election.attempt())
    b.finish(b.election.attempt())
    pass_time(15.1, a, b)
    b.finish(b.election.attempt())
    assert b.election.is_leading

    stored.body = None
    a.finish(a.election.attempt())  # finds that it is gone, and believes that it was its own
    a.finish(a.election.attempt())

    assert not a.election.is_leading


@pytest.mark.parametrize(("claimed", "is_free_after"), [(40, 40.0), (2**31 - 1, 60.0)])
def test_a_lease_that_claims_to_last_for_ever_is_free_after_four_of_ones_own(claimed: int, is_free_after: float):
    stored, a, b = two()
    a.finish(a.election.attempt())
    assert stored.body is not None
    stored.body = {"version": 99, "spec": stored.body["spec"] | {"leaseDurationSeconds": claimed}}
    b.finish(b.election.attempt())

    pass_time(is_free_after - 1, b)
    b.finish(b.election.attempt())
    assert not b.election.is_leading
    pass_time(2, b)
    b.finish(b.election.attempt())
    assert b.election.is_leading


@pytest.mark.parametrize("wrong", [(10, 15.0, 2.0), (15, 10.0, 6.0), (15, 10.0, 0.0), (10, 10.0, 2.0)])
def test_durations_that_do_not_go_together_are_refused(wrong: tuple[int, float, float]):
    with pytest.raises(ValueError, match="must exceed"):
        Timing(*wrong)


class TwoCandidates(RuleBasedStateMachine):
    """They stop and continue at any point, requests and answers get lost, and clocks differ and run unevenly."""

    @initialize(rate=st.floats(0.7, 1.4))
    def start(self, rate: float) -> None:
        self.stored = StoredLease()
        self.was_deleted = False
        self.candidates = [
            Candidate(self.stored, "a", Clock(1e6)),
            Candidate(self.stored, "b", Clock(-5.0, rate)),
        ]

    @rule(seconds=st.floats(0.1, 6.0))
    def time_passes(self, seconds: float) -> None:
        pass_time(seconds, *self.candidates)

    @rule(who=st.integers(0, 1))
    def one_tries(self, who: int) -> None:
        candidate = self.candidates[who]
        if not candidate.is_busy:
            candidate.begin(candidate.election.attempt())

    @rule(who=st.integers(0, 1))
    def one_goes_on(self, who: int) -> None:
        if self.candidates[who].is_busy:
            self.candidates[who].go_on()

    @rule(who=st.integers(0, 1))
    def one_finishes(self, who: int) -> None:
        while self.candidates[who].is_busy:
            self.candidates[who].go_on()

    @rule(who=st.integers(0, 1))
    def an_answer_gets_lost(self, who: int) -> None:
        if self.candidates[who].is_busy:
            self.candidates[who].go_on(TimeoutError())

    @rule(who=st.integers(0, 1))
    def one_lets_go(self, who: int) -> None:
        candidate = self.candidates[who]
        if not candidate.is_busy:
            candidate.begin(candidate.election.release())

    @precondition(lambda self: self.stored.body is not None and not self.was_deleted)
    @rule()
    def a_client_deletes_the_lease(self) -> None:
        # A candidate that has never seen it can't know that it was held; nor can one that saw only the first of two.
        if all(candidate.election.holder for candidate in self.candidates):
            self.stored.body = None
            self.was_deleted = True

    @invariant()
    def at_most_one_leads(self) -> None:
        assert sum(candidate.election.is_leading for candidate in self.candidates) <= 1

    def teardown(self) -> None:
        for candidate in self.candidates:
            while candidate.is_busy:
                candidate.go_on(TimeoutError())


TestTwoCandidates = TwoCandidates.TestCase
TestTwoCandidates.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_lease_with_the_greatest_number_of_transitions_is_taken_and_counted_anew(is_deleted: bool):
    stored, a, b = two()
    edited = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "leaseTransitions": 2**31 - 1}
    stored.body = {"version": 99, "spec": edited}
    a.finish(a.election.attempt())
    if is_deleted:
        stored.body = None
        a.finish(a.election.attempt())

    pass_time(15.1, a, b)
    a.finish(a.election.attempt())

    assert a.election.is_leading
    assert stored.body is not None
    assert stored.body["spec"]["leaseTransitions"] == 0
