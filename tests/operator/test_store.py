"""What the operator believes to exist, from watches that miss events and listings that lag behind."""

from tenantzone_operator.kube.resources import read_pod
from tenantzone_operator.kube.store import InformerCache, Overlap, Store
from tests.operator.objects import body

KEY = ("default", "demo")


def zone(name, **more):
    return body(name, spec={"pool": "demo"}, **more)


def pool(name="demo", **more):
    return body(name, spec={"selector": {"matchLabels": {"app": "vllm"}}}, **more)


def pod(name, **metadata):
    return body(name, metadata={"labels": {"app": "vllm"}} | metadata)


def put_pod(store, pool, pod):
    """As the watch of the pool's own selector does."""
    store.pods.setdefault(("default", pool), InformerCache(read_pod)).put(pod)


def names(objects):
    return [found.meta.name for found in objects]


def relist(store, version, *bodies):
    """As after a listing, repeated if it does not hold."""
    while not store.zones.relist([store.zones.read_listed(found) for found in bodies], version):
        pass


def test_a_listing_forgets_what_was_deleted_between_watches():
    store = Store()
    store.zones.put(zone("gone"))

    relist(store, 2, zone("there", version=2))

    assert names(store.zones) == ["there"]


def test_events_that_are_newer_than_a_listing_count():
    store = Store()
    store.zones.put(zone("deleted"))

    store.zones.put(zone("new", version=9))
    store.zones.remove(zone("deleted", version=8))
    relist(store, 7, zone("deleted"))

    assert names(store.zones) == ["new"]


def test_an_old_version_does_not_replace_a_new_one():
    store = Store()
    store.zones.put(zone("acme", generation=2, version=2))

    before, now = store.zones.put(zone("acme", generation=1, version=1))

    assert before == now
    assert now.meta.generation == 2


def test_nor_does_it_replace_a_successor_of_the_same_name():
    store = Store()
    store.zones.put(zone("acme", version=3, metadata={"uid": "second"}))

    store.zones.put(zone("acme", version=1, metadata={"uid": "first"}))

    assert [found.meta.uid for found in store.zones] == ["second"]


def test_a_late_event_does_not_bring_back_what_was_deleted():
    store = Store()
    store.zones.put(zone("acme"))
    store.zones.remove(zone("acme", version=3))

    store.zones.put(zone("acme", version=2))

    assert names(store.zones) == []


def test_nor_what_a_listing_has_shown_to_be_gone():
    store = Store()
    relist(store, 5)

    store.zones.put(zone("acme", version=4))
    assert names(store.zones) == []
    store.zones.put(zone("acme", version=6))
    assert names(store.zones) == ["acme"]


def test_a_listing_takes_over_what_changed_between_watches():
    store = Store()
    store.zones.put(zone("acme", generation=1, version=1))

    relist(store, 5, zone("acme", generation=2, version=4))

    assert [found.meta.generation for found in store.zones] == [2]


def test_data_that_was_set_back_is_taken_as_it_is():
    """As after the restore of an etcd backup: versions start again from lower ones."""
    store = Store()
    relist(store, 100, zone("old", version=90), zone("both", generation=2, version=95))

    relist(store, 50, zone("both", generation=1, version=40))

    assert [(found.meta.name, found.meta.generation) for found in store.zones] == [("both", 1)]


def test_data_that_was_set_back_is_read_even_if_a_version_is_known():
    store = Store()
    relist(store, 100, zone("acme", generation=5, version=40))

    relist(store, 50, zone("acme", generation=1, version=40))

    assert [found.meta.generation for found in store.zones] == [1]


def test_what_was_known_before_data_was_set_back_is_there_until_all_is_listed_again():
    """Otherwise every engine of a pool would meanwhile get a config without zones."""
    store = Store()
    relist(store, 100, zone("deleted", version=70), zone("kept", generation=5, version=40))

    assert not store.zones.relist([], 50)
    assert sorted(names(store.zones)) == ["deleted", "kept"]

    relist(store, 50, zone("kept", generation=1, version=40))
    assert [(found.meta.name, found.meta.generation) for found in store.zones] == [("kept", 1)]


