"""Which requests may run at once, and which gives up a seat for which other."""

from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import ValidationError

from tenantzone_contract.zone_config.fitting import SeatGrant, seat_grants
from tenantzone_contract.zone_config.zone_terms import SeatShare
from tenantzone_runtime.zones.model.zone import SeatQuota
from tenantzone_runtime.zones.resources.seats import own_seats, share_of_seats
from tests.zones.core import Core, declare
from tests.zones.small_engine import SmallEngine, preemptions


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 300))
def test_what_zones_reserve_of_blocks_they_never_reserve_more_of_in_seats(reserved, seats):
    capacity = sum(reserved) + 1
    shares = [share_of_seats(each, capacity, seats) for each in reserved]
    assert all(share * capacity <= each * seats for share, each in zip(shares, reserved, strict=True))
    assert sum(shares) < seats


def full(core: Core, zone, *, seats: int) -> SmallEngine:
    """An engine whose seats are all used by one zone."""
    engine = SmallEngine(core, seats=seats)
    for _ in range(seats):
        engine.run(zone, 1)
    return engine


def test_who_is_entitled_to_a_seat_has_it_in_the_next_step_from_the_youngest_of_who_has_more(core):
    burst, acme = core.zone("burst"), core.zone("acme", reserved=50)
    engine = full(core, burst, seats=4)
    youngest = engine.running[-1]
    work = engine.wait(acme, 5)

    assert engine.step() == ([], [work])

    assert engine.preempted == [youngest]
    assert preemptions(core) == [("burst", "seat", "acme")]


def test_all_that_wait_within_their_seats_and_blocks_have_them_in_one_step(core):
    burst, acme = core.zone("burst"), core.zone("acme", reserved=50)
    engine = full(core, burst, seats=8)
    works = [engine.wait(acme, 5) for _ in range(6)]

    _, admitted = engine.step()

    assert admitted == works[:4]
    assert len(engine.preempted) == 4
    assert engine.step() == ([], []), "it has all of its own"


def test_what_it_has_beyond_its_blocks_it_is_not_entitled_to_in_seats(core):
    burst, acme = core.zone("burst"), core.zone("acme", reserved=50)
    engine = full(core, burst, seats=8)
    works = [engine.wait(acme, 24) for _ in range(4)]

    assert engine.step() == ([], works[:2])

    assert len(engine.preempted) == 2


def test_a_seat_that_is_kept_goes_to_no_zone_whose_turn_it_would_be(core):
    burst, other, acme = core.zone("burst"), core.zone("other"), core.zone("acme", reserved=50)
    engine = full(core, burst, seats=4)
    acme.account.charge(1e6)
    engine.wait(other, 1)
    work = engine.wait(acme, 5)

    assert engine.step() == ([], [work])


def test_who_has_its_own_gives_up_none_and_the_lowest_priority_goes_first(core):
    gold = core.zone("gold", reserved=30, priority=5)
    low, high = core.zone("low", priority=0), core.zone("high", priority=9)
    acme = core.zone("acme", reserved=40)
    engine = SmallEngine(core, seats=10)
    for zone, count in ((low, 3), (high, 4), (gold, 3)):
        for _ in range(count):
            engine.run(zone, 1)
    for _ in range(4):
        engine.wait(acme, 1)

    engine.step()

    assert [work.zone for work in engine.preempted] == [low, low, low, high]


def test_no_zone_gives_up_a_seat_for_a_request_that_can_not_have_its_blocks(core):
    burst, acme = core.zone("burst"), core.zone("acme", reserved=50)
    engine = full(core, burst, seats=4)
    engine.run(burst, 40)
    engine.seats = 5
    engine.wait(acme, 80)
    engine.wait(acme, 1, waits_for_else=True)

    assert engine.step() == ([], [])
    assert engine.preempted == []


def test_no_zone_gives_up_a_seat_for_a_request_that_waits_for_something_else(core):
    burst, acme = core.zone("burst"), core.zone("acme", reserved=50)
    engine = full(core, burst, seats=4)
    engine.wait(acme, 1, waits_for_else=True)

    engine.step()

    assert engine.preempted == []


def test_who_waits_behind_a_request_that_waits_for_something_else_gets_the_seat(core):
    burst, other, acme = core.zone("burst"), core.zone("other"), core.zone("acme", reserved=50)
    engine = full(core, burst, seats=4)
    acme.account.charge(1e6)
    engine.wait(other, 1)
    engine.wait(acme, 1, waits_for_else=True)
    work = engine.wait(acme, 1)

    assert engine.step() == ([], [work])
    assert len(engine.preempted) == 1


