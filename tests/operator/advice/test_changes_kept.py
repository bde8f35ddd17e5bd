"""What happens to changes that were kept or tried when specs, engines or the operator change."""

from dataclasses import replace
from typing import Any

import pytest

from tenantzone_operator.advice.adjustment import MAX_ADJUSTMENTS, Field
from tenantzone_operator.advice.advisor import REST_WINDOWS, Moment
from tests.operator.advice.life import ALL, KEPT, Life, auto, slow_unless_heavy, two_zones
from tests.operator.objects import zone


@pytest.mark.parametrize("undone", [False, True])
def test_room_for_another_change_is_made_of_what_is_not_in_force_only(undone: bool):
    names = [f"zone-{number:03}" for number in range(MAX_ADJUSTMENTS)]
    kept = [KEPT | {"zone": name} for name in names]
    if undone:
        kept[-1] |= {"state": "Undone", "undone": 1}
    zones = [*two_zones(), *(zone(name) for name in names)]
    life = Life(auto(), zones, slow_unless_heavy, status={"adjustments": kept})
    life.pass_windows(1.2)
    assert len(life.rows) == MAX_ADJUSTMENTS
    assert {name for name in names if (name, "weight") not in life.rows} == ({names[-1]} if undone else set())
    assert (("acme", "weight") in life.rows) == undone


@pytest.mark.parametrize("what", ["pool", "zone"])
def test_what_was_kept_stays_while_a_spec_makes_no_sense(what: str):
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(6)
    reported, pools, zones = life.status, life.pool, life.zones
    if what == "pool":
        life.pool = replace(pools, config=None, invalid="it makes no sense")
    else:
        life.zones = [replace(zones[0], config=None, invalid="it makes no sense"), *zones[1:]]
    stored = replace(life.pool, status=reported)
    moment = Moment(
        stored, life.zones, life.overlay.over(stored, life.zones), [], life.config, False, life.seconds + 1,
        1_700_000_000.0 + life.seconds + 1,
    )  # fmt: skip
    life.status = life.advisor.look(moment, reported)
    assert life.status == reported
    life.pool, life.zones = pools, zones
    life.step()
    assert life.has("acme", Field.WEIGHT) == "4"


def test_what_engines_do_not_take_is_undone():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.takes_configs = False
    life.pass_windows(2.3)
    assert life.rows["acme", "weight"]["state"] == "Undone"
    assert life.has("acme", Field.WEIGHT) == "1"


def test_a_trial_that_a_restart_cuts_off_is_undone_and_what_was_kept_before_stays():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(3.3)
    assert life.rows["acme", "weight"]["previous"] == "2"
    life.restart()
    life.step()
    life.step()
    assert life.rows["acme", "weight"]["state"] == "Kept"
    assert life.has("acme", Field.WEIGHT) == "2"


def test_a_trial_that_a_restart_cuts_off_rests_on_if_it_was_undone_before():
    life = Life(auto(advice={"bounds": {"weight": ALL["weight"]}}), two_zones(), lambda _: {"acme": {"ratio": 4.0}})
    life.pass_windows(2.5)
    assert life.rows["acme", "weight"]["state"] == "Undone"
    life.pass_windows(REST_WINDOWS + 0.5)
    assert life.rows["acme", "weight"] == life.rows["acme", "weight"] | {"state": "Trial", "undone": 1}
    life.restart()
    tried = 0
    for _ in range(REST_WINDOWS - 1):
        life.pass_windows(1)
        tried += life.has("acme", Field.WEIGHT) != "1"
    assert not tried
    assert life.rows["acme", "weight"]["undone"] == 1


@pytest.mark.parametrize(
    "advice", [{"mode": "Recommend"}, {"mode": "Never"}, {"bounds": {"weight": {"min": 1, "max": 3}}}]
)
def test_the_pools_word_counts_at_once(advice: dict[str, Any]):
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(6)
    assert life.has("acme", Field.WEIGHT) == "4"
    life.pool = auto(advice=advice)
    life.step()
    assert life.has("acme", Field.WEIGHT) == "1"
    assert not life.rows


def test_a_spec_that_changes_ends_what_was_in_its_place():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(6)
    life.zones = two_zones(weight=3)
    life.step()
    assert life.has("acme", Field.WEIGHT) == "3"
