"""Changes, as seen from the store alone."""

from tenantzone_operator.console.changes import MAX_CHANGES, Changes
from tenantzone_operator.kube.resources import Pool, Zone, read_pool, read_zone
from tests.operator.objects import body

DEMO = ("default", "demo")
READY = {"type": "Ready", "status": "True", "reason": "Enforced", "message": "enforced"}
REFUSED = {"type": "Accepted", "status": "False", "reason": "PoolOvercommitted", "message": "no room"}
UNREADY = {"type": "Ready", "status": "False", "reason": "PoolOvercommitted", "message": "no room"}


def zone(name: str = "acme", *, version: int, generation: int = 1, pool: str = "demo", **status: object) -> Zone:
    shown = {"observedGeneration": generation} | status
    return read_zone(body(name, version=version, generation=generation, spec={"pool": pool}, status=shown))


def pool(version: int, **status: object) -> Pool:
    return read_pool(body("demo", version=version, spec={"selector": {}}, status=status))


def reported(changes: Changes, key: tuple[str, str] = DEMO) -> list[tuple[str, str, str]]:
    return [(change.name, change.reason, change.note) for change in changes.of(key, 50)]


def test_what_is_there_at_first_is_no_change():
    changes = Changes()
    changes.look([zone(version=1)], [pool(2)])
    assert reported(changes) == []


def test_zones_come_change_and_go():
    changes = Changes()
    for zones in ([], [zone(version=1)], [zone(version=2, generation=2)], []):
        changes.look(zones, [])
    assert reported(changes) == [
        ("acme", "Deleted", ""),
        ("acme", "Changed", "generation 2"),
        ("acme", "Declared", "generation 1"),
    ]


def test_a_zone_is_reported_as_ready_and_as_not_ready():
    changes = Changes()
    changes.look([zone(version=1)], [])
    changes.look([zone(version=2, conditions=[READY])], [])
    changes.look([zone(version=3, conditions=[UNREADY, REFUSED])], [])
    assert reported(changes) == [
        ("acme", "NotReady", "PoolOvercommitted: no room"),
        ("acme", "Overcommitted", "no room"),
        ("acme", "Ready", "enforced"),
    ]


def test_what_the_operator_says_in_events_is_shown_here_too():
    changes = Changes()
    changes.look([zone(version=1, state="Idle", evictions=0)], [pool(2)])
    refuses = {"type": "Programmed", "status": "False", "reason": "ConfigRejected", "message": "engine-0: bad"}
    changes.look([zone(version=3, state="Evicted", evictions=9)], [pool(4, conditions=[refuses])])
    assert [(name, reason) for name, reason, _ in reported(changes)] == [
        ("demo", "ConfigRejected"),
        ("acme", "ZoneEvicted"),
    ]


def test_engines_that_come_and_go_are_reported():
    changes = Changes()
    for version, ready in ((1, 0), (2, 2), (3, 1)):
        changes.look([], [pool(version, enginesReady=ready)])
    assert reported(changes) == [
        ("demo", "Engines", "1 ready, previously 2"),
        ("demo", "Engines", "2 ready, previously 0"),
    ]


def test_a_listing_that_brings_the_same_again_changes_nothing():
    changes = Changes()
    for _ in range(3):
        changes.look([zone(version=1, conditions=[READY])], [pool(2)])
    assert reported(changes) == []


def test_the_same_again_is_counted():
    changes = Changes()
    changes.look([zone(version=1)], [])
    for version in range(2, 8):
        conditions = [READY] if version % 2 else [UNREADY]
        changes.look([zone(version=version, conditions=conditions)], [])
    assert {(change.reason, change.count) for change in changes.of(DEMO, 50)} == {("NotReady", 2), ("Ready", 3)}


def test_each_pool_has_its_own_and_the_oldest_are_forgotten():
    changes = Changes()
    changes.look([], [])
    changes.look([zone("other", version=1, pool="others")], [])
    assert reported(changes, ("default", "others")) == [("other", "Declared", "generation 1")]
    for version in range(2, MAX_CHANGES + 3):
        changes.look([zone(f"zone-{version}", version=version)], [])
    assert reported(changes, ("default", "others")) == []
