"""Room in the encoder: which borrowers are preempted for an entitled zone, and what it costs to find them."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.engine import Encoding
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS
from tenantzone_runtime.zones.resources.encoder_room import EncoderRoom
from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine, Work

NEEDED = 10


class EncoderEngine(SmallEngine):
    """An engine in which one request needs room in the encoder, and others use all of it.

    Args:
        core: the core of its zones.
        waits: the zone of the request that needs room.
        works: the other requests that run.
        encodings: the embeddings of each encoding, and the requests that use it.
    """

    def __init__(self, core, waits, works, encodings):
        super().__init__(core)
        self.waiter = Work(waits, 0, blocks=[])
        self.running = [self.waiter, *works]
        self.encodings = encodings
        self.passes = 0
        """How often the engine was asked for the encodings in use."""

    media_zones = property(lambda self: {work.zone for work in self.running})
    encoder_room = Encoding(0, NEEDED)

    def next_encoding(self, work):
        return Encoding(NEEDED, NEEDED) if work is self.waiter else None

    def encodings_in_use(self):
        self.passes += 1
        return self.encodings

    def freed(self, works):
        leaving = set(works)
        return sum(embeddings for embeddings, users in self.encodings if users <= leaving)


def preempted(engine, waits):
    """The requests that are preempted in the step in which it is the zone's turn."""
    found = []
    ledger = SimpleNamespace(now=0.0)
    room = EncoderRoom(
        engine, ledger, lambda zone: zone is waits, lambda zone: None, lambda work, reason, zone: found.append(work)
    )
    for _ in range(TURN_STEPS):
        room.begin_step()
    assert not found, "it is too early"
    engine.passes = 0
    room.begin_step()
    return found


def make(priorities, drawn):
    core = Core(capacity=100)
    acme = core.zone("acme", grace=0.0)
    zones = [core.zone(f"burst-{number}", priority=each) for number, each in enumerate(priorities)]
    works = [Work(zone, 0, blocks=[]) for zone in zones]
    return acme, EncoderEngine(core, acme, works, [(size, {works[user] for user in users}) for size, users in drawn])


@st.composite
def engines(draw):
    count = draw(st.integers(1, 7))
    users = st.sets(st.integers(0, count - 1), min_size=1, max_size=2)
    drawn = draw(st.lists(st.tuples(st.integers(1, 6), users), max_size=8))
    return make(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)), drawn)


@given(engines())
def test_as_many_borrowers_are_preempted_as_make_enough_room_and_no_more(drawn):
    acme, engine = drawn
    works = engine.running[1:]
    found = preempted(engine, acme)
    if engine.freed(works) < NEEDED:
        assert not found, "it would not be enough"
        return
    assert engine.freed(found) >= NEEDED
    for work in found:
        assert engine.freed(each for each in found if each is not work) < NEEDED, "one is preempted in vain"
    in_turn = sorted(works, key=lambda work: (work.zone.spec.priority, -works.index(work)))
    last = max(map(in_turn.index, found))
    assert engine.freed(in_turn[:last]) < NEEDED, "those of lower priority and the younger ones go first"


def test_borrowers_are_found_by_few_looks_at_the_encodings():
    """Otherwise a client that sends many small images could make each step long."""
    for size, expected in ((1, NEEDED), (0, 0)):
        acme, engine = make([0] * 60, [(size, {number}) for number in range(60)])
        assert len(preempted(engine, acme)) == expected
        assert engine.passes <= 2


def test_what_is_cached_takes_no_computation_that_is_kept_for_another_zone():
    acme, engine = make([0], [(NEEDED, {0})])
    burst = engine.running[1].zone
    room = EncoderRoom(engine, SimpleNamespace(now=0.0), lambda zone: zone is acme, lambda _: None, lambda *_: None)
    room.begin_step()
    assert room.may_have(burst, Encoding(1, 0), Encoding(NEEDED + 1, 0))
    assert not room.may_have(burst, Encoding(1, 0), Encoding(NEEDED, 0))
    assert not room.may_have(burst, Encoding(1, 1), Encoding(NEEDED + 1, NEEDED))
    assert room.may_have(burst, Encoding(1, 1), Encoding(NEEDED + 1, NEEDED + 1))
