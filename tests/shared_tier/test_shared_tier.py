"""Two engines of a pool over one manager: what one stores, the other loads, for the same tenant only."""

import pytest

from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.transfers import storing
from tests.shared_tier.engines import OBJECT, Engine, calls, contents, group, objects, prompt, questions, tenant
from tests.zones.core import declare


def test_what_one_engine_has_stored_another_one_loads(engine):
    acme, keys = tenant(), prompt("a", 8)
    first, second = engine(zones=[declare(acme)]), engine(zones=[declare(acme)])
    assert first.store(acme, keys[:5]) == keys[:5]
    assert second.load(acme, keys) == contents(keys[:5])
    assert second.store(acme, keys, first=5) == keys[5:], "the conversation goes on there"
    assert first.load(acme, keys) == contents(keys)
    assert (second.counts(acme).hits, second.counts(acme).read, second.counts(acme).written) == (5, 5, 3)


def test_what_is_there_is_not_written_again(engine, manager):
    acme, keys = tenant(), prompt("a", 4)
    first, second = engine(zones=[declare(acme)]), engine(zones=[declare(acme)])
    first.store(acme, keys)
    before = len(objects(manager))
    assert second.store(acme, keys) == keys
    assert (second.counts(acme).written, len(objects(manager))) == (0, before)


def test_there_is_one_question_for_each_request(engine, manager):
    acme, keys = tenant(), prompt("a", 50)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    asked = questions(manager)
    assert mine.found(acme, keys) == 50
    assert questions(manager) == asked + 1


def test_what_is_behind_the_blocks_that_a_call_may_name_is_not_stored(engine, manager, monkeypatch):
    monkeypatch.setattr(storing, "MOST_KEYS", 5)
    acme, keys = tenant(), prompt("a", 8)
    mine = engine(zones=[declare(acme)])
    assert mine.store(acme, keys) == keys[:5]
    asked = calls(manager, "StartWriteCache")
    assert mine.store(acme, keys, first=6) == []
    assert calls(manager, "StartWriteCache") == asked, "it would refuse that"


def test_a_request_that_found_all_above_the_tier_counts_as_a_use(engine, manager):
    acme, keys = tenant(), prompt("a", 3)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    mine.wait(lambda: mine.tier.zones[acme].held_bytes)
    asked = questions(manager)
    mine.tier.ended(acme, Query(keys))
    mine.wait(lambda: questions(manager) == asked + 1)


def test_another_tenant_finds_nothing_even_with_the_same_keys(engine):
    acme, burst, keys = tenant(), tenant(), prompt("a", 3)
    mine = engine(zones=[declare(acme), declare(burst)])
    mine.store(acme, keys)
    assert (mine.found(burst, keys), mine.found(acme, keys)) == (0, 3)


@pytest.mark.parametrize("part", ["weights_revision", "dtype", "salt_key_id", "engine_version"])
def test_an_engine_whose_bytes_mean_something_else_finds_nothing(engine, part):
    acme, keys = tenant(), prompt("a", 3)
    engine(zones=[declare(acme)]).store(acme, keys)
    assert engine(zones=[declare(acme)], **{part: "another"}).found(acme, keys) == 0


def test_another_pool_finds_nothing_though_it_says_the_same(engine, manager):
    acme, keys = tenant(), prompt("a", 3)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    other = Engine(manager.url, pool="chat", token="other", zones=[declare(acme)])
    assert other.found(acme, keys) == 0
    assert other.store(acme, keys) == []
    assert "ml.chat" in other.tier.problem, "its engines may not register in the group of another pool"
    other.stop()


def test_an_object_opens_at_its_own_place_only(engine, manager):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    one, two = ([path for path in objects(manager, acme) if path.name.startswith(key.hex())] for key in keys)
    two[0].write_bytes(one[0].read_bytes())
    assert mine.load(acme, keys) == contents(keys[:1])
    assert mine.counts(acme).corrupt == 1
    mine.wait(lambda: mine.found(acme, keys) == 1)
    assert mine.store(acme, keys, first=1) == keys[1:], "it is written anew"
    assert mine.load(acme, keys) == contents(keys)


def test_an_older_write_of_the_same_chunk_does_not_open_at_the_place_of_a_newer(engine, manager):
    acme, keys = tenant(), prompt("a", 1)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    (older,) = objects(manager, acme)
    content = older.read_bytes()
    mine.tier.lose(acme, keys)
    mine.wait(lambda: mine.store(acme, keys) == keys and len(objects(manager, acme)) == 2)
    (newer,) = set(objects(manager, acme)) - {older}
    newer.write_bytes(content)
    assert mine.load(acme, keys) == []
    assert mine.counts(acme).corrupt == 1


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * OBJECT])
def test_what_was_changed_or_cut_off_is_a_miss(engine, manager, damage):
    acme, keys = tenant(), prompt("a", 1)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    (path,) = objects(manager, acme)
    path.write_bytes(damage)
    assert mine.load(acme, keys) == []
    assert mine.counts(acme).corrupt == 1


