"""What zones were granted before an operator began to lead, by their statuses, their specs and the ConfigMap."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.planning.admission import admit
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.grants import Evidence, agreed_grants, is_confirmed
from tenantzone_operator.planning.plan import Plan, make_plan
from tests.operator.objects import entry, pool, snapshot, zone

SIZE = 100


def reported(status: str, generation: int = 1) -> dict[str, Any]:
    """The status of a zone that was accepted or not, at a generation."""
    return {"conditions": [{"type": "Accepted", "status": status, "observedGeneration": generation}]}


VICTIM = zone("victim", reserved=60, status=reported("True"))
GREEDY = zone("greedy", age=5, reserved=80, status=reported("False"))


def plan(*zones: Zone, written: tuple[ZoneConfig, ...] | None, declared: Pool | None = None) -> Plan:
    """The plan without a confirmation of the config with the entries ``written``; None: there is no ConfigMap."""
    declared = declared or pool()
    assert declared.config is not None
    found = make_config(7, declared.config, written) if written is not None else None
    room = ConfigRoom()
    return make_plan(declared, zones, in_force=found, last_generation=0, size=SIZE, room=room, is_confirmed=False)


def reserved(made: Plan) -> dict[str, int | str]:
    assert made.config is not None
    return {entry.name: entry.reserved for entry in made.config.zones}


def test_a_config_is_confirmed_by_its_hash_in_the_pools_status_or_by_a_pool_without_a_status():
    config = snapshot(1, VICTIM)

    assert is_confirmed(config, {"configHash": config.hash})
    assert is_confirmed(config, {})
    assert not is_confirmed(config, {"configHash": "sha256:0"})
    assert not is_confirmed(config, {"configGeneration": 1})


def test_what_says_that_a_grant_was_made():
    pending = zone("pending", generation=2, reserved=30, status=reported("True"))
    unheard = zone("unheard", reserved=5)
    found = snapshot(1, VICTIM, zone("pending", reserved=20), GREEDY)

    grants = agreed_grants([VICTIM, GREEDY, pending, unheard, zone("lost", status=reported("True"))], found)

    assert grants.doubtful == {"greedy": Evidence.CONFIG, "pending": Evidence.CONFIG, "lost": Evidence.STATUS}
    assert list(grants.entries) == ["victim", "pending", "greedy", "lost"]


def test_an_accepted_spec_counts_more_than_what_was_written_for_an_older_zone():
    made = plan(VICTIM, GREEDY, written=(entry("greedy", reserved=80), entry("victim")))

    assert reserved(made) == {"victim": 60}
    assert made.decisions["greedy"].reason == Reason.POOL_OVERCOMMITTED
    assert made.config is not None
    assert made.config.generation == 8


def test_accepted_specs_are_what_is_left_of_a_deleted_config_map():
    assert reserved(plan(VICTIM, zone("older", age=9, reserved=50), written=None)) == {"victim": 60}


def test_a_config_that_agrees_with_specs_and_statuses_stays_as_it_is():
    written = (entry("victim", reserved=60), entry("older", reserved=10))
    refused = zone("older", age=9, generation=2, reserved=90, status=reported("False", 2))

    made = plan(VICTIM, refused, written=written)

    assert reserved(made) == {"victim": 60, "older": 10}
    assert made.config is not None
    assert made.config.generation == 7


def test_what_was_written_grants_no_more_than_the_spec_asks_for():
    refused = zone("a", generation=2, reserved=10, tiers=[], status=reported("False", 2))
    invalid = zone("b", generation=2, reserved="200%", status=reported("False", 2))

    made = plan(refused, invalid, written=(entry("a", reserved=40), entry("b", reserved=40)))

    assert reserved(made) == {"a": 10}


def test_what_a_status_calls_accepted_stays_when_the_pool_takes_its_header():
    declared = pool(identity={"trustedHeader": {"name": "x-tenant", "proof": {"secretHeader": {"name": "x-secret"}}}})
    named = zone("acme", reserved=40, fairness={"header": "x-tenant"}, status=reported("True"))

    made = plan(named, written=(entry("acme", reserved=40),), declared=declared)

    assert reserved(made) == {"acme": 40}
    assert made.decisions["acme"].reason == Reason.INVALID


def test_a_tenant_stays_with_the_zone_whose_status_says_so():
    first = zone("first", tenant="shared", status=reported("True"))
    second = zone("second", age=5, tenant="shared", status=reported("False"))
    assert second.config is not None

    made = plan(first, second, written=(second.config,))

    assert reserved(made) == {"first": 0}
    assert made.decisions["second"].reason == Reason.TENANT_CONFLICT


def test_what_only_a_status_says_is_provisional_while_no_size_is_known():
    lost = zone("lost", reserved=3000, status=reported("True"))
    grants = agreed_grants([lost], None)

    decision = admit([lost], grants.entries, None, doubtful=grants.doubtful)["lost"]

    assert decision.reason == Reason.ACCEPTED_PROVISIONALLY


NAMES = ["a", "b", "c", "d"]
AMOUNTS = st.integers(0, SIZE)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Zone], tuple[ZoneConfig, ...]]:
    """Zones, where the accepted ones fit together, and entries that another party has written."""
    left, zones = SIZE, []
    for name in NAMES:
        wanted, is_accepted = draw(AMOUNTS), draw(st.booleans())
        is_accepted = is_accepted and wanted <= left
        left -= wanted if is_accepted else 0
        status = reported(str(is_accepted)) if draw(st.booleans()) or is_accepted else {}
        zones.append(zone(name, age=draw(st.integers(0, 3)), reserved=wanted, status=status))
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return zones, tuple(entry(name, reserved=draw(AMOUNTS)) for name in names)


@given(histories())
def test_whatever_was_written_accepted_zones_keep_it_and_all_fit_and_no_zone_has_more_than_asked_for(history: Any):
    zones, written = history
    grants = agreed_grants(zones, make_config(1, pool().config, written))

    decisions = admit(zones, grants.entries, SIZE, doubtful=grants.doubtful)

    kept = {name: decision.entry for name, decision in decisions.items() if decision.entry is not None}
    for each in zones:
        if each.status == reported("True"):
            assert kept[each.meta.name] == each.config
        elif each.meta.name in kept:
            assert kept[each.meta.name].reserved <= each.config.reserved
    assert sum(each.reserved for each in kept.values()) <= SIZE
