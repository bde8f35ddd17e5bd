"""Two of vLLM's real schedulers: one finds what the other has cached of a zone."""

import time

import pytest

from hack.harness.scheduler import prompt, vllm_config
from tenantzone_contract.cache.migration import MigrationError, MigrationOrder
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.engine.tiers.migration import TENANTS_AT_ONCE
from tests.engine.sharing_engines import sharing_engines
from tests.engine.tier_worker import CHUNK_BYTES
from tests.shared_tier.conftest import own_manager as manager  # noqa: F401 - a fixture
from tests.shared_tier.engines import HANG, objects
from tests.zones.core import declare

SLOW = CHUNK_BYTES / 3600
"""Bytes a second: one chunk at once, and the next in an hour."""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engines(config, manager):  # noqa: F811 - the fixture
    with sharing_engines(config, manager) as make:
        yield make


@pytest.fixture
def alone(engines, manager):  # noqa: F811 - the fixture
    """Two engines; the first has computed prompts while there was no manager."""

    def make(*prompts, chunks=60, **options):
        first, second = engines(2, chunks=chunks, **options)
        manager.kill()
        for tokens in prompts:
            first.ask("acme", tokens)
        manager.start()
        wait(first, lambda: not first.shared.problem)
        return first, second

    return make


def wait(engine, condition):
    """Makes steps as the engine core does until the condition holds."""
    until = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        if engine.scheduler.has_requests():
            engine.step()
        engine.scheduler.let_time_pass()
        time.sleep(0.001)


def order(engine, what, *, tenant="acme", **more):
    engine.served.migration.do(MigrationOrder(order=what, tenant=tenant, **more))


def report(engine, tenant="acme", *, with_prompts=False):
    return engine.served.migration.report(tenant, with_prompts=with_prompts)


def move(engine, what, **more):
    """Gives an order. Returns its outcome."""
    order(engine, what, **more)
    wait(engine, lambda: not report(engine).is_running)
    return report(engine)


def recent(engine):
    return report(engine, with_prompts=True).prompts


def has_nothing_left(engine):
    """Moved prompts leave no trace, and each chunk has one place."""
    engine.rest()
    connector = engine.scheduler.connector.scheduler
    connector.manager.primary_tier.tier.check()
    return not (connector._req_status or connector.manager._req_state or connector._jobs or connector.manager._jobs)


def forget_memory(engine):
    """Empties CPU memory; only blocks still have content."""
    for _ in engine.scheduler.connector.scheduler.manager.primary_tier.forget_all():
        pass


@pytest.mark.parametrize("memory", [True, False], ids=["from memory", "from blocks"])
def test_what_no_storage_has_is_handed_down_and_found_by_the_other(alone, manager, memory):  # noqa: F811
    tokens = prompt(12)
    first, second = alone(tokens)
    if not memory:
        forget_memory(first)
    assert not objects(manager)
    seen = move(first, "look")
    assert (seen.state, seen.found, seen.left, seen.moved) == ("Done", 0, 12, 0)
    done = move(first, "hand-down")
    assert (done.state, done.moved, done.found, done.left) == ("Done", 12, 12, 0)
    assert (done.moved_bytes, done.prompts_done) == (12 * CHUNK_BYTES, 1)
    assert len(objects(manager)) == 12
    second.ask("acme", tokens)
    assert second.worker.loaded == 12
    assert has_nothing_left(first)


def test_what_is_there_is_not_sent_again(engines):
    first, _ = engines()
    first.ask("acme", prompt(8))
    done = move(first, "hand-down")
    assert (done.moved, done.found, done.left) == (0, 8, 0)


def test_beginnings_that_prompts_share_are_moved_once(alone, manager):  # noqa: F811
    begun = prompt(4)
    first, _ = alone([*begun, *prompt(3)], [*begun, *prompt(2)])
    done = move(first, "hand-down")
    assert (done.prompts_total, done.moved, done.found) == (2, 9, 9)
    assert len(objects(manager)) == 9


def test_it_keeps_to_its_pace_and_the_engine_rests_meanwhile(alone):
    first, _ = alone(prompt(6))
    order(first, "hand-down", bytes_per_second=SLOW)
    wait(first, lambda: report(first).moved == 1 and not first.scheduler.has_requests())
    assert report(first).is_running
    assert not first.scheduler.connector.scheduler.migration.wants_step


