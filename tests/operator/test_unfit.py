"""Engines that are too small for what was accepted: they get what fits, and the other engines change nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.fitting import Grant, grants
from tenantzone_contract.zone_config.share import ceil_blocks, floor_blocks
from tenantzone_operator.planning.capacity import planned_seats, planned_size
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import make_plan
from tenantzone_operator.status import acknowledgement
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.statuses import ZoneStatuses, pool_status, zone_status
from tests.operator.objects import NOW, entry, observed, pool, silent, snapshot, zone

FIRST, SECOND = zone("first", age=2, reserved=40), zone("second", age=1, reserved="50%")
BOTH = snapshot(1, FIRST, SECOND)


def statuses(*observations):
    """The statuses of both zones and their pool, planned for 100 blocks."""
    history = History()
    history.record(BOTH, 1000)
    made = make_plan(pool(), [FIRST, SECOND], in_force=BOTH, last_generation=1, size=100, room=ConfigRoom())
    zones = [
        zone_status(each, made.decisions[each.meta.name], observations, history, before={}, now=NOW)
        for each in (FIRST, SECOND)
    ]
    return *zones, pool_status(pool(), made, observations, history, size=100, before={}, now=NOW)


def shown(status):
    return {condition["type"]: f"{condition['status']} {condition['reason']}" for condition in status["conditions"]}


def message(status, kind):
    return next(condition["message"] for condition in status["conditions"] if condition["type"] == kind)


FINE = {"Accepted": "True Accepted", "Programmed": "True Acknowledged", "Ready": "True Enforced"}
FINE_POOL = FINE | {"IdentityEnforced": "True Acknowledged"}


def test_an_engine_that_is_too_small_for_one_zone_degrades_that_zone_and_the_pool():
    small = observed(BOTH, engine="small", blocks=60)
    first, second, whole = statuses(observed(BOTH), small)

    assert shown(first) == FINE
    assert shown(second) == FINE | {"Degraded": "True EngineUnfit"}
    assert shown(whole) == FINE_POOL | {"Degraded": "True EngineUnfit"}
    assert message(second, "Degraded") == "small has 60 blocks and lacks the 30 that the zone reserves"
    assert message(whole, "Degraded") == "small has 60 blocks and lacks 30 of the zones' reserved blocks"
    assert [row.get("message") for row in second["engines"]] == [None, "lacks the 30 blocks that the zone reserves"]
    assert [(row["reserved"], row["acknowledged"]) for row in second["engines"]] == [(50, True), (0, True)]
    assert whole["capacityBlocks"] == 100


def test_an_engine_with_too_few_seats_degrades_the_zone_that_reserves_them_and_makes_no_other_wait():
    few = observed(BOTH, engine="few", seats=8, second={"awaited_seats": 12})
    first, second, whole = statuses(observed(BOTH), few)

    assert shown(first) == FINE
    assert shown(second) == FINE | {"Degraded": "True EngineUnfit"}
    assert message(second, "Degraded") == "few has 8 seats and lacks the 12 that the zone reserves"
    assert shown(whole) == FINE_POOL


def test_no_zone_waits_for_an_engine_that_does_not_even_have_the_config():
    first, second, _ = statuses(observed(BOTH), observed(None, engine="small", blocks=60))

    assert shown(first)["Programmed"] == "Unknown Pending", "it is large enough for this one"
    assert shown(second)["Programmed"] == "True Acknowledged"


@pytest.mark.parametrize("claim", [1, 39])
def test_one_that_claims_next_to_nothing_changes_nothing_of_the_others(claim):
    alone = statuses(observed(BOTH))
    together = statuses(observed(BOTH), observed(BOTH, engine="mallory", blocks=claim))

    for before, after in zip(alone[:2], together[:2], strict=True):
        assert shown(after)["Ready"] == "True Enforced"
        assert after["engines"][0] == before["engines"][0]
    assert {field: together[2][field] for field in ("capacityBlocks", "reservedBlocks", "zonesAccepted")} == {
        "capacityBlocks": 100,
        "reservedBlocks": 90,
        "zonesAccepted": 2,
    }


@pytest.mark.parametrize("blocks", [60, 100])
def test_one_that_has_room_for_the_zone_and_refuses_is_waited_for(blocks: int):
    first, _, whole = statuses(observed(BOTH), observed(None, engine="other", blocks=blocks, error="no"))

    assert shown(first)["Programmed"] == shown(whole)["Programmed"] == "False ConfigRejected"
    assert "Degraded" not in shown(first)


def test_one_that_is_too_small_and_does_not_trust_the_config_is_waited_for():
    untrusting = observed(BOTH, engine="small", blocks=60, error="the config has no signature", untrusted=True)
    first, second, whole = statuses(observed(BOTH), untrusting)

    assert shown(first)["Programmed"] == shown(whole)["Programmed"] == "False ConfigUntrusted"
    assert "Degraded" not in shown(first)
    assert shown(second)["Degraded"] == shown(whole)["Degraded"] == "True EngineUnfit"


def test_where_no_engine_is_large_enough_the_zone_is_not_ready_and_others_are():
    first, second, _ = statuses(observed(BOTH, blocks=60), observed(BOTH, engine="engine-1", blocks=60))

    assert shown(first)["Ready"] == "True Enforced"
    assert shown(second)["Ready"] == "False EngineUnfit"
    assert (
        message(second, "Ready")
        == "no engine is large enough: engine-0 has 60 blocks and lacks the 30 that the zone reserves"
    )


CONTRADICTS = (
    "limit (10%, which is 10 blocks) must not be below reserved (50 blocks), as it is in an engine with 100 blocks; "
    "raise limit or lower reserved"
)


def test_a_limit_below_the_reservation_in_one_engine_is_that_engines_trouble():
    mixed = zone("mixed", reserved=50, limit="10%")
    history = History()
    history.record(only := snapshot(1, mixed), 1000)
    made = make_plan(pool(), [mixed], in_force=only, last_generation=1, size=1000, room=ConfigRoom())
    seen = [observed(only, blocks=1000), observed(only, engine="small", blocks=100)]
    status = zone_status(mixed, made.decisions["mixed"], seen, history, before={}, now=NOW)

    assert shown(status) == FINE | {"Degraded": "True EngineUnfit"}
    assert message(status, "Degraded") == f"small: {CONTRADICTS}"
    assert [row.get("message") for row in status["engines"]] == [None, CONTRADICTS]
    whole = pool_status(pool(), made, seen, history, size=1000, before={}, now=NOW)
    assert message(whole, "Degraded") == "small: limit is below reserved in mixed"


def test_an_engine_without_room_for_the_reservation_is_too_small_whatever_the_limit():
    mixed = zone("mixed", reserved=50, limit="10%")
    history = History()
    history.record(only := snapshot(1, mixed), 1000)
    made = make_plan(pool(), [mixed], in_force=only, last_generation=1, size=1000, room=ConfigRoom())
    status = zone_status(mixed, made.decisions["mixed"], [observed(only, blocks=10)], history, before={}, now=NOW)

    assert message(status, "Degraded") == "engine-0 has 10 blocks and lacks the 50 that the zone reserves"
    assert status["engines"][0]["message"] == "lacks the 50 blocks that the zone reserves"


def test_where_the_limit_is_below_the_reservation_in_each_engine_none_is_called_too_small():
    mixed = zone("mixed", reserved=50, limit="10%")
    history = History()
    history.record(only := snapshot(1, mixed), 1000)
    made = make_plan(pool(), [mixed], in_force=only, last_generation=1, size=100, room=ConfigRoom())
    status = zone_status(mixed, made.decisions["mixed"], [observed(only)], history, before={}, now=NOW)

    assert message(status, "Ready") == f"engine-0: {CONTRADICTS}"


def test_seats_whose_limit_is_below_what_is_reserved_are_named_and_the_engine_is_not_called_too_small():
    mixed = zone("mixed", seats={"reserved": 30, "limit": "10%"})
    history = History()
    history.record(only := snapshot(1, mixed), 1000)
    seen = [observed(only, seats=200, mixed={"awaited_seats": 30})]
    made = make_plan(pool(), [mixed], in_force=only, last_generation=1, size=100, room=ConfigRoom(), seats=200)
    status = zone_status(mixed, made.decisions["mixed"], seen, history, before={}, now=NOW)

    assert planned_seats(seen) == 200
    assert message(status, "Degraded").startswith("engine-0: seats.limit (10%, which is 20 requests at once) must not")


def test_who_does_not_answer_may_be_of_any_size():
    first, _, whole = statuses(observed(BOTH), silent("engine-1"))

    assert shown(first)["Programmed"] == shown(whole)["Programmed"] == "Unknown EngineUnreachable"


def test_of_many_the_first_three_are_named():
    small = [observed(BOTH, engine=f"small-{number}", blocks=60) for number in range(5)]
    _, second, _ = statuses(observed(BOTH), *small)

    assert message(second, "Degraded").count("lacks") == 3
    assert message(second, "Degraded").endswith("; and 2 more")


SHARES = st.one_of(st.integers(0, 30), st.integers(0, 100).map("{}%".format))


@given(st.lists(st.tuples(SHARES, st.one_of(st.none(), SHARES)), max_size=6), st.integers(0, 60))
def test_what_fits_by_age_is_held_whole_and_never_more_than_there_is(asked, capacity):
    zones = [
        entry(f"zone-{number}").model_copy(update={"reserved": reserved, "limit": limit})
        for number, (reserved, limit) in enumerate(asked)
    ]
    found = grants(zones, capacity)

    room = capacity
    for each, grant in zip(zones, found, strict=True):
        wanted = floor_blocks(each.reserved, capacity)
        limit = capacity if each.limit is None else min(capacity, ceil_blocks(each.limit, capacity))
        fits = wanted <= room and wanted <= limit
        assert grant == Grant(wanted if fits else 0, limit, 0 if fits else wanted)
        room -= grant.reserved
    assert room >= 0


@pytest.mark.parametrize(
    ("spec", "claims", "expected"),
    [
        ({}, [1000, 1], 1000),
        ({}, [1], 1),
        ({}, [1000, 998, 1003], 1000),
        ({}, [1000, 990, 1], 990),
        ({}, [1000, 1000, 1, 2, 10**9], 1000),
        ({}, [1000, None], 1000),
        ({}, [None, 0], 77),
        ({}, [], 77),
        ({"blocksPerEngine": 500}, [1000, 1], 500),
        ({"blocksPerEngine": 500}, [], 500),
    ],
)
def test_a_pool_is_planned_for_what_its_spec_or_half_of_its_engines_say(spec, claims, expected):
    assert planned_size(pool(**spec), claims, {"capacityBlocks": 77}) == expected


def test_an_unknown_pool_is_planned_for_nothing():
    assert planned_size(pool(), [None], {}) is None
    assert planned_size(None, [], {}) is None


@pytest.mark.parametrize("absurd", [-1, 0, 2**31, 2**62])
def test_a_remembered_size_that_no_engine_has_is_not_believed(absurd):
    assert planned_size(pool(), [], {"capacityBlocks": absurd}) is None


def test_what_an_engine_is_too_small_for_is_reckoned_once_for_each_size(monkeypatch: pytest.MonkeyPatch):
    """However many zones and sizes there are: with many of both, each look would otherwise take minutes."""
    reckoned = []
    monkeypatch.setattr(acknowledgement, "grants", lambda zones, size: reckoned.append(size) or grants(zones, size))
    zones = [zone(f"zone-{number}", reserved=10) for number in range(50)]
    history = History()
    history.record(config := snapshot(1, *zones), 1000)
    made = make_plan(pool(), zones, in_force=config, last_generation=1, size=1000, room=ConfigRoom())
    seen = [observed(config, engine=f"engine-{size}", blocks=size) for size in range(1000, 1039)]
    seen.append(observed(None, engine="small", blocks=50, error="too small"))

    statuses = ZoneStatuses()
    for _ in range(3):
        history.look_at_sizes(seen)
        statuses.make(zones, made.decisions, seen, history, now=NOW)
    assert sorted(reckoned) == [50, *range(1000, 1039)]

    history.look_at_sizes(seen[:1])
    history.lacking(seen[1])
    assert reckoned.count(1001) == 2, "sizes of engines that are gone are forgotten"
