"""A zone's status about its latency targets, from the engines' reports."""

import random
from typing import Any

import pytest

from tenantzone_contract.reports.zone_report import LatencyReport, TargetReport
from tenantzone_operator.kube.resources import Zone
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import make_plan
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.latency import ShownRanges
from tenantzone_operator.status.statuses import ZoneStatuses, zone_status
from tests.operator.objects import NOW, observed, pool, silent, snapshot, zone


def targeted(status: Any = None, **latency: str) -> Zone:
    return zone("acme", status=status, latency=latency or {"tokenTime": "50ms"})


def target(actual: float | None, reason: str, seconds: float = 0.05) -> TargetReport:
    return TargetReport(target_seconds=seconds, actual_seconds=actual, reason=reason)


def engine(name: str = "engine-0", *, of: Zone | None = None, **latency: Any) -> Any:
    return observed(snapshot(1, of or targeted()), engine=name, acme={"latency": LatencyReport(**latency)})


def status_of(zone: Zone, *observations: Any, shown: ShownRanges | None = None) -> dict[str, Any]:
    history = History()
    made = make_plan(pool(), [zone], in_force=None, last_generation=0, size=100, room=ConfigRoom())
    assert made.config is not None
    history.record(made.config, 1000)
    return zone_status(zone, made.decisions["acme"], observations, history, before=zone.status, now=NOW, shown=shown)


def condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((found for found in status["conditions"] if found["type"] == "LatencyTargetMet"), {})


def test_a_zone_without_a_target_has_no_such_condition():
    plain = zone("acme")
    assert condition(status_of(plain, engine(of=plain))) == {}


def test_a_target_that_no_engine_misses_is_met():
    found = condition(status_of(targeted(), engine("a", token_time=target(0.04, "Met")), engine("b")))
    assert (found["status"], found["reason"]) == ("True", "Met")
    assert found["message"].startswith("50 ms between two tokens: ")


def test_one_engine_that_misses_is_named_with_the_time_the_reason_and_what_helps():
    met = engine("a", token_time=target(0.04, "Met"))
    missed = engine("b", token_time=target(0.09, "OwnLoad"))
    found = condition(status_of(targeted(), met, missed))
    assert (found["status"], found["reason"]) == ("False", "OwnLoad")
    assert found["message"].startswith("b: 75 ms to 100 ms between two tokens, the target is 50 ms: missed: ")
    assert "lower spec.seats.limit" in found["message"]


def test_the_reason_is_that_of_the_worst():
    both = targeted(tokenTime="50ms", firstToken="1s")
    report = {"token_time": target(0.09, "OwnLoad"), "first_token": target(30.0, "Seats", 1.0)}
    found = condition(status_of(both, engine(of=both, **report)))
    assert found["reason"] == "Seats"
    assert "10000 ms and more to the first token" in found["message"]
    assert "75 ms to 100 ms between two tokens" in found["message"]


def test_reasons_of_a_newer_engine_are_reported_in_its_words():
    found = condition(status_of(targeted(), engine(token_time=target(0.09, "Moon\x1b[31mPhase"))))
    assert (found["status"], found["reason"]) == ("False", "Missed")
    assert found["message"].endswith("missed: Moon\N{REPLACEMENT CHARACTER}[31mPhase")


@pytest.mark.parametrize(
    ("observations", "reason"),
    [
        ([], "NoEngines"),
        ([engine(token_time=target(None, "NoTraffic"))], "NoTraffic"),
        ([observed(snapshot(1, targeted()))], "Pending"),
        ([silent()], "Pending"),
        ([engine(token_time=target(9.0, "OwnLoad", 0.08))], "Pending"),
    ],
    ids=["no engine", "no traffic", "an engine that is older", "a silent engine", "of a former target"],
)
def test_unknown_facts_are_shown_as_unknown(observations, reason):
    found = condition(status_of(targeted(), *observations))
    assert (found["status"], found["reason"]) == ("Unknown", reason)


def test_ready_does_not_depend_on_it():
    status = status_of(targeted(), engine(token_time=target(0.09, "OwnLoad")))
    assert next(found for found in status["conditions"] if found["type"] == "Ready")["status"] == "True"


def test_times_that_move_a_little_change_nothing():
    """Each change is a write, and the figure moves with each request."""
    number, seen, status, shown = random.Random(1), [], None, ShownRanges()
    for border in (1.15, 1.5, 2.0, 3.0):
        for _ in range(50):
            actual = 0.05 * border * number.uniform(0.97, 1.03)
            reason = "Met" if actual <= 0.05 * 1.15 else "Neighbours"
            status = status_of(targeted(status=status), engine(token_time=target(actual, reason)), shown=shown)
            if condition(status)["message"] not in seen[-1:]:
                seen.append(condition(status)["message"])
    assert len(seen) <= 5, "no more than one for each border"


@pytest.mark.parametrize("last", [0.04, 0.06, 0.5])
def test_times_that_have_moved_far_are_reported_whatever_was_reported_before(last):
    for actual, expected in ((0.12, "100 ms to 150 ms"), (0.03, "50 ms between two tokens: in no engine")):
        shown = ShownRanges()
        reason = "Met" if last < 0.05 else "Neighbours"
        first = status_of(targeted(), engine(token_time=target(last, reason)), shown=shown)
        reported = engine(token_time=target(actual, "Met" if actual < 0.05 else "Neighbours"))
        found = condition(status_of(targeted(status=first), reported, shown=shown))
        assert expected in found["message"]


