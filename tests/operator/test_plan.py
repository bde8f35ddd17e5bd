"""From objects to the next snapshot."""

from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import make_plan
from tests.operator.objects import pool, snapshot, zone


def plan(zones, *, in_force=None, last_generation=0, of=None, size=100):
    return make_plan(
        of or pool(), zones, in_force=in_force, last_generation=last_generation, size=size, room=ConfigRoom()
    )


def test_the_first_snapshot_has_generation_one():
    config = plan([zone("acme")]).config

    assert config is not None
    assert config.generation == 1


def test_the_same_content_is_the_same_snapshot():
    first = plan([zone("b"), zone("a", age=1)]).config

    assert plan([zone("a", age=1), zone("b")], in_force=first).config == first


def test_other_content_has_the_next_generation():
    acme = zone("acme")

    config = plan([acme, zone("burst")], in_force=snapshot(7, acme)).config

    assert config is not None
    assert config.generation == 8


def test_a_lost_config_map_does_not_set_the_count_back():
    config = plan([zone("acme")], last_generation=7).config

    assert config is not None
    assert config.generation == 8


def test_the_last_zone_may_go():
    config = plan([], in_force=snapshot(1, zone("acme"))).config

    assert config is not None
    assert config.zones == ()


def test_a_zone_that_is_not_accepted_has_no_part_in_it():
    config = plan([zone("acme", reserved="60%", age=1), zone("greedy", reserved="60%")]).config

    assert config is not None
    assert [entry.name for entry in config.zones] == ["acme"]


def test_tenantzones_are_accepted_as_if_no_level_of_unknown_tenants_reserved_anything():
    levels = {"mode": "AutoRegister", "levels": [{"name": "gold", "tenants": ["*"], "reserved": "50%"}]}
    of = pool(unknownTenants=levels)

    made = plan([zone("acme", reserved="60%", age=1), zone("burst", reserved=40)], of=of)

    assert [decision.reason for decision in made.decisions.values()] == [Reason.ACCEPTED, Reason.ACCEPTED]
    assert made.config is not None
    assert made.config.pool == of.config


def test_without_the_pool_the_engines_keep_what_they_have():
    made = make_plan(
        None, [zone("acme")], in_force=snapshot(1, zone("acme")), last_generation=1, size=None, room=ConfigRoom()
    )

    assert made.config is None
    assert made.decisions["acme"].reason == Reason.POOL_NOT_FOUND


def test_so_they_do_if_the_pool_is_invalid():
    made = plan([zone("acme")], of=pool(watermarks={"low": 0.5, "high": 0.1}))

    assert made.config is None
    assert made.decisions["acme"].reason == Reason.POOL_INVALID
    assert "low (0.5) must not exceed high (0.1)" in made.decisions["acme"].message