def test_who_stops_it_goes_on_from_there_later(alone, manager):  # noqa: F811
    first, _ = alone(prompt(6))
    order(first, "hand-down", bytes_per_second=SLOW)
    wait(first, lambda: report(first).moved == 1)
    order(first, "stop")
    assert (report(first).state, report(first).problem) == ("Stopped", "stopped on request")
    assert has_nothing_left(first)
    assert len(objects(manager)) == 1
    assert move(first, "hand-down").moved == 5


def test_a_migration_that_is_not_polled_stops(alone):
    first, _ = alone(prompt(6))
    migration = first.scheduler.connector.scheduler.migration
    order(first, "hand-down", bytes_per_second=SLOW)
    migration.patience = 0.0
    wait(first, lambda: migration.tasks["acme"].state == "Stopped")
    assert report(first).problem.startswith("no client has asked about it")


def test_an_engine_that_sleeps_is_woken(alone):
    first, _ = alone(prompt(3))
    migration, woken = first.scheduler.connector.scheduler.migration, []
    migration.wake = lambda: woken.append(True)
    order(first, "hand-down")
    assert woken
    assert first.scheduler.has_requests()
    woken.clear()
    first.scheduler.let_time_pass()
    assert woken
    migration.stop_all("the test has seen enough")
    woken.clear()
    first.scheduler.let_time_pass()
    assert not woken


def test_the_other_brings_up_what_was_used_last_within_its_share(engines):
    first, second = engines()
    prompts = [prompt(6) for _ in range(3)]
    for tokens in (*prompts, prompts[0]):
        first.ask("acme", tokens)
    second.declare(declare("acme", tiers=(TierShare(tier="cpu", limit=13 * CHUNK_BYTES),)), declare("burst"))
    done = move(second, "warm-up", prompts=recent(first))
    assert (done.state, done.moved, done.found, done.left) == ("Done", 13, 13, 5)
    # The last two prompts, and a chunk: that is what the engine has without the storages.
    second.shared.zones["acme"].no_store = True
    loaded = []
    for tokens in (prompts[0], prompts[2], prompts[1]):
        before = second.worker.loaded
        second.ask("acme", [*tokens, 1])
        loaded.append(second.worker.loaded - before)
    assert loaded[:2] == [6, 6]


def test_who_has_a_reservation_loses_nothing_to_what_is_brought_up(engines):
    first, second = engines(2, chunks=20)
    for _ in range(4):
        first.ask("acme", prompt(6))
    share = TierShare(tier="cpu", reserved=12 * CHUNK_BYTES)
    second.declare(declare("acme"), declare("burst", tiers=(share,)))
    tokens = prompt(12)
    second.ask("burst", tokens)
    tier = second.scheduler.connector.scheduler.manager.primary_tier.tier
    assert tier.ledger.zones["burst"].held == 12
    done = move(second, "warm-up", prompts=recent(first))
    assert done.moved == 8
    assert tier.ledger.zones["burst"].held == 12


def test_what_is_in_memory_already_is_not_brought_up_again(engines):
    first, second = engines()
    tokens = prompt(6)
    first.ask("acme", tokens)
    assert move(second, "warm-up", prompts=recent(first)).moved == 6
    done = move(second, "warm-up", prompts=recent(first))
    assert (done.moved, done.found) == (0, 6)
    assert has_nothing_left(second)


def test_a_prompt_longer_than_the_zones_share_of_memory_is_handed_down_whole(alone):
    first, second = alone(tokens := prompt(12))
    forget_memory(first)
    first.declare(declare("acme", tiers=(TierShare(tier="cpu", limit=4 * CHUNK_BYTES),)), declare("burst"))
    done = move(first, "hand-down")
    assert (done.moved, done.left) == (12, 0)
    second.ask("acme", tokens)
    assert second.worker.loaded == 12


def test_who_may_have_nothing_in_memory_is_not_moved(alone):
    first, _ = alone(prompt(3))
    first.declare(declare("acme", tiers=(TierShare(tier="cpu", limit=0),)), declare("burst"))
    done = move(first, "hand-down")
    assert (done.state, done.moved, done.left) == ("Done", 0, 3)


def test_copies_are_made_before_blocks_are_given_to_others(alone):
    tokens = prompt(12)
    first, second = alone(tokens, capacity=16)
    forget_memory(first)
    first.worker.fastest = first.worker.slowest = 40
    order(first, "hand-down")
    wait(first, lambda: first.worker.is_copying)
    first.send("burst", prompt(15))
    wait(first, lambda: not report(first).is_running)
    assert report(first).moved == 12
    # Workers compare what they read with what it should be.
    second.ask("acme", tokens)
    assert second.worker.loaded == 12


