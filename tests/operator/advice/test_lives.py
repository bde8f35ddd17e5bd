"""Random lives: values stay within bounds, one change at a time, and none goes back and forth."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenantzone_contract.zone_config.eviction_policies import EVICTION_POLICIES
from tenantzone_operator.advice.adjustment import MAX_ADJUSTMENTS, Field, read_adjustments
from tenantzone_operator.advice.advisor import REST_WINDOWS
from tenantzone_operator.advice.values import amount, within
from tests.operator.advice.life import ALL, WINDOW, Life, auto
from tests.operator.objects import zone

figures = st.fixed_dictionaries(
    {},
    optional={
        "ratio": st.sampled_from([0.5, 1.0, 1.2, 2.0, 9.0]),
        "why": st.sampled_from(["Neighbours", "Seats", "Blocks", "OwnLoad", "a reason of a newer engine"]),
        "waiting_for": st.sampled_from(["limit", "reserved", "in_use"]),
        "in_use": st.integers(0, 500),
        "cached": st.integers(0, 500),
        "prefix_query_tokens": st.sampled_from([0, 100, 10_000]),
        "prefix_hit_tokens": st.sampled_from([0, 10, 100]),
        "evicted_by_limit": st.integers(0, 300),
        "evicted_by_ttl": st.integers(0, 300),
        "evicted_by_watermark": st.integers(0, 300),
        "evicted_for_room": st.integers(0, 300),
    },
)
bounds = st.fixed_dictionaries({}, optional={name: st.just(value) for name, value in ALL.items()})
specs = st.fixed_dictionaries(
    {"reserved": st.sampled_from(["0%", "20%", "30%", 250])},
    optional={
        "limit": st.sampled_from(["40%", "90%", 500]),
        "weight": st.integers(1, 20),
        "retention": st.sampled_from([{"ttl": "30s"}, {"ttl": "10m"}, {"ttl": "24h"}, {"noStore": True}]),
        "evictionPolicy": st.sampled_from(EVICTION_POLICIES),
    },
)
NAMES = ("acme", "burst", "chat")


def values(life: Life) -> dict[tuple[str, Field], str]:
    found = {(name, what): life.has(name, what) for name in NAMES for what in Field if what is not Field.WATERMARK}
    return found | {("", Field.WATERMARK): life.has("", Field.WATERMARK)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_lives(data: st.DataObject):
    of = auto(advice={"bounds": data.draw(bounds.filter(bool))}, watermarks={"low": 0.1, "high": 0.4})
    zones = [zone(name, **data.draw(specs)) for name in NAMES]
    now: dict[str, dict[str, Any]] = {}
    life = Life(of, zones, lambda _: now)
    spec, was = values(life), values(life)
    changed: dict[tuple[str, Field], tuple[float, float]] = {}
    """When a field was last changed, and in which direction."""
    changes = 0
    for _ in range(data.draw(st.integers(5, 20))):
        now.clear()
        now.update({name: data.draw(figures) for name in NAMES})
        if data.draw(st.integers(0, 9)) == 0:
            # A decision is delivered, and then taken back.
            life.restart()
            life.step()
            changed.clear()
            was = values(life)
        life.takes_configs = data.draw(st.integers(0, 4)) > 0
        for _ in range(10):
            reported = read_adjustments(life.status)
            life.step()
            found = values(life)
            differing = {key for key in found if found[key] != spec[key]}
            rows = read_adjustments(life.status)
            assert all(within(of.advice.bounds, key[1], found[key]) for key in differing), "out of bounds"
            assert differing <= {each.key for each in reported if each.in_force}, "nothing says so"
            assert sum(each.state == "Trial" for each in rows) <= 1
            assert len(rows) <= MAX_ADJUSTMENTS
            moved = [key for key in found if found[key] != was[key]]
            assert len(moved) <= 1, "two changes at once"
            changes += len(moved)
            for key in moved:
                row = next((each for each in reported if each.key == key), None)
                if row is not None and row.state == "Trial":
                    _assert_no_flapping(changed.get(key), key[1], was[key], found[key], life.seconds)
                    changed[key] = life.seconds, _direction(key[1], was[key], found[key])
            was = found
    # A change and the one that may undo it take a window each.
    assert changes <= life.seconds / WINDOW + 2
    life.pool = auto(advice={"mode": "Recommend"}, watermarks={"low": 0.1, "high": 0.4})
    life.step()
    assert values(life) == spec, "what is no longer wanted is gone at once"


def _assert_no_flapping(before: tuple[float, float] | None, what: Field, was: str, now: str, seconds: float) -> None:
    if before is not None and before[1] * _direction(what, was, now) <= 0:
        assert seconds - before[0] >= REST_WINDOWS * WINDOW, "back and forth"


def _direction(what: Field, was: str, now: str) -> float:
    """Up or down; 0: neither."""
    numbers = [amount(what, value) for value in (was, now)]
    if what is Field.EVICTION_POLICY or numbers[1] is None:
        return 0.0
    return 1.0 if numbers[1] > (float("inf") if numbers[0] is None else numbers[0]) else -1.0
