"""Who fits, by example; each case is named by what it says to an operator of the pool."""

import pytest

from tenantzone_operator.planning.admission import admit
from tests.operator.objects import entry, zone


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
            {"a": ("Accepted", "60%"), "b": ("PoolOvercommitted", None), "c": ("Accepted", 9999)},
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
            {"a": ("Accepted", "40%")},
            id="whether a limit in blocks is below a reservation in percent is no engine's to say",
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
    verdicts = admit(zones, {kept.name: kept for kept in granted}, size)

    found = {
        name: (verdict.reason.value, verdict.entry.reserved if verdict.entry is not None else None)
        for name, verdict in verdicts.items()
    }
    assert found == expected


def test_a_refusal_says_what_to_change():
    zones = [zone("a", age=1, reserved="40%"), zone("b", reserved="80%")]

    message = admit(zones, {}, 256)["b"].message

    assert message == (
        "reserved is 80%, which is 204 blocks, and 154 of an engine's 256 blocks are left, 50 too few; "
        "lower reserved to 154 (60%) or lower that of other zones"
    )


def test_what_stays_in_force_is_said():
    verdict = admit([zone("a", reserved=200, generation=2)], {"a": entry("a", reserved=10)}, 100)["a"]

    assert verdict.message.endswith("Generation 1 stays in force")
    assert verdict.entry == entry("a", reserved=10)


def test_that_blocks_can_not_be_compared_yet_is_said():
    assert "no engine has told its size yet" in admit([zone("a", reserved=50)], {}, None)["a"].message
