"""A zone's status about its latency targets, from the engines' reports."""

import random
from typing import Any

import pytest

from tenantzone_contract.reports.report import LatencyReport, TargetReport
from tenantzone_operator.kube.resources import Zone
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import make_plan
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.statuses import zone_status
from tests.operator.objects import NOW, observed, pool, silent, snapshot, zone


def targeted(status: Any = None, **latency: str) -> Zone:
    return zone("acme", status=status, latency=latency or {"tokenTime": "50ms"})


def target(actual: float | None, reason: str, seconds: float = 0.05) -> TargetReport:
    return TargetReport(target_seconds=seconds, actual_seconds=actual, reason=reason)


def engine(name: str = "engine-0", *, of: Zone | None = None, **latency: Any) -> Any:
    return observed(snapshot(1, of or targeted()), engine=name, acme={"latency": LatencyReport(**latency)})


def status_of(zone: Zone, *observations: Any) -> dict[str, Any]:
    history = History()
    made = make_plan(pool(), [zone], in_force=None, last_generation=0, size=100, room=ConfigRoom())
    assert made.config is not None
    history.record(made.config, 1000)
    return zone_status(zone, made.decisions["acme"], observations, history, before=zone.status, now=NOW)


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
    number, seen, status = random.Random(1), [], None
    for border in (1.15, 1.5, 2.0, 3.0):
        for _ in range(50):
            actual = 0.05 * border * number.uniform(0.97, 1.03)
            reason = "Met" if actual <= 0.05 * 1.15 else "Neighbours"
            status = status_of(targeted(status=status), engine(token_time=target(actual, reason)))
            if condition(status)["message"] not in seen[-1:]:
                seen.append(condition(status)["message"])
    assert len(seen) <= 5, "no more than one for each border"


@pytest.mark.parametrize("last", [0.04, 0.06, 0.5])
def test_times_that_have_moved_far_are_reported_whatever_was_reported_before(last):
    first = status_of(targeted(), engine(token_time=target(last, "Met" if last < 0.05 else "Neighbours")))
    found = condition(status_of(targeted(status=first), engine(token_time=target(0.12, "Neighbours"))))
    assert "100 ms to 150 ms" in found["message"]
    back = condition(status_of(targeted(status=first), engine(token_time=target(0.03, "Met"))))
    assert back["status"] == "True"


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
    status, changes = None, -1
    for _ in range(100):
        before, status = status, status_of(targeted(status=status), *engines())
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
