"""Tiers below engines' blocks: whose reservations fit, and the status about them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantzone_contract.reports.report import TierReport
from tenantzone_contract.reports.zone_report import TierEffectReport, ZoneTierReport
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.tiers import SHARED_TIER, TIER_NAMES
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import Plan, make_plan
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.statuses import ZoneStatuses, pool_status, without_gauges, zone_status
from tests.operator.objects import NOW, observed, pool, silent, zone

CRDS = Path(__file__).parents[2] / "crds"
GI = 2**30
TIERED = pool(tiers={"cpu": {"bytes": "8Gi"}, "disk": {"folder": "/data", "bytes": 100 * GI}})


def sharing(name: str, *, status: Any = None, age: int = 0, **reserved: Any) -> Zone:
    """A zone that reserves these amounts of each tier."""
    tiers = [{"tier": tier, "reserved": amount} for tier, amount in reserved.items()]
    return zone(name, status=status, age=age, tiers=tiers)


def planned(*zones: Zone, of: Pool = TIERED, in_force: RuntimeConfig | None = None) -> Plan:
    return make_plan(of, list(zones), in_force=in_force, last_generation=0, size=100, room=ConfigRoom())


def accepted(plan: Plan) -> dict[str, bool]:
    return {name: decision.accepted for name, decision in plan.decisions.items()}


def definition(kind: str) -> dict[str, Any]:
    (version,) = yaml.safe_load((CRDS / f"{kind}.yaml").read_text())["spec"]["versions"]
    found: dict[str, Any] = version
    return found


def spec_of(kind: str) -> dict[str, Any]:
    """The properties of the kind's spec."""
    found: dict[str, Any] = definition(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def test_a_tier_that_gives_back_too_little_is_a_condition_with_the_ratio():
    acme = sharing("acme", cpu=GI)
    (config,) = [planned(acme).config]
    assert config is not None

    def conditions(*effects: TierEffectReport | None) -> list[dict[str, Any]]:
        shares = {"reserved_bytes": GI, "limit_bytes": 8 * GI, "held_bytes": 0}
        engines = [
            observed(
                config,
                engine=f"engine-{number}",
                acme={"tiers": (ZoneTierReport(tier="cpu", effect=effect, **shares),)},
            )
            for number, effect in enumerate(effects)
        ]
        history = History()
        history.record(config, 1000)
        decision = planned(acme).decisions["acme"]
        status = zone_status(acme, decision, engines, history, before={}, now=NOW)
        return [each for each in status["conditions"] if each["type"] == "TierIneffective"]

    bad = TierEffectReport(offered_bytes=62 * GI, loaded_bytes=GI, ineffective=True)
    good = TierEffectReport(offered_bytes=62 * GI, loaded_bytes=62 * GI, ineffective=False)
    assert conditions(None, good) == []
    (found,) = conditions(good, bad, None)
    assert (found["status"], found["reason"]) == ("True", "LittleLoaded")
    assert "engine-1 loaded 1.6% of the zone's bytes offered to tier cpu" in found["message"]
    assert "engine-0" not in found["message"]


# Reading


def test_the_api_knows_each_tier_and_no_other():
    of_zones = spec_of("tenantzones")["tiers"]["items"]["properties"]["tier"]["enum"]
    of_pools = spec_of("zonepools")["tiers"]["properties"].keys() - {"manager"}
    assert set(of_zones) == of_pools == set(TIER_NAMES)


@pytest.mark.parametrize("kind", ["tenantzones", "zonepools"])
def test_the_condition_has_a_column(kind: str):
    columns = {column["name"]: column["jsonPath"] for column in definition(kind)["additionalPrinterColumns"]}
    assert columns["Tiers"] == '.status.conditions[?(@.type=="TiersEnforced")].status'


def test_each_tier_has_a_column():
    columns = [column["jsonPath"] for column in definition("tenantzones")["additionalPrinterColumns"]]
    assert [path for path in columns if path.startswith(".status.tiers")] == [
        f'.status.tiers[?(@.tier=="{name}")].summary' for name in (*TIER_NAMES, SHARED_TIER)
    ]


def test_amounts_are_read_as_bytes_or_percent():
    read = zone("acme", tiers=[{"tier": "cpu", "reserved": "1.5Gi", "limit": "50%", "ttl": "2h"}, {"tier": "disk"}])
    assert read.config is not None
    cpu, disk = read.config.tiers
    assert (cpu.reserved, cpu.limit, cpu.ttl_seconds) == (1536 * 2**20, "50%", 7200.0)
    assert (disk.reserved, disk.limit, disk.ttl_seconds) == (0, None, None)
    assert read.config.offload == "All"
    assert TIERED.config is not None
    assert TIERED.config.tiers.cpu is not None
    assert TIERED.config.tiers.cpu.bytes == 8 * GI


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"tiers": [{"tier": "cpu", "reserved": "8Zi"}]}, "tiers[cpu].reserved: expected an amount of bytes"),
        ({"tiers": [{"tier": "cpu", "ttl": "soon"}]}, "tiers[cpu].ttl: expected a duration"),
        (
            {"tiers": [{"tier": "cpu", "reserved": "2Gi", "limit": "1Gi"}]},
            "reserved (2147483648) must not exceed limit",
        ),
    ],
)
def test_what_makes_no_sense_is_named(spec: dict[str, Any], refusal: str):
    assert refusal in zone("acme", **spec).invalid


