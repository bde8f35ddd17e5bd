"""A purge in the zone core: cached blocks are evicted, once for each id, with a receipt."""

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_runtime.zones.audit.events import Purged
from tests.zones.core import Core, declare


def purge(core, id, *others, **fields):
    return core.apply(declare("acme", purge=id, **fields), *others)


def test_what_is_cached_goes_and_what_is_in_use_stays():
    core = Core()
    purge(core, "")
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=5, in_use=2)
    core.events("purged")
    assert purge(core, "one") == [("acme", 5)]
    assert (acme.in_use, acme.purges, acme.counters.evicted) == (2, 1, {"purge": 5})
    assert core.events("purged") == [Purged("acme", "one", 5, 0)]
    core.check()


def test_an_id_is_carried_out_once():
    core = Core()
    for id, lost in (("", 0), ("one", 5), ("one", 0), ("", 0), ("one", 0), ("two", 5)):
        gone = purge(core, id)
        assert sum(blocks for _, blocks in gone) == lost, id
        core.hold(core.ledger.zones["acme"], cached=5 - len(core.ledger.zones["acme"].cached))


def test_a_zone_that_is_new_has_carried_it_out():
    core = Core()
    purge(core, "one")
    acme = core.ledger.zones["acme"]
    assert (acme.purge.id, acme.purge.is_complete, acme.purge.evicted) == ("one", True, 0)
    assert core.events("purged") == []
    core.hold(acme, cached=5)
    assert purge(core, "one", reserved=10) == []


def test_a_purge_is_complete_when_its_config_is_in_force_whole():
    core = Core()
    purge(core, "")
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=25)
    enforcement = core.tenancy.enforcement
    plan = enforcement.plan(_config(declare("acme", purge="one")))
    enforcement.begin(plan, 0.0)
    parts = []
    for zone, evicted in enforcement.make(enforcement.changes(plan), at_once=10):
        parts.append(len(evicted))
        assert not zone.purge or not zone.purge.is_complete
        if len(parts) == 2:
            # Requests that arrive meanwhile may cache as fast as the purge evicts: it still ends.
            core.hold(acme, cached=10)
    assert parts == [0, 10, 10, 5]
    assert len(acme.cached) == 10
    enforcement.end(plan)
    assert acme.purge.is_complete


def _config(*zones):
    return make_config(9, PoolConfig(namespace="n", name="p"), zones)


def test_what_a_purge_evicts_is_scrubbed_before_another_gets_it_and_counted():
    core = Core()
    purge(core, "", scrub="OnTransfer")
    acme = core.ledger.zones["acme"]
    blocks = core.hold(acme, cached=3)
    purge(core, "one", scrub="OnTransfer")
    assert core.ledger.unscrubbed["acme"] == 3
    core.ledger.take(core.zone("burst"), blocks[:2])
    assert core.ledger.take_blocks_to_scrub() == blocks[:2]
    assert (core.ledger.unscrubbed["acme"], acme.counters.scrubbed_blocks) == (1, 2)
    core.ledger.take(acme, blocks[2:])
    assert (core.ledger.unscrubbed["acme"], acme.counters.scrubbed_blocks) == (0, 2)


@given(st.lists(st.tuples(st.sampled_from(["", "one", "two"]), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_nothing_that_was_cached_before_a_purge_is_cached_after_it(steps):
    core, done = Core(), ""
    purge(core, "")
    acme = core.ledger.zones["acme"]
    for id, cached, in_use in steps:
        cached = min(cached, core.free)
        core.hold(acme, cached=cached, in_use=min(in_use, core.free - cached))
        before, used = set(acme.cached), acme.in_use
        purge(core, id)
        if id not in ("", done):
            done = id
            assert not before & set(acme.cached)
            assert acme.purge.evicted == len(before)
        else:
            assert before == set(acme.cached)
        assert acme.in_use == used
        core.check()
