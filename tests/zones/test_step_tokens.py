"""How the tokens of a step are shared out among zones."""

import pytest

from tenantzone_runtime.zones.deficits import CHUNK
from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine


@pytest.fixture
def core():
    return Core(1000)


def computed(engine):
    """Tokens that the last step computed, by tenant."""
    by_tenant = {}
    for work, tokens in engine.computed.items():
        by_tenant[work.zone.spec.tenant] = by_tenant.get(work.zone.spec.tenant, 0) + tokens
    return by_tenant


def test_a_long_prompt_takes_no_more_than_its_zones_share_while_another_zone_has_work(core):
    flood, acme = core.zone("flood"), core.zone("acme", weight=3)
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=5000)
    engine.wait(acme, 10, tokens=4000)

    engine.step()
    assert computed(engine) == {"flood": 250, "acme": 750}
    engine.step()
    assert computed(engine) == {"flood": 250, "acme": 750}, "now that both run, too"


def test_alone_it_has_the_whole_step(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 1000}
    work = engine.wait(acme, 10, tokens=100)
    engine.step()
    assert computed(engine) == {"flood": 900, "acme": 100}
    engine.end(work)
    engine.step()
    assert computed(engine) == {"flood": 1000}
    assert (flood.counters.withheld_tokens, acme.counters.withheld_tokens) == (100, 0)


def test_decodes_come_first_wherever_they_stand(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=100)
    engine.run(flood, 10, tokens=5000)
    engine.run(acme, 10, tokens=5000)
    decodes = [engine.run(zone, 1) for zone in (flood, acme, acme, acme)]
    engine.step()
    assert all(engine.computed[work] == 1 for work in decodes)
    assert computed(engine) == {"flood": 49, "acme": 51}


def test_what_a_zone_was_given_and_could_not_use_is_there_for_who_waits(core):
    flood, cached, acme = core.zone("flood"), core.zone("cached"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=900)
    engine.run(flood, 10, tokens=5000)
    # Most of its prompt turns out to be cached once it is admitted.
    front = engine.wait(cached, 1, tokens=3000)
    engine.wait(acme, 1, tokens=3000)
    tokens_left = engine.tokens_left

    def left_once_admitted(work):
        return 5 if work is front and front not in engine.waiting else tokens_left(work)

    engine.tokens_left = left_once_admitted
    engine.step()
    assert computed(engine) == {"flood": 300, "cached": 5, "acme": 300}


def test_a_prompt_is_not_begun_with_less_than_a_chunk_and_saves_up_for_it(core):
    flood, acme = core.zone("flood", weight=100), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=100_000)
    engine.wait(acme, 1, tokens=500)
    steps = []
    while "acme" not in computed(engine):
        engine.step()
        assert acme.wait_reason == (None if "acme" in computed(engine) else "tokens")
        steps.append(computed(engine))
    assert len(steps) == -(-CHUNK * 101 // 1000)
    assert steps[-1]["acme"] >= CHUNK
    assert all(sum(step.values()) == 1000 for step in steps)


def test_where_nothing_else_can_be_computed_a_short_share_is_enough(core):
    """What nobody can use, since no prompt may be begun with it, goes to who waits: the step is not left empty."""
    first, second = core.zone("first"), core.zone("second")
    engine = SmallEngine(core, step_tokens=CHUNK)
    engine.wait(first, 1, tokens=500)
    engine.wait(second, 1, tokens=500)
    engine.step()
    assert sum(computed(engine).values()) == CHUNK


def test_all_waiting_zones_begin_in_one_step_if_there_is_enough_for_all(core):
    zones = [core.zone(f"tenant-{number}") for number in range(8)]
    engine = SmallEngine(core, step_tokens=1600)
    for zone in zones:
        engine.wait(zone, 1, tokens=5000)
    engine.step()
    assert list(computed(engine).values()) == [200] * 8


def test_an_engine_without_chunks_shares_nothing(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core)
    engine.run(flood, 10, tokens=5000)
    work = engine.wait(acme, 10, tokens=5000)
    assert engine.step() == ([], [work])
    assert engine.arbiter.tokens_for(work, 5000) == 5000


def test_no_seat_no_share(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, seats=1, step_tokens=1000)
    engine.run(flood, 10, tokens=5000)
    engine.wait(acme, 10, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 1000}


def test_no_blocks_no_share(core):
    flood, acme = core.zone("flood"), core.zone("acme", limit=5)
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=5000)
    engine.wait(acme, 10, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 1000}


def test_a_request_that_waits_for_something_else_takes_no_share_and_is_looked_at(core):
    flood, acme, beta = core.zone("flood"), core.zone("acme"), core.zone("beta")
    engine = SmallEngine(core, step_tokens=900)
    engine.run(flood, 10, tokens=5000)
    grammar = engine.wait(acme, 1, tokens=5000, waits_for_else=True)
    engine.wait(beta, 1, tokens=5000)
    engine.step()
    assert computed(engine) == {"flood": 450, "beta": 450}
    assert grammar in engine.looked_at


def test_a_pause_shares_nothing_and_what_runs_ends(core):
    flood, acme = core.zone("flood"), core.zone("acme")
    engine = SmallEngine(core, step_tokens=1000)
    engine.run(flood, 10, tokens=3000)
    engine.wait(acme, 10, tokens=5000)
    engine.is_open = False
    engine.arbiter.pause()
    for _ in range(3):
        engine.step()
        assert computed(engine) == {"flood": 1000}