def test_what_was_kept_for_a_zone_goes_to_its_next_request_whichever_that_is(core):
    """A request may have waited for the adapter slot of the very request that gives up its seat for the zone."""

    class OneAdapterEngine(SmallEngine):
        def preempt(self, work):
            first.waits_for_else = False
            super().preempt(work)

    burst, acme = core.zone("burst"), core.zone("acme", reserved=30)
    core.zone("calm", cached=70)
    engine = OneAdapterEngine(core, seats=4)
    for count in (10, 10, 5, 5):
        engine.run(burst, count)
    first = engine.wait(acme, 20, waits_for_else=True)
    engine.wait(acme, 20)

    assert engine.step() == ([], [first])

    assert len(engine.preempted) == 1
    assert [event.reason for event in core.events("evicted")] == ["reclaim", "reclaim"], "and no relief in vain"


def test_zones_without_a_seat_of_their_own_share_one_in_turn(core):
    gold = core.zone("gold", reserved=50)
    engine = full(core, gold, seats=4)
    small = [core.zone(f"small-{number}", reserved=1) for number in range(3)]
    works = [engine.wait(zone, 1) for zone in small]

    served = []
    for _ in range(3):
        _, (work,) = engine.step()
        served.append(work)
        assert engine.step() == ([], []), "the seat is in use"
        engine.end(work)
        engine.wait(work.zone, 1)

    assert served == works
    assert [work.zone for work in engine.preempted] == [gold]


def test_the_seat_that_they_share_is_no_more_than_what_owners_leave(core):
    one, two = core.zone("one", reserved=50), core.zone("two", reserved=50)
    small = core.zone("small")
    engine = SmallEngine(core, seats=4)
    engine.run(one, 1)
    engine.run(one, 1)
    engine.run(small, 1)
    engine.run(small, 1)
    works = [engine.wait(two, 1), engine.wait(two, 1)]

    assert engine.step() == ([], works)
    assert [work.zone for work in engine.preempted] == [small, small]


def test_a_reservation_that_grows_brings_its_seats_to_who_waits_already(core):
    burst, acme = core.zone("burst"), core.zone("acme")
    engine = full(core, burst, seats=4)
    engine.wait(core.zone("other"), 1)
    engine.step()
    works = [engine.wait(acme, 1), engine.wait(acme, 1)]
    assert engine.step() == ([], [])

    core.apply(*(declare(name, reserved=60 if name == "acme" else 0) for name in ("acme", "burst", "other")))

    assert engine.step() == ([], works)


@pytest.mark.parametrize("seats", [1, 2, 3])
def test_with_hardly_a_seat_each_zone_gets_in_sooner_or_later(core, seats):
    zones = [core.zone("acme", reserved=40), core.zone("gold", reserved=40), core.zone("burst")]
    engine = SmallEngine(core, seats=seats)
    for zone in zones:
        for _ in range(5):
            engine.wait(zone, 1)

    served = set()
    for _ in range(20):
        served |= {work.zone for work in engine.step()[1]}
        for work in list(engine.running):
            engine.end(work)

    assert served == set(zones)
    assert engine.queues == {}


def test_seats_that_are_reserved_by_name_need_no_blocks(core):
    burst, acme = core.zone("burst"), core.zone("acme", seats=SeatQuota(reserved=2))
    engine = full(core, burst, seats=4)
    works = [engine.wait(acme, 5) for _ in range(3)]

    assert engine.step() == ([], works[:2])
    assert len(engine.preempted) == 2


def test_the_share_that_comes_with_blocks_is_of_what_is_not_reserved_by_name(core):
    burst = core.zone("burst")
    acme, gold = core.zone("acme", reserved=50), core.zone("gold", seats=SeatQuota(reserved=4))
    engine = full(core, burst, seats=8)
    works = [engine.wait(acme, 1) for _ in range(4)] + [engine.wait(gold, 1) for _ in range(4)]

    _, admitted = engine.step()

    assert sorted(map(works.index, admitted)) == [0, 1, 4, 5, 6, 7], "half of the four that are left, and four"


def test_who_reserves_no_seat_by_name_has_none_for_its_blocks(core):
    burst, acme = core.zone("burst"), core.zone("acme", reserved=50, seats=SeatQuota(reserved=0))
    engine = full(core, burst, seats=4)
    engine.wait(acme, 1)

    assert engine.step() == ([], []), "it waits for one like any other"


