"""Which zones fit, by example; each case is named after its meaning for an operator of the pool."""

import pytest

from tenantzone_contract.zone_config.tiers import CpuTier, PoolTiers
from tenantzone_operator.kube.conditions import Reason
from tenantzone_operator.planning.admission import AdmissionDecision, admit
from tenantzone_operator.planning.provisional import found_provisional, still_provisional
from tests.operator.objects import entry, pool, snapshot, zone


@pytest.mark.parametrize(
    ("zones", "granted", "size", "expected"),
    [
        pytest.param(
            [zone("a", age=2, reserved="40%"), zone("b", age=1, reserved="60%")],
            [],
            100,
            {"a": ("Accepted", "40%"), "b": ("Accepted", "60%")},
            id="what adds up to everything fits",
        ),
        pytest.param(
            [zone("a", age=1, reserved="60%"), zone("b", age=2, reserved="60%")],
            [],
            100,
            {"a": ("PoolOvercommitted", None), "b": ("Accepted", "60%")},
            id="of two new zones the older one is served first",
        ),
        pytest.param(
            [zone("b", reserved="60%"), zone("a", reserved="60%")],
            [],
            100,
            {"a": ("Accepted", "60%"), "b": ("PoolOvercommitted", None)},
            id="created in the same second, the name decides",
        ),
        pytest.param(
            [zone("a", age=2, reserved="60%"), zone("b", age=1, reserved="60%")],
            [entry("b", reserved="60%")],
            100,
            {"a": ("PoolOvercommitted", None), "b": ("Accepted", "60%")},
            id="what was granted is not taken away for an older zone",
        ),
        pytest.param(
            [zone("a", age=2, reserved="90%", generation=2), zone("b", age=1, reserved="30%")],
            [entry("a", reserved="40%"), entry("b", reserved="30%")],
            100,
            {"a": ("PoolOvercommitted", "40%"), "b": ("Accepted", "30%")},
            id="an increase that does not fit leaves what was accepted",
        ),
        pytest.param(
            [
                zone("a", age=2, reserved="90%", generation=2),
                zone("b", age=1, reserved="30%"),
                zone("c", reserved="50%"),
            ],
            [entry("a", reserved="40%"), entry("b", reserved="30%")],
            100,
            {"a": ("PoolOvercommitted", "40%"), "b": ("Accepted", "30%"), "c": ("PoolOvercommitted", None)},
            id="what a refused increase leaves in force still counts",
        ),
        pytest.param(
            [zone("a", age=2, reserved="70%", generation=2), zone("b", age=1, reserved="30%")],
            [entry("a", reserved="40%"), entry("b", reserved="30%")],
            100,
            {"a": ("Accepted", "70%"), "b": ("Accepted", "30%")},
            id="an increase into what is left is granted",
        ),
        pytest.param(
            [zone("a", age=2, reserved="70%", generation=2), zone("b", age=1, reserved="30%", generation=2)],
            [entry("a", reserved="40%"), entry("b", reserved="60%")],
            100,
            {"a": ("Accepted", "70%"), "b": ("Accepted", "30%")},
            id="one zone's decrease makes room for another's increase",
        ),
        pytest.param(
            [zone("a", age=3, reserved=40), zone("b", age=2, reserved=40), zone("c", age=1, reserved="2%")],
            [entry("a", reserved=40), entry("b", reserved=40)],
            60,
            {"a": ("Accepted", 40), "b": ("Accepted", 40), "c": ("PoolOvercommitted", None)},
            id="when the engines shrink all that was accepted stays, and nothing new fits",
        ),
        pytest.param(
            [zone("a", age=2, reserved=30, generation=2), zone("b", age=1, reserved=50, generation=2)],
            [entry("a", reserved=40), entry("b", reserved=40)],
            60,
            {"a": ("Accepted", 30), "b": ("PoolOvercommitted", 40)},
            id="then less is granted and more is not",
        ),
        pytest.param(
            [zone("a", reserved=0, generation=2)],
            [entry("a", reserved=40), entry("b", reserved=400)],
            60,
            {"a": ("Accepted", 0)},
            id="nothing fits everywhere",
        ),
        pytest.param(
            [zone("a", age=2, reserved="60%"), zone("b", age=1, reserved="60%"), zone("c", reserved=9999)],
            [],
            None,
            {"a": ("Accepted", "60%"), "b": ("PoolOvercommitted", None), "c": ("AcceptedProvisionally", 9999)},
            id="without any engine percentages must add up, and blocks are taken provisionally",
        ),
        pytest.param(
            [zone("a", age=1, tenant="t"), zone("b", age=2, tenant="t")],
            [],
            100,
            {"a": ("TenantConflict", None), "b": ("Accepted", 0)},
            id="a tenant belongs to the oldest zone that names it",
        ),
        pytest.param(
            [zone("b", tenant="t"), zone("a", tenant="t")],
            [entry("b").model_copy(update={"tenant": "t"})],
            100,
            {"a": ("TenantConflict", None), "b": ("Accepted", 0)},
            id="who has the tenant keeps it, whatever the name of one from the same second",
        ),
        pytest.param(
            [zone("a", reserved="40%", limit=10)],
            [],
            100,
            {"a": ("Invalid", None)},
            id="a limit in blocks that is below a reservation in percent, in an engine of the planned size",
        ),
        pytest.param(
            [zone("a", reserved="40%", limit="10%", generation=2)],
            [entry("a", reserved="20%")],
            100,
            {"a": ("Invalid", "20%")},
            id="an invalid change leaves what was accepted",
        ),
        pytest.param(
            [zone("a", reserved="40%", limit="10%")],
            [],
            100,
            {"a": ("Invalid", None)},
            id="what the API server should have refused is refused here",
        ),
        pytest.param(
            [zone("a", tenant="new", reserved="60%")],
            [entry("a", reserved="10%")],
            100,
            {"a": ("Accepted", "60%")},
            id="a zone made again for another tenant starts afresh",
        ),
    ],
)
def test_admit(zones, granted, size, expected):
    decisions = admit(zones, {kept.name: kept for kept in granted}, size)

    found = {
        name: (decision.reason.value, decision.entry.reserved if decision.entry is not None else None)
        for name, decision in decisions.items()
    }
    assert found == expected