# Which reservations fit


def test_what_zones_reserve_of_a_tier_must_fit_oldest_first():
    plan = planned(
        sharing("old", age=3, cpu="6Gi"), sharing("young", age=1, cpu="3Gi"), sharing("middle", age=2, cpu="25%")
    )
    assert accepted(plan) == {"old": True, "middle": True, "young": False}
    decision = plan.decisions["young"]
    assert decision.reason == "PoolOvercommitted"
    assert decision.message == (
        "reserved of tier cpu is 3Gi, but 0 of an engine's 8Gi are left; lower reserved to 0 bytes or less, or lower "
        "reserved in other zones"
    )


def test_each_tier_is_counted_separately():
    plan = planned(sharing("old", age=2, cpu="8Gi"), sharing("young", age=1, cpu=0, disk="100%"))
    assert accepted(plan) == {"old": True, "young": True}


def test_a_tier_that_the_pool_has_not_is_named():
    plan = planned(sharing("acme", disk="10%"), of=pool(tiers={"cpu": {"bytes": GI}}))
    assert plan.decisions["acme"].message == (
        "reserved of tier disk is 10%, but ZonePool demo has no such tier; add spec.tiers.disk to the ZonePool, or "
        "remove the tier here"
    )
    only_bounded = zone("acme", tiers=[{"tier": "disk", "limit": "10%"}])
    assert accepted(planned(only_bounded, of=pool())) == {"acme": True}


def test_what_was_granted_stays_when_more_is_asked_for_than_there_is():
    first = planned(sharing("old", age=2, cpu="4Gi"), sharing("young", age=1, cpu="4Gi"))
    more = planned(sharing("old", age=2, cpu="5Gi"), sharing("young", age=1, cpu="4Gi"), in_force=first.config)
    assert accepted(more) == {"old": False, "young": True}
    assert more.decisions["old"].message.endswith("Generation 1 stays in force")
    assert more.config == first.config


def test_what_a_zone_has_itself_is_there_for_its_increase():
    first = planned(sharing("acme", cpu="6Gi"))
    assert accepted(planned(sharing("acme", cpu="8Gi"), in_force=first.config)) == {"acme": True}
    assert accepted(planned(sharing("acme", cpu="9Gi"), in_force=first.config)) == {"acme": False}


def test_a_part_of_a_tier_that_is_gone_is_no_less_than_bytes_of_it():
    first = planned(sharing("acme", cpu="6Gi"))
    assert accepted(planned(sharing("acme", cpu="50%"), of=pool(), in_force=first.config)) == {"acme": False}
    assert accepted(planned(sharing("acme", cpu="50%"), in_force=first.config)) == {"acme": True}