def test_no_more_run_at_once_than_the_zones_limit_however_many_seats_are_free(core):
    acme, other = core.zone("acme", seats=SeatQuota(limit=2)), core.zone("other")
    engine = SmallEngine(core, seats=8)
    works = [engine.wait(acme, 1) for _ in range(4)]
    another = engine.wait(other, 1)

    _, admitted = engine.step()
    assert set(map(id, admitted)) == set(map(id, [*works[:2], another]))
    assert engine.step() == ([], [])
    engine.end(works[0])
    assert engine.step() == ([], [works[2]])


def test_no_zone_gives_up_a_seat_for_a_request_whose_image_has_no_room(core):
    """Its seat went to others each time, and was taken from one of them in every other step."""
    burst, acme = core.zone("burst"), core.zone("acme", reserved=50)
    engine = full(core, burst, seats=4)
    work = engine.wait(acme, 1, has_no_room=True)
    for _ in range(4):
        assert engine.step() == ([], [])
    assert engine.preempted == []
    work.has_no_room = False
    assert engine.step() == ([], [work])


def test_no_request_yields_blocks_or_seats_for_a_zone_at_its_limit(core):
    burst = core.zone("burst")
    acme = core.zone("acme", reserved=50, seats=SeatQuota(reserved=1, limit=1))
    engine = SmallEngine(core, seats=4)
    engine.run(acme, 1)
    for _ in range(3):
        engine.run(burst, 33)
    engine.wait(acme, 20)

    assert engine.step() == ([], [])
    assert engine.preempted == []


def test_a_limit_that_is_lowered_lets_run_what_runs(core):
    acme = core.zone("acme")
    engine = SmallEngine(core, seats=8)
    running = [engine.run(acme, 1) for _ in range(4)]
    waiting = engine.wait(acme, 1)

    core.apply(declare("acme", seats={"limit": 2}))

    assert engine.step() == ([], [])
    assert engine.running == running
    for work in running[:3]:
        engine.end(work)
    assert engine.step() == ([], [waiting])


def test_a_limit_that_goes_admits_waiting_requests(core):
    core.apply(declare("acme", seats={"limit": "25%"}))
    engine = SmallEngine(core, seats=4)
    acme = core.tenancy.zone_for("acme", 0.0)
    core.apply(declare("acme", seats={"limit": "25%"}))
    works = [engine.wait(acme, 1) for _ in range(3)]
    assert engine.step() == ([], works[:1])

    core.apply(declare("acme"))

    assert engine.step() == ([], works[1:])


def test_of_seats_reserved_by_name_who_is_older_has_them_and_who_does_not_fit_none():
    zones = [declare("old", seats={"reserved": 3}), declare("young", seats={"reserved": 2}), declare("plain")]

    assert seat_grants(zones, 4) == [SeatGrant(3, None, 0), SeatGrant(0, None, 2), SeatGrant(None, None, 0)]
    assert seat_grants(zones, 5) == [SeatGrant(3, None, 0), SeatGrant(2, None, 0), SeatGrant(None, None, 0)]


SEAT_SHARES = st.one_of(st.integers(0, 12), st.integers(0, 100).map("{}%".format))
SEAT_LIMITS = st.one_of(st.none(), st.integers(1, 12), st.integers(1, 100).map("{}%".format))


@given(
    st.lists(st.tuples(st.integers(0, 30), st.one_of(st.none(), SEAT_SHARES), SEAT_LIMITS), max_size=6),
    st.integers(1, 12),
)
def test_whatever_is_reserved_it_is_no_more_than_there_is_and_within_each_limit(asked, seats):
    core = Core(180)
    core.ledger.totals.seats = seats
    zones = []
    for number, (blocks, reserved, limit) in enumerate(asked):
        with suppress(ValidationError):
            share = SeatShare(reserved=reserved, limit=limit)
            zones.append(declare(f"zone-{number}", reserved=blocks, seats=share))
    core.apply(*zones)

    own = {zone.spec.tenant: own_seats(zone.spec, core.ledger.totals) for zone in core.ledger.zones.values()}

    assert sum(own.values()) <= seats
    for zone in core.ledger.zones.values():
        limit = zone.spec.seats.limit
        assert limit is None or own[zone.spec.tenant] <= limit
        assert limit is None or limit >= 1, "a zone that may run nothing could never end a request"