def test_a_refusal_says_what_to_change():
    zones = [zone("a", age=1, reserved="40%"), zone("b", reserved="80%")]

    message = admit(zones, {}, 256)["b"].message

    assert message == (
        "reserved is 80%, which is 204 blocks, but only 154 of an engine's 256 blocks are left, which is 50 too few; "
        "lower reserved to 154 (60%), or lower reserved of other zones"
    )


def test_what_stays_in_force_is_said():
    decision = admit([zone("a", reserved=200, generation=2)], {"a": entry("a", reserved=10)}, 100)["a"]

    assert decision.message.endswith("Generation 1 stays in force")
    assert decision.entry == entry("a", reserved=10)


@pytest.mark.parametrize(
    ("spec", "whether"),
    [
        ({"reserved": 50}, "50 blocks fit"),
        ({"reserved": "50%", "limit": 10}, "the zone fits"),
        ({"reserved": "50%", "lending": {"lendable": 10}}, "the zone fits"),
        ({"seats": {"reserved": 3, "limit": "10%"}}, "the zone fits"),
    ],
)
def test_what_can_not_be_compared_yet_is_accepted_provisionally(spec, whether):
    wants = zone("a", **spec)

    first = admit([wants], {}, None)["a"]
    again = admit([wants], {"a": wants.config}, None, provisional={"a"})["a"]

    assert first == again
    assert (first.reason, first.accepted) == (Reason.ACCEPTED_PROVISIONALLY, True)
    assert f"no engine has reported its size yet, so the operator will decide later whether {whether}" in first.message


def test_what_does_not_depend_on_a_size_is_accepted_for_good():
    decisions = admit([zone("a", reserved="50%", limit="60%"), zone("b"), zone("c", limit=10)], {}, None)

    assert {decision.reason for decision in decisions.values()} == {Reason.ACCEPTED}


def test_what_was_granted_for_good_is_not_provisional_where_no_size_is_known():
    known = zone("a", reserved=50)

    assert admit([known], {"a": known.config}, None)["a"].reason == Reason.ACCEPTED


def decided_again(*zones, granted=(), size=1000):
    """The zones that are accepted after the first size is known; all but ``granted`` were provisional before."""
    known = {each.meta.name: each.config for each in (*zones, *granted)}
    decisions = admit([*zones, *granted], known, size, provisional={each.meta.name for each in zones})
    refused = {name for name, decision in decisions.items() if not decision.accepted}
    assert all(decisions[name].entry is None for name in refused), "the engines get nothing of them"
    assert {decision.reason for name, decision in decisions.items() if name not in refused} <= {Reason.ACCEPTED}
    return decisions.keys() - refused


def test_when_a_size_is_known_the_oldest_of_equal_priority_stay():
    zones = [zone(name, age=age, reserved=400) for name, age in (("c", 1), ("a", 3), ("b", 2))]

    assert decided_again(*zones) == {"a", "b"}


def test_when_a_size_is_known_priority_goes_before_age():
    zones = [
        zone("old", age=2, reserved=1000),
        zone("high", age=1, reserved=700, priority=5),
        zone("low", reserved=300),
    ]

    assert decided_again(*zones) == {"high", "low"}


def test_what_was_granted_for_good_goes_before_what_was_granted_provisionally():
    firm = zone("firm", reserved="60%")

    assert decided_again(zone("high", age=3, reserved=500, priority=9), granted=[firm]) == {"firm"}


def test_when_a_size_is_known_what_contradicts_itself_is_refused_by_the_field():
    mixed = zone("a", reserved=900, limit="1%")

    decision = admit([mixed], {"a": mixed.config}, 1000, provisional={"a"})["a"]

    assert (decision.reason, decision.entry) == (Reason.INVALID, None)
    assert decision.message.startswith("limit (1%, which is 10 blocks) must not be below reserved")


