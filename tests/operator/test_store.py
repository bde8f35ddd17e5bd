"""What the operator believes to exist, from watches that miss things and listings that lag behind."""

from tenantzone_operator.store import Store
from tests.operator.objects import body

KEY = ("default", "demo")


def zone(name, **more):
    return body(name, spec={"pool": "demo"}, **more)


def pool(name="demo", **more):
    return body(name, spec={"selector": {"matchLabels": {"app": "vllm"}}}, **more)


def pod(name, **metadata):
    return body(name, metadata={"labels": {"app": "vllm"}} | metadata)


def names(objects):
    return [found.meta.name for found in objects]


def test_a_listing_forgets_what_was_deleted_while_nobody_watched():
    store = Store()
    store.zones.put(zone("gone"))

    store.zones.begin_listing()
    store.zones.end_listing([zone("there")])

    assert names(store.zones) == ["there"]


def test_an_event_during_a_listing_is_newer_than_the_listing():
    store = Store()
    store.zones.put(zone("deleted"))

    store.zones.begin_listing()
    store.zones.put(zone("new", version=9))
    store.zones.remove(zone("deleted", version=8))
    store.zones.end_listing([zone("deleted")])

    assert names(store.zones) == ["new"]


def test_an_old_version_does_not_replace_a_new_one():
    store = Store()
    store.zones.put(zone("acme", generation=2, version=2))

    before, now = store.zones.put(zone("acme", generation=1, version=1))

    assert before == now
    assert now.meta.generation == 2


def test_the_answer_to_a_write_does_not_bring_back_what_was_deleted():
    store = Store()

    store.zones.update(zone("acme"))

    assert names(store.zones) == []


def test_a_late_deletion_does_not_hit_the_successor():
    store = Store()
    store.zones.put(zone("acme", metadata={"uid": "second"}))

    assert store.zones.remove(zone("acme", metadata={"uid": "first"})) is None
    assert names(store.zones) == ["acme"]


def test_what_is_being_deleted_is_not_there():
    store = Store()
    deleting = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    store.pools.put(pool())
    store.zones.put(zone("acme", metadata=deleting))
    store.pods.put(pod("engine-0", **deleting))

    view = store.view(KEY)

    assert (view.zones, view.pods) == ([], [])


def test_a_pod_belongs_to_the_oldest_pool_that_selects_it():
    store = Store()
    store.pools.put(pool("demo", age=2))
    store.pools.put(pool("younger", age=1))
    store.pods.put(pod("engine-0"))

    assert names(store.view(KEY).pods) == ["engine-0"]
    assert store.view(("default", "younger")).pods == []


def test_a_zone_brings_its_pool_up_although_it_does_not_exist():
    store = Store()
    store.zones.put(zone("acme"))

    assert store.pool_keys() == {KEY}
    assert store.view(KEY).pool is None