def test_who_waits_for_something_else_takes_no_seat_of_a_limit(core):
    acme = core.zone("acme", seats=SeatQuota(limit=1))
    engine = SmallEngine(core)
    grammar = engine.wait(acme, 1, waits_for_else=True)
    behind = engine.wait(acme, 1)
    assert engine.step() == ([], [behind])
    grammar.waits_for_else = False
    assert engine.step() == ([], []), "its only seat is taken"
    engine.end(behind)
    assert engine.step() == ([], [grammar])


def test_no_zone_gives_up_a_seat_for_a_request_that_finds_no_tokens(core):
    acme, burst = core.zone("acme", seats=1), core.zone("burst", weight=1000)
    engine = SmallEngine(core, seats=4, step_tokens=1000)
    for _ in range(3):
        engine.run(burst, 1)
    engine.run(burst, 1, tokens=10**6)
    work, steps = engine.wait(acme, 1, tokens=5000), 0
    while not work.computed:
        assert preemptions(core) == []
        engine.step()
        steps += 1
    assert preemptions(core) == [("burst", "seat", "acme")]
    assert steps > 30
    assert engine.preempted[0] not in engine.running


def test_long_prompts_that_are_denied_blocks_are_looked_up_in_turns_while_no_seat_is_free():
    """Otherwise, each step would look up all of them."""
    core = Core(10_000)
    burst = core.zone("burst")
    engine = SmallEngine(core, seats=2)
    for _ in range(2):
        engine.run(burst, 4_900)
    waiting = [engine.wait(core.zone(f"zone-{number}", seats=1), 3_000) for number in range(3)]
    engine.step()  # looks at each new request once

    looked_up = []
    for _ in range(30):
        engine.looked_up.clear()
        assert engine.step() == ([], [])
        looked_up.append(list(engine.looked_up))

    assert all(len(works) <= 1 for works in looked_up)
    counts = [sum(works.count(work) for works in looked_up) for work in waiting]
    assert 30 * 1024 // 3_000 <= sum(counts) <= 30 * 1024 // 3_000 + 2
    assert max(counts) - min(counts) <= 1


def test_a_request_that_needs_no_look_up_gets_its_seat_at_once_although_long_prompts_are_looked_up():
    core = Core(10_000)
    burst = core.zone("burst")
    engine = SmallEngine(core, seats=2)
    for _ in range(2):
        engine.run(burst, 4_900)
    for number in range(3):
        engine.wait(core.zone(f"zone-{number}", seats=1), 3_000)
    for _ in range(3):
        assert engine.step() == ([], [])
    short = engine.wait(core.zone("acme", seats=1), 150)
    assert engine.step() == ([], [short])


def test_zones_without_seats_of_their_own_are_looked_up_although_an_owner_waits_with_a_long_prompt():
    core = Core(10_000)
    burst = core.zone("burst", seats=1)
    engine = SmallEngine(core, seats=3)
    for _ in range(3):
        engine.run(burst, 3_200)
    engine.wait(core.zone("owner", seats=1), 3_000)
    short = engine.wait(core.zone("acme"), 100)
    short.shared = 400
    assert [work for _ in range(5) for work in engine.step()[1]] == [short]


@pytest.mark.parametrize("count", [1, 3])
def test_a_zone_that_could_not_be_looked_up_keeps_its_place_for_the_shared_seat(count):
    core = Core(10_000)
    burst = core.zone("burst", seats=1)
    engine = SmallEngine(core, seats=3)
    for _ in range(3):
        engine.run(burst, 3_200)
    for number in range(count):
        engine.wait(core.zone(f"zone-{number}"), 3_000)
    short = engine.wait(core.zone("acme"), 100)
    short.shared = 400
    assert [work for _ in range(5 * (count + 1)) for work in engine.step()[1]] == [short]


def test_a_zone_that_loses_its_seats_to_a_new_zone_takes_part_in_the_shared_seat():
    core = Core(100)
    engine = SmallEngine(core, seats=10)
    small, large = declare("small", reserved=10), declare("large", seats=SeatShare(reserved=9))
    core.apply(small)
    work = engine.wait(core.ledger.zones["small"], 1, waits_for_else=True)
    engine.step()
    core.apply(small, large)
    for _ in range(10):
        engine.run(core.ledger.zones["large"], 1)
        engine.wait(core.ledger.zones["large"], 1)
    engine.step()
    work.waits_for_else = False
    assert engine.step() == ([], [work])