def test_who_is_provisional_is_known_by_the_status_of_the_pool_and_then_by_the_plans():
    in_force = snapshot(1, zone("a", reserved=50), zone("b", reserved="50%"), zone("c", reserved="50%", limit=10))

    found = found_provisional(pool(status={"configGeneration": 1}), in_force)

    assert found == {"a", "c"}
    assert not found_provisional(pool(status={"configGeneration": 1, "capacityBlocks": 100}), in_force)
    assert not found_provisional(pool(), in_force), "a status that was lost takes nothing from anybody"
    refused = {
        "a": AdmissionDecision(Reason.POOL_OVERCOMMITTED, "", None),
        "b": AdmissionDecision(Reason.ACCEPTED, "", None),
    }
    assert still_provisional(found, refused) == {"a"}, "until the config is written the engines have it"
    assert still_provisional(found, {"a": AdmissionDecision(Reason.ACCEPTED, "", None)}) == set()
    assert still_provisional([], {"d": AdmissionDecision(Reason.ACCEPTED_PROVISIONALLY, "", None)}) == {"d"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"reserved": 900, "limit": "1%"},
            "limit (1%, which is 10 blocks) must not be below reserved (900 blocks), as it is in an engine with "
            "1000 blocks; raise limit or lower reserved",
        ),
        (
            {"reserved": "50%", "limit": 100},
            "limit (100 blocks) must not be below reserved (50%, which is 500 blocks), as it is in an engine with "
            "1000 blocks; raise limit or lower reserved",
        ),
        (
            {"reserved": "1%", "lending": {"lendable": 11}},
            "lending.lendable (11 blocks) must not exceed reserved (1%, which is 10 blocks), as it does in an engine "
            "with 1000 blocks; lower it, or give a percentage of the reservation",
        ),
        (
            {"seats": {"reserved": 30, "limit": "10%"}},
            "seats.limit (10%, which is 20 requests at once) must not be below seats.reserved (30 requests at once), "
            "as it is in an engine with 200 requests at once; raise seats.limit or lower seats.reserved",
        ),
        (
            {"tiers": [{"tier": "cpu", "reserved": "50%", "limit": "1Gi"}]},
            "tiers[cpu].limit (1Gi) must not be below tiers[cpu].reserved (50%, which is 4Gi), as it is in an engine "
            "with 8Gi; raise tiers[cpu].limit or lower tiers[cpu].reserved",
        ),
        (
            {"tiers": [{"tier": "cpu", "reserved": "2Gi", "limit": "10%"}]},
            "tiers[cpu].limit (10%, which is 819Mi) must not be below tiers[cpu].reserved (2Gi), as it is in an engine "
            "with 8Gi; raise tiers[cpu].limit or lower tiers[cpu].reserved",
        ),
    ],
)
def test_a_number_and_a_percentage_that_contradict_each_other_are_refused_by_the_field(spec, message):
    granted = entry("a")
    sizes = {"size": 1000, "seats": 200, "tiers": PoolTiers(cpu=CpuTier(bytes=8 * 2**30))}

    new = admit([zone("a", **spec), zone("b", reserved="100%")], {}, **sizes)
    changed = admit([zone("a", generation=2, **spec)], {"a": granted}, **sizes)["a"]

    assert (new["a"].reason, new["a"].message, new["a"].entry) == (Reason.INVALID, message, None)
    assert new["b"].accepted, "what is refused takes nothing from others"
    assert changed.message == f"{message}. Generation 1 stays in force"
    assert changed.entry == granted


@pytest.mark.parametrize(
    "spec",
    [
        {"reserved": 10, "limit": "1%"},
        {"reserved": "1%", "limit": 10, "lending": {"lendable": 10}},
        {"seats": {"reserved": 20, "limit": "10%"}},
        {"tiers": [{"tier": "cpu", "reserved": "50%", "limit": "4Gi"}]},
    ],
)
def test_a_number_and_a_percentage_may_be_the_same(spec):
    tiers = PoolTiers(cpu=CpuTier(bytes=8 * 2**30))

    assert admit([zone("a", **spec)], {}, 1000, tiers=tiers, seats=200)["a"].reason == Reason.ACCEPTED


def test_a_limit_that_falls_below_what_was_granted_is_refused():
    decision = admit([zone("a", reserved=900, limit="1%", generation=2)], {"a": entry("a", reserved=900)}, 1000)["a"]

    assert decision.reason == Reason.INVALID
    assert decision.entry == entry("a", reserved=900)


def test_what_was_granted_stays_when_engines_of_another_size_make_it_contradict_itself():
    mixed = zone("a", reserved=10, limit="1%")

    decision = admit([mixed], {"a": mixed.config}, 100)["a"]

    assert (decision.reason, decision.entry) == (Reason.ACCEPTED, mixed.config)