@pytest.mark.parametrize("tiers", [{"cpu": {"bytes": "2Gi"}}, {}], ids=["less", "none"])
def test_no_zone_loses_a_reservation_because_the_pool_has_less(tiers: dict[str, Any]):
    zones = sharing("old", age=2, cpu="4Gi"), sharing("young", age=1, cpu="50%")
    first = planned(*zones)
    smaller = planned(*zones, sharing("late", cpu=GI), of=pool(tiers=tiers), in_force=first.config)
    assert accepted(smaller) == {"old": True, "young": True, "late": False}


@pytest.mark.parametrize("tiers", [{"cpu": {"bytes": "2Gi"}}, {}], ids=["less", "none"])
def test_what_is_lowered_is_accepted_whatever_the_pool_has(tiers: dict[str, Any]):
    first = planned(sharing("acme", cpu="4Gi"))
    assert accepted(planned(sharing("acme", cpu="3Gi"), of=pool(tiers=tiers), in_force=first.config)) == {"acme": True}


# The status


def reported(name: str = "cpu", held: int = 0, reserved: int = 0, **fields: int) -> ZoneTierReport:
    return ZoneTierReport(tier=name, held_bytes=held, reserved_bytes=reserved, limit_bytes=8 * GI, **fields)


def tier(name: str = "cpu", size: int = 8 * GI, problem: str = "") -> TierReport:
    return TierReport(tier=name, capacity_bytes=size, held_bytes=0, chunk_bytes=2**20, problem=problem)


def engine(
    of: Zone, name: str = "engine-0", *tiers: TierReport, zone_tiers: tuple[ZoneTierReport, ...] = ()
) -> Observation:
    return observed(planned(of).config, engine=name, tiers=tiers, acme={"tiers": zone_tiers})


def status_of(declared: Zone, *observations: Observation) -> dict[str, Any]:
    history, plan = History(), planned(declared)
    assert plan.config is not None
    history.record(plan.config, 1000)
    return zone_status(declared, plan.decisions["acme"], observations, history, before=declared.status, now=NOW)


def pool_status_of(of: Pool, *observations: Observation) -> dict[str, Any]:
    history, plan = History(), planned(sharing("acme", cpu="2Gi"), of=of)
    assert plan.config is not None
    history.record(plan.config, 1000)
    return pool_status(of, plan, observations, history, size=100, before={}, now=NOW)


def condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((found for found in status["conditions"] if found["type"] == "TiersEnforced"), {})


ACME = sharing("acme", cpu="2Gi")


def test_what_a_zone_holds_is_added_up_over_engines():
    rows = reported(held=GI, reserved=2 * GI, hits=5, evictions=2, writes_refused=1)
    status = status_of(
        ACME,
        engine(ACME, "a", tier(), zone_tiers=(rows,)),
        engine(ACME, "b", tier(), tier("disk"), zone_tiers=(rows, reported("disk", held=7))),
        silent("c"),
    )
    assert status["tiers"] == [
        {
            "tier": "cpu",
            "summary": "2Gi/4Gi",
            "held": 2 * GI,
            "reserved": 4 * GI,
            "hits": 10,
            "evictions": 4,
            "writesRefused": 2,
        },
        {"tier": "disk", "summary": "7/0", "held": 7, "reserved": 0, "hits": 0, "evictions": 0, "writesRefused": 0},
    ]
    assert "tiers" not in without_gauges(status), "it moves with each request, and is written in its turn"


def test_without_tiers_a_status_is_as_before():
    plain = zone("acme")
    status = status_of(plain, engine(plain))
    assert "tiers" not in status
    assert condition(status) == {}
    of_pool = pool_status_of(pool(), engine(ACME))
    assert "tiers" not in of_pool
    assert condition(of_pool) == {}


def test_engines_that_have_what_is_declared_enforce_it():
    rows = (reported(reserved=2 * GI),)
    found = condition(status_of(ACME, engine(ACME, "a", tier(), zone_tiers=rows)))
    assert (found["status"], found["reason"]) == ("True", "Enforced")