def at(name: str, ratio: float, reason: str = "Neighbours") -> Any:
    """An engine whose tokens take `ratio` times the target."""
    return engine(name, token_time=target(0.05 * ratio, "Met" if ratio <= 1.15 else reason))


NUMBER = random.Random(2)
MOVING = {
    "one next to one that misses it clearly": lambda: [at("a", 3.5), at("b", NUMBER.uniform(1.05, 1.25))],
    "one next to more than can be named": lambda: [
        *(at(name, 3.5) for name in "abcde"),
        at("f", NUMBER.uniform(1.05, 1.25)),
    ],
    "one that comes before more than can be named": lambda: [
        at("a", NUMBER.uniform(1.05, 1.25)),
        *(at(name, 3.5) for name in "bcdef"),
    ],
    "one whose name is the end of another's": lambda: [at("b-1", 2.5), at("1", NUMBER.uniform(1.05, 1.25))],
    "two that miss it alike, for different reasons": lambda: [
        at("a", NUMBER.uniform(2.2, 2.6), "OwnLoad"),
        at("b", NUMBER.uniform(2.2, 2.6), "Neighbours"),
    ],
}


@pytest.mark.parametrize("engines", MOVING.values(), ids=MOVING)
def test_engines_that_move_a_little_change_nothing(engines):
    status, changes, shown = None, -1, ShownRanges()
    for _ in range(100):
        before, status = status, status_of(targeted(status=status), *engines(), shown=shown)
        changes += before is None or condition(status) != condition(before)
    assert changes <= 2, "no more than until the first words are found"


def test_more_engines_than_can_be_named_are_others():
    found = condition(status_of(targeted(), *(at(name, 3.5) for name in "abcde")))
    assert [name for name in "abcde" if f"{name}: 150 ms to" in found["message"]] == list("abc")
    assert found["message"].endswith("; and others")


def test_requests_now_and_then_change_nothing_while_the_target_is_met():
    served = engine(token_time=target(0.04, "Met"))
    quiet = engine(token_time=target(None, "NoTraffic"))
    first = status_of(targeted(), served)
    then = status_of(targeted(status=first), quiet)
    assert condition(then) == condition(first)
    other = targeted(status=first, tokenTime="80ms")
    of_other = engine(of=other, token_time=target(None, "NoTraffic", 0.08))
    assert condition(status_of(other, of_other))["reason"] == "NoTraffic"
    missed = status_of(targeted(), engine(token_time=target(0.09, "OwnLoad")))
    assert condition(status_of(targeted(status=missed), quiet))["reason"] == "NoTraffic"


def test_a_met_target_stays_met_without_traffic_after_an_upgrade_of_the_operator():
    met = status_of(targeted(), engine(token_time=target(0.04, "Met")))
    words = condition(met)["message"].partition(": ")[0]
    older = [each | {"message": f"{words}: in other words"} for each in met["conditions"] if each == condition(met)]
    quiet = engine(token_time=target(None, "NoTraffic"))
    assert condition(status_of(targeted(status=met | {"conditions": older}), quiet))["status"] == "True"


def test_only_ranges_of_missed_targets_are_kept():
    shown = ShownRanges()
    status_of(targeted(), at("a", 1.0), at("b", 2.5), shown=shown)
    assert [pod for pod, _, _ in shown.grades or ()] == ["b"]


def test_ranges_are_those_of_the_operators_memory_and_not_of_a_status_that_others_may_write():
    at_a_bound = at("a", 1.2)
    shown = ShownRanges()
    met = status_of(targeted(), at("a", 1.0), shown=shown)
    forged = condition(status_of(targeted(), at("a", 2.5)))
    status = met | {
        "conditions": [forged if each["type"] == "LatencyTargetMet" else each for each in met["conditions"]]
    }
    assert condition(status_of(targeted(status=status), at_a_bound, shown=shown))["status"] == "True"


def test_a_new_leader_shows_a_time_at_a_bound_as_it_is_unless_the_target_was_met():
    at_a_bound = at("a", 1.2)
    met, missed = (status_of(targeted(), at("a", ratio)) for ratio in (1.0, 2.5))
    assert condition(status_of(targeted(status=met), at_a_bound))["status"] == "True"
    assert "57.5 ms to 75 ms" in condition(status_of(targeted(status=missed), at_a_bound))["message"]


def test_a_pools_statuses_keep_the_ranges_of_each_zone():
    statuses, history, zone = ZoneStatuses(), History(), targeted()
    made = make_plan(pool(), [zone], in_force=None, last_generation=0, size=100, room=ConfigRoom())
    assert made.config is not None
    history.record(made.config, 1000)

    def met(ratio: float) -> str:
        found = statuses.make([zone], made.decisions, [at("a", ratio)], history, now=NOW)["acme"]
        return condition(dict(found))["message"]

    first = met(1.75)
    assert "75 ms to 100 ms" in first
    assert [met(ratio) for ratio in (2.1, 1.4)] == [first, first]
    assert "100 ms to 150 ms" in met(2.5)
    assert "100 ms to 150 ms" in met(1.9)
