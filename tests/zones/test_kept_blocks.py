"""Blocks that a step keeps for waiting and running requests within their zones' reservations.

Blocks kept for one zone are not given to another as its own reservation. That matters where a zone uses others'
reservations: otherwise there is enough for all promises.
"""

from tests.zones.small_engine import SmallEngine


def pause(engine):
    """From now on the engine admits no waiting requests, and lends what zones reserve and do not use."""
    engine.is_open = False
    engine.arbiter.pause()
    assert engine.step()[1] == []


def resume(engine):
    engine.is_open = True
    engine.arbiter.pause()


# For waiting requests


def test_what_a_waiting_request_was_promised_no_running_one_takes_before_it(core, engine):
    acme, calm, burst = core.zone("acme", reserved=41), core.zone("calm", reserved=59), core.zone("burst")
    engine.run(acme, 40)
    grows = engine.run(calm, 39, asks=20)
    borrower = engine.run(burst, 1)
    last_block = engine.wait(acme, 1)
    assert core.free == 20
    assert engine.step() == ([grows], [last_block])
    assert engine.preempted == []
    assert engine.step() == ([], [])
    assert (len(grows.blocks), engine.preempted) == (59, [borrower])


def test_no_more_is_kept_for_a_waiting_request_than_it_needs_in_addition_to_its_zones_use(core, engine):
    acme, calm, burst = core.zone("acme", reserved=60), core.zone("calm", reserved=40), core.zone("burst")
    engine.run(acme, 10)
    engine.run(calm, 20, asks=20)
    engine.run(burst, 30)
    work = engine.wait(acme, 15, shared=30)
    assert core.free == 40
    assert engine.step() == ([], [work])
    assert engine.preempted == []


def test_nothing_is_kept_for_a_request_that_can_not_be_admitted_yet_for_another_reason(core, engine):
    calm, acme, busy = (
        core.zone(tenant, reserved=reserved) for tenant, reserved in (("calm", 20), ("acme", 40), ("busy", 40))
    )
    grows = engine.run(busy, 20, asks=20)
    engine.run(core.zone("burst"), 40)
    core.hold(core.ledger.zones["burst"], cached=30)
    work, compiles = engine.wait(calm, 20), engine.wait(acme, 40, waits_for_else=True)
    assert core.free == 10
    assert engine.step() == ([], [work])
    assert (len(grows.blocks), engine.preempted, acme.wait_reason) == (40, [], None)
    assert engine.queues == {acme: [compiles]}


def test_where_blocks_abound_no_prefix_is_looked_up(core, engine):
    works = [engine.wait(core.zone("acme", reserved=40), 40), engine.wait(core.zone("calm", reserved=60), 60)]
    assert engine.step() == ([], works)
    assert engine.looked_up == []


def test_who_was_admitted_has_its_blocks_and_keeps_none_from_those_that_come_next_in_the_step(core, engine):
    core.zone("asleep", reserved=10)
    core.zone("burst", in_use=10, cached=50)
    works = [engine.wait(core.zone("acme", reserved=40), 40), engine.wait(core.zone("calm", reserved=50), 50)]
    assert core.free == 40
    assert engine.step() == ([], works)


def test_what_was_kept_in_a_step_is_kept_no_more_in_the_next(core):
    engine = SmallEngine(core, seats=2)
    acme, calm, burst = core.zone("acme", reserved=40), core.zone("calm", reserved=60), core.zone("burst")
    grows = engine.run(calm, 40, asks=20)
    engine.run(burst, 20)
    work = engine.wait(acme, 40)
    assert engine.step()[0] == [grows], "there is no seat for who waits, but its blocks are there"
    engine.leave(work)
    assert engine.step()[0] == []


# For running requests


def test_who_goes_on_has_its_blocks_and_keeps_none_from_those_that_are_admitted_in_the_step(core, engine):
    core.zone("asleep", reserved=10)
    core.zone("burst", in_use=10, cached=50)
    engine.predicted = [engine.run(core.zone("acme", reserved=40), 10, asks=30)]
    work = engine.wait(core.zone("calm", reserved=50), 50)
    assert core.free == 30
    assert engine.step() == ([], [work])


def test_who_was_sent_back_to_wait_keeps_no_blocks_from_those_that_go_on_in_the_step(core, engine):
    """The last request of a zone at its limit was to have five blocks, before another asked for ten."""
    acme, calm = core.zone("acme", reserved=30, limit=30), core.zone("calm", reserved=59)
    last = engine.run(acme, 10, asks=5, rank=1)
    first = engine.run(acme, 10, asks=10)
    grows = engine.run(calm, 10, asks=49)
    core.zone("other", reserved=11, in_use=1)
    core.zone("burst", in_use=9, cached=60)
    engine.predicted = [last, first]
    engine.is_open = False
    engine.arbiter.pause()
    assert core.free == 0
    assert engine.step() == ([], [])
    assert (engine.preempted, len(first.blocks), len(grows.blocks)) == ([last], 20, 59)