@pytest.mark.parametrize(
    ("tiers", "zone_tiers", "reason", "message"),
    [
        pytest.param((), (), "TierMissing", "b has no tier cpu; start it with the connector", id="no connector"),
        pytest.param(
            (tier("disk"),), (reported("disk"),), "TierMissing", "b has no tier cpu; start it", id="another tier only"
        ),
        pytest.param(
            (tier(size=GI),),
            (reported(awaited_bytes=2 * GI),),
            "TierTooSmall",
            "b has 1Gi of tier cpu and lacks 2Gi that the zone reserves; start the engine with the size",
            id="too small",
        ),
        pytest.param(
            (tier(problem="writes fail: \x1bno space"),),
            (reported(reserved=2 * GI),),
            "TierFailing",
            "tier cpu of b fails, so requests recompute its blocks: writes fail: \N{REPLACEMENT CHARACTER}no",
            id="failing",
        ),
    ],
)
def test_an_engine_that_does_not_is_named_and_what_to_do(tiers: Any, zone_tiers: Any, reason: str, message: str):
    good = engine(ACME, "a", tier(), zone_tiers=(reported(reserved=2 * GI),))
    status = status_of(ACME, good, engine(ACME, "b", *tiers, zone_tiers=zone_tiers))
    found = condition(status)
    assert (found["status"], found["reason"]) == ("False", reason)
    assert found["message"].startswith(message)
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True", "a tier costs hits, and never the guarantee of blocks"


def test_a_tier_that_begins_to_fail_is_reported_although_nothing_of_the_zone_has_changed():
    history, plan, statuses = History(), planned(ACME), ZoneStatuses()
    assert plan.config is not None
    history.record(plan.config, 1000)
    for problem, status in (("", "True"), ("reads fail: broken", "False"), ("", "True")):
        seen = engine(ACME, "a", tier(problem=problem), zone_tiers=(reported(reserved=2 * GI),))
        made = statuses.make([ACME], plan.decisions, [seen], history, now=NOW)
        assert condition(dict(made["acme"]))["status"] == status


def test_unknown_facts_are_shown_as_unknown():
    assert condition(status_of(ACME))["reason"] == "NoEngines"
    found = condition(status_of(ACME, silent("a"), engine(ACME, "b", tier(), zone_tiers=(reported(),))))
    assert (found["status"], found["reason"], found["message"]) == ("Unknown", "Pending", "waiting for a")
    refused = sharing("acme", cpu="9Gi")
    history, plan = History(), planned(refused)
    assert plan.config is not None
    history.record(plan.config, 1000)
    status = zone_status(refused, plan.decisions["acme"], [engine(ACME)], history, before={}, now=NOW)
    assert condition(status)["reason"] == "NotAccepted"


def test_a_pool_says_what_is_left_of_its_tiers():
    assert pool_status_of(TIERED)["tiers"] == [
        {"tier": "cpu", "bytes": 8 * GI, "reserved": 2 * GI, "allocatable": 6 * GI},
        {"tier": "disk", "bytes": 100 * GI, "reserved": 0, "allocatable": 100 * GI},
    ]


@pytest.mark.parametrize(
    ("size", "status", "reason"),
    [
        pytest.param(8 * GI, "True", "Enforced", id="as declared"),
        pytest.param(8 * GI - 2**20 + 1, "True", "Enforced", id="less by what is no whole chunk"),
        pytest.param(8 * GI - 2**20, "False", "TierTooSmall", id="less by a chunk"),
        pytest.param(80 * GI, "True", "Enforced", id="more"),
    ],
)
def test_a_pool_says_whether_engines_have_what_it_declares(size: int, status: str, reason: str):
    of = pool(tiers={"cpu": {"bytes": "8Gi"}})
    found = condition(pool_status_of(of, engine(ACME, "a", tier(size=size))))
    assert (found["status"], found["reason"]) == (status, reason)


def test_a_pool_names_engines_without_a_tier_and_those_whose_tier_fails():
    of = pool(tiers={"cpu": {"bytes": "8Gi"}})
    found = condition(pool_status_of(of, engine(ACME, "a"), engine(ACME, "b", tier(problem="reads fail: broken"))))
    assert found["reason"] == "TierMissing"
    assert "a has no tier cpu" in found["message"]
    assert found["message"].endswith("reads fail: broken")
    assert condition(pool_status_of(of, silent()))["reason"] == "Pending"