def test_what_requests_use_is_left_to_them(alone):
    tokens = prompt(6)
    first, _ = alone(tokens)
    forget_memory(first)
    (hashes,) = recent(first)
    connector = first.scheduler.connector.scheduler
    assert len(connector.cached_blocks("acme", hashes)) == 6
    assert connector.cached_blocks("burst", hashes) is None
    first.send("acme", tokens, max_tokens=9)
    first.step()
    assert connector.cached_blocks("acme", hashes[:1]) is None
    first.rest()
    assert len(connector.cached_blocks("acme", hashes)) == 6


def test_a_purge_ends_it_and_nothing_of_before_is_named(alone, manager):  # noqa: F811
    first, _ = alone(prompt(6))
    order(first, "hand-down", bytes_per_second=SLOW)
    wait(first, lambda: report(first).moved == 1)
    first.declare(declare("acme", purge="once"), declare("burst"))
    assert recent(first) == ()
    assert report(first).state == "None"
    assert move(first, "hand-down").prompts_total == 0


@pytest.mark.parametrize(("offload", "blocks"), [("All", 5), ("Prompt", 3), ("Never", 0)])
def test_no_more_is_named_than_goes_on_in_tiers(engines, offload, blocks):
    (first,) = engines(1)
    first.declare(declare("acme", offload=offload), declare("burst"))
    first.ask("acme", prompt(3), max_tokens=2 * 16 + 1)
    assert sum(map(len, recent(first))) == blocks


def test_of_prompts_no_more_is_remembered_than_is_cached(engines):
    (first,) = engines(1, capacity=20, chunks=20)
    for _ in range(12):
        first.ask("acme", prompt(6))
    assert 20 <= sum(map(len, recent(first))) <= 40
    first.declare(declare("burst"))
    assert recent(first) == ()


def test_of_thousands_of_tenants_a_turn_looks_at_some_and_each_comes_in_its_turn(engines):
    (first,) = engines(1)
    first.ask("acme", prompt(6))
    migration = first.scheduler.connector.scheduler.migration
    for number in range(10 * TENANTS_AT_ONCE):
        migration.recent.note(f"gone-{number}", [b"a block"])
    for _ in range(11):
        before = len(migration.recent.tenants)
        first.scheduler.let_time_pass()
        assert before - len(migration.recent.tenants) <= TENANTS_AT_ONCE
    assert migration.recent.tenants == ["acme"]
    assert sum(map(len, recent(first))) == 6


def test_a_manager_that_is_gone_fails_it_and_no_request(alone, manager):  # noqa: F811
    tokens = prompt(6)
    first, _ = alone(tokens)
    manager.kill()
    done = move(first, "hand-down")
    assert done.state == "Failed"
    assert "the KV-cache manager d" in done.problem, "it does not answer, or did not say"
    first.ask("acme", tokens)
    assert has_nothing_left(first)


def test_a_zone_that_keeps_nothing_in_storages_fails_it_and_not_the_manager(engines):
    first, second = engines()
    first.ask("acme", prompt(3))
    second.declare(declare("acme", offload="Never"), declare("burst"))
    done = move(second, "warm-up", prompts=recent(first))
    assert done.problem == "the zone stores nothing in storages, because of its offload or retention setting"
    assert has_nothing_left(second)


def test_what_is_still_being_removed_fails_it_and_not_the_manager(engines, manager):  # noqa: F811
    first, second = engines()
    first.ask("acme", prompt(3))
    manager.kill()
    second.declare(declare("acme", offload="Never"), declare("burst"))
    second.declare(declare("acme"), declare("burst"))
    done = move(second, "warm-up", prompts=recent(first))
    assert done.problem == "the zone's earlier chunks in storages are still being removed; try again later"


def test_a_reset_ends_it(alone):
    first, _ = alone(prompt(6))
    order(first, "hand-down", bytes_per_second=SLOW)
    wait(first, lambda: report(first).moved == 1)
    first.scheduler.reset_prefix_cache(reset_connector=True)
    assert report(first).state == "Stopped"
    assert has_nothing_left(first)


def test_one_zone_is_moved_at_a_time(alone):
    first, _ = alone(prompt(6))
    order(first, "hand-down", bytes_per_second=SLOW)
    with pytest.raises(MigrationError, match="the zone of tenant acme is being moved"):
        order(first, "hand-down", tenant="burst")
    with pytest.raises(MigrationError, match="tenant unknown has no zone"):
        order(first, "look", tenant="unknown")
    order(first, "hand-down")
    wait(first, lambda: report(first).state == "Done")
    assert report(first).moved == 6