def test_events_count_as_soon_as_data_is_known_to_be_set_back():
    store = Store()
    relist(store, 100, zone("changed", generation=5, version=90), zone("deleted", version=80))
    assert not store.zones.relist([], 50)

    store.zones.put(zone("changed", generation=2, version=52))
    store.zones.remove(zone("deleted", version=53))
    assert [(found.meta.name, found.meta.generation) for found in store.zones] == [("changed", 2)]
    relist(store, 51, zone("changed", generation=1, version=40), zone("deleted", version=41))

    assert [(found.meta.name, found.meta.generation) for found in store.zones] == [("changed", 2)]


def test_a_zone_of_the_same_version_is_not_read_again():
    store = Store()
    relist(store, 5, zone("same", version=1), zone("changed", version=2))
    same, changed = store.zones

    relist(store, 9, zone("same", version=1), zone("changed", version=7))

    assert [found is before for found, before in zip(store.zones, (same, changed), strict=True)] == [True, False]


def test_a_successor_of_the_same_name_is_read_even_in_the_same_version():
    store = Store()
    relist(store, 5, zone("acme", version=1, metadata={"uid": "first"}))

    relist(store, 9, zone("acme", version=1, metadata={"uid": "second"}))

    assert [found.meta.uid for found in store.zones] == ["second"]


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
    put_pod(store, "demo", pod("engine-0", **deleting))

    view = store.view(KEY)

    assert (view.zones, view.pods) == ([], [])


def test_a_pod_belongs_to_the_oldest_pool_that_selects_it():
    store = Store()
    store.pools.put(pool("demo", age=2))
    store.pools.put(pool("younger", age=1))
    put_pod(store, "demo", pod("engine-0"))
    put_pod(store, "younger", pod("engine-0"))

    assert names(store.view(KEY).pods) == ["engine-0"]
    assert store.view(("default", "younger")).pods == []
    store.pools.remove(pool("demo", age=2))
    assert names(store.view(("default", "younger")).pods) == ["engine-0"]


def test_each_pool_knows_the_others_that_select_its_pods():
    store = Store()
    for name, age in (("demo", 3), ("younger", 2), ("youngest", 1)):
        store.pools.put(pool(name, age=age))
        put_pod(store, name, pod("engine-1"))
        put_pod(store, name, pod("engine-0"))
    both = ("engine-0", "engine-1")

    assert store.view(KEY).overlaps == (Overlap("younger", False, both), Overlap("youngest", False, both))
    assert store.view(("default", "younger")).overlaps == (Overlap("demo", True, both),)
    assert store.view(("default", "youngest")).overlaps == (Overlap("demo", True, both),)


def test_pools_that_select_other_pods_or_leave_overlap_with_none():
    store = Store()
    store.pools.put(pool("demo", age=2))
    store.pools.put(body("other", spec={"selector": {"matchLabels": {"app": "another"}}}))
    store.pools.put(pool("leaving", age=3, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    put_pod(store, "demo", pod("engine-0"))

    assert store.view(KEY).overlaps == ()


def test_what_a_pool_has_selected_before_is_not_its_own_any_more():
    store = Store()
    store.pools.put(body("demo", spec={"selector": {"matchLabels": {"app": "another"}}}))
    put_pod(store, "demo", pod("engine-0"))

    assert store.view(KEY).pods == []


def test_what_went_because_of_its_labels_comes_back_with_them():
    cache = InformerCache(read_pod)
    cache.put(body("engine-0", version=2))
    assert cache.remove(body("engine-0", version=3)) is not None

    cache.put(body("engine-0", version=2))
    assert names(cache) == [], "that was before"
    cache.put(body("engine-0", version=4))
    assert names(cache) == ["engine-0"]
    assert cache.remove(body("engine-0", version=3)) is None, "it is back already"
    assert names(cache) == ["engine-0"]


def test_a_zone_brings_its_pool_up_although_it_does_not_exist():
    store = Store()
    store.zones.put(zone("acme"))

    assert store.pool_keys() == {KEY}
    assert store.view(KEY).pool is None


def test_a_zone_whose_status_is_another_one_keeps_its_config():
    store = Store()
    store.zones.put(zone("acme", version=1))
    (first,) = store.zones

    store.zones.put(zone("acme", version=2, status={"generation": 1}))
    (put,) = store.zones
    relist(store, 3, zone("acme", version=3))
    (listed,) = store.zones
    store.zones.put(body("acme", spec={"pool": "demo", "reserved": 9}, version=4))
    (changed,) = store.zones

    assert put.status == {"generation": 1}
    assert put.config is first.config
    assert listed.config is first.config
    assert changed.config.reserved == 9