# After a pause, in which reservations were lent


def test_what_an_owner_reclaims_after_a_pause_goes_to_no_other_in_that_step(core, engine):
    acme, burst = core.zone("acme", reserved=40), core.zone("burst")
    old, young = engine.run(burst, 50), engine.run(burst, 50)
    work = engine.wait(acme, 40)
    pause(engine)
    assert acme.quiet
    resume(engine)
    old.count = 11
    assert engine.step() == ([old], [work])
    assert engine.preempted == [young]


def test_all_owners_get_what_they_were_promised_in_the_first_step_after_a_pause(core, engine):
    one, other, burst = core.zone("one", reserved=40), core.zone("other", reserved=40), core.zone("burst")
    borrower = engine.run(burst, 50)
    core.hold(burst, cached=30)
    works = [engine.wait(one, 40), engine.wait(other, 40)]
    pause(engine)
    assert one.quiet
    assert other.quiet
    resume(engine)
    assert engine.step() == ([], works)
    assert engine.preempted == [borrower]


def test_predicted_needs_of_requests_of_one_zone_are_kept_once(core, engine):
    acme, burst = core.zone("acme", reserved=60), core.zone("burst")
    core.zone("asleep", reserved=40)
    engine.predicted = [engine.run(acme, 1, asks=1) for _ in range(12)]
    for _ in range(8):
        engine.run(burst, 9)
    core.hold(burst, in_use=4)
    assert core.free == 12
    assert engine.step() == ([], [])
    assert engine.preempted == []


def test_nor_does_the_zone_send_back_its_own_request_for_it(core, engine):
    acme = core.zone("acme", reserved=40)
    core.zone("asleep", reserved=60)
    engine.predicted = [engine.run(acme, 15, asks=5), engine.run(acme, 15, asks=5)]
    core.hold(core.zone("burst"), in_use=60)
    assert core.free == 10
    assert engine.step() == ([], [])
    assert engine.preempted == []


def test_what_was_lent_in_a_pause_and_is_there_is_its_owners_in_the_first_step(core, engine):
    acme = core.zone("acme", reserved=40)
    borrower, work = engine.run(core.zone("burst"), 55), engine.wait(acme, 40)
    for is_open in (False, True):
        engine.is_open = is_open
        engine.arbiter.pause()
        if not is_open:
            engine.step()
    borrower.count = 10
    assert engine.step() == ([borrower], [work])


def test_no_request_yields_to_one_that_was_sent_back_in_the_same_step(core, engine):
    """Preempting other requests can't free what its zone's running request was sent back for."""
    acme, burst = core.zone("acme", reserved=20), core.zone("burst")
    old, young = engine.run(acme, 16, asks=1), engine.run(acme, 4)
    for _ in range(8):
        engine.run(burst, 10)
    engine.predicted = [old]
    assert engine.step() == ([], [])
    assert engine.preempted == [young]
    assert len(old.blocks) == 17


def test_a_front_is_entitled_to_what_its_running_requests_leave_of_the_reservation(core, engine):
    acme, burst = core.zone("acme", reserved=20), core.zone("burst")
    running = engine.run(acme, 12, asks=5)
    for _ in range(8):
        engine.run(burst, 10)
    engine.predicted = [running]
    engine.wait(acme, 5)
    assert engine.step() == ([], [])
    assert engine.preempted == [], "22 blocks would be more than 20"
    assert len(running.blocks) == 17


def test_a_running_request_within_its_reservation_goes_on_whatever_its_zones_front_asks_for(engine, core):
    acme, burst = core.zone("acme", reserved=4), core.zone("burst")
    core.zone("gold", reserved=3, cached=2)
    running = engine.run(acme, 1, asks=2)
    engine.run(acme, 1)
    engine.run(burst, 94)
    engine.predicted = [running]
    front = engine.wait(acme, 1)
    assert engine.step() == ([], [])
    assert (len(running.blocks), engine.queues[acme], engine.preempted) == (3, [front], [])


def test_what_a_front_may_not_need_is_kept_for_it_only_while_no_other_needs_it(core, engine):
    """It finds half of its blocks in use by others of its zone."""
    acme, lead, burst = core.zone("acme", reserved=50), core.zone("lead", reserved=40), core.zone("burst")
    engine.run(acme, 5)
    engine.run(burst, 50)
    works = [engine.wait(acme, 5, shared=5), engine.wait(lead, 40)]
    assert engine.step() == ([], works)
    assert engine.preempted == []