def test_an_object_that_is_gone_is_a_miss(engine, manager):
    acme, keys = tenant(), prompt("a", 1)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    objects(manager, acme)[0].unlink()
    assert mine.load(acme, keys) == []
    assert mine.counts(acme).vanished == 1


def test_large_files_serve_as_well(own_manager):
    own_manager.share(group("chat"), slots_per_file=4)
    mine, keys = Engine(own_manager.url, "acme"), prompt("a", 6)
    assert mine.store("acme", keys) == keys
    assert Engine(own_manager.url, "acme").load("acme", keys) == contents(keys)
    assert not objects(own_manager)
    mine.stop()


def test_a_quota_refuses_what_is_too_much_and_it_is_counted(own_manager):
    own_manager.share(group("chat", total={"limit": 3 * OBJECT}))
    mine, keys = Engine(own_manager.url, "acme"), prompt("a", 5)
    assert mine.store("acme", keys) == keys[:3]
    assert mine.counts("acme").refused_writes == {"room": 2}
    mine.stop()


def test_a_zone_with_a_group_of_its_own_is_not_touched_by_a_flood(own_manager):
    floor = {"limit": 8 * OBJECT, "watermark": 1.0}
    own_manager.share(group("chat", total={"limit": 6 * OBJECT, "watermark": 0.5}), group("chat", "acme", total=floor))
    mine, keys = Engine(own_manager.url, "acme", "flood"), prompt("a", 8)
    assert mine.store("acme", keys) == keys
    for number in range(6):
        mine.store("flood", prompt(f"flood {number}", 5))
    assert mine.counts("flood").refused_writes["room"]
    assert mine.load("acme", keys) == contents(keys)
    mine.stop()


def test_what_is_held_is_reported(engine):
    acme, keys = tenant(), prompt("a", 4)
    first, second = engine(zones=[declare(acme)]), engine(zones=[declare(acme)])
    first.store(acme, keys)
    for each in (first, second):
        each.wait(lambda each=each: each.tier.zones[acme].held_bytes == 4 * OBJECT)


def test_what_follows_a_chunk_that_is_missing_is_not_stored(engine):
    acme, keys = tenant(), prompt("a", 4)
    mine = engine(zones=[declare(acme)])
    assert mine.store(acme, keys, first=2) == []
    assert mine.counts(acme).refused_writes == {"closed": 2}
    (gap,) = mine.tier.take_gaps()
    assert (gap.first, gap.end) == (0, 4), "an engine that has the beginning may store all of it"


def test_runs_of_one_prompt_are_written_one_after_the_other(engine):
    acme, keys = tenant(), prompt("a", 40)
    mine = engine(zones=[declare(acme)])
    query = Query([])
    numbers = []
    for end in range(1, 41):
        query.keys = keys[:end]
        numbers.append(mine.begin_store(acme, query, end - 1))
    for number in numbers:
        mine.end(number)
    assert mine.counts(acme).written == 40
    assert not mine.tier.take_gaps()


def test_what_may_be_wrong_is_never_found(engine):
    acme, keys = tenant(), prompt("a", 3)
    mine = engine(zones=[declare(acme)])
    mine.store(acme, keys)
    mine.tier.lose(acme, keys[1:])
    mine.wait(lambda: mine.found(acme, keys) == 1)


def test_what_may_be_wrong_and_is_being_stored_is_not_kept(engine):
    acme, keys = tenant(), prompt("a", 3)
    mine = engine(zones=[declare(acme)])
    number = mine.begin_store(acme, Query(keys))
    mine.tier.lose(acme, keys)
    mine.end(number)
    mine.wait(lambda: mine.tier.is_at_rest)
    mine.wait(lambda: mine.found(acme, keys) == 0)


def test_without_a_key_of_the_pool_nothing_is_stored(engine):
    acme, keys = tenant(), prompt("a", 2)
    mine = engine(zones=[declare(acme)], has_key=False)
    assert mine.store(acme, keys) == []
    assert mine.found(acme, keys) == 0
    assert "salt key" in mine.tier.problem


def test_a_tenant_that_no_config_names_has_nothing_there(engine):
    mine = engine(zones=[])
    assert mine.store("stranger", prompt("a", 2)) == []
    assert mine.found("stranger", prompt("a", 2)) == 0
