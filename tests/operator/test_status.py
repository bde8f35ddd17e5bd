"""The content of a status, from the engines' reports."""

from typing import Any

import pytest

from tenantzone_contract.reports.report import ApiServerReport
from tenantzone_contract.zone_config.identity import identity_digest
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.planning.config_room import ConfigRoom
from tenantzone_operator.planning.plan import make_plan
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.statuses import ZoneStatuses, pool_status, without_gauges, zone_status
from tests.operator.objects import NOW, observed, pool, registered, silent, snapshot, zone

ACME = zone("acme", reserved="40%")
NEWEST = snapshot(2, ACME, zone("burst"))
OLDER = snapshot(1, zone("acme", generation=0))


def status_of(acme, observations, *, configs=(OLDER, NEWEST), now=NOW):
    history = History()
    for config in configs:
        history.record(config, 1000)
    made = make_plan(pool(), [acme], in_force=None, last_generation=0, size=100, room=ConfigRoom())
    return zone_status(acme, made.decisions["acme"], observations, history, before=acme.status, now=now)


def condition(status, kind):
    return next(condition for condition in status["conditions"] if condition["type"] == kind)


def enforcing(config, *lags, process=7):
    """An API server process that enforces a config; `lags` name how it has long differed from its engine core."""
    return ApiServerReport(process=process, config_generation=config.generation, config_hash=config.hash, lags=lags)


@pytest.mark.parametrize(
    ("api_servers", "programmed"),
    [
        pytest.param(None, "True Acknowledged", id="none has reported yet, and the core's hash counts"),
        pytest.param((enforcing(NEWEST), enforcing(NEWEST, process=8)), "True Acknowledged", id="all have the newest"),
        pytest.param((enforcing(NEWEST), enforcing(OLDER, process=8)), "Unknown Pending", id="one has an older config"),
        pytest.param((ApiServerReport(process=7),), "Unknown Pending", id="one has no config yet"),
        pytest.param((enforcing(OLDER, "config"),), "False ApiServerDiffers", id="one has had an older one for long"),
        pytest.param((enforcing(NEWEST, "keys"),), "False ApiServerDiffers", id="one knows other keys"),
        pytest.param((enforcing(NEWEST, "salt_key"),), "False ApiServerDiffers", id="one has another salt key"),
        pytest.param((enforcing(NEWEST, "silent"),), "False ApiServerDiffers", id="one says nothing"),
        pytest.param((enforcing(NEWEST, "unheard"),), "False ApiServerDiffers", id="a newer engine has other words"),
    ],
)
def test_every_api_server_process_must_enforce_what_is_declared(api_servers, programmed):
    engine = observed(NEWEST, api_servers=api_servers)
    found = condition(status_of(ACME, [engine]), "Programmed")
    assert f"{found['status']} {found['reason']}" == programmed
    history = History()
    history.record(NEWEST, 1000)
    assert history.acknowledges_newest(engine.report) == (found["status"] == "True")


def test_the_message_names_the_pod_the_process_and_what_differs():
    engine = observed(NEWEST, engine="engine-3", api_servers=(enforcing(NEWEST), enforcing(OLDER, "config", "keys")))
    message = condition(status_of(ACME, [engine]), "Programmed")["message"]
    assert message.startswith(
        f"engine-3: API server process 7 enforces config {OLDER.hash[:20]}, not {NEWEST.hash[:20]} and uses API keys"
    )


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (1, "1 of the engine's API server processes has not reported since its start"),
        (2, "2 of the engine's API server processes have not reported since its start"),
    ],
)
def test_an_api_server_process_that_never_reported_is_named(missing, said):
    engine = observed(NEWEST, engine="engine-3", api_servers=(enforcing(NEWEST),), missing_api_servers=missing)
    found = condition(status_of(ACME, [engine]), "Programmed")
    assert (found["status"], found["reason"]) == ("False", "ApiServerDiffers")
    assert found["message"] == f"engine-3: {said}; restart the pod if this persists"


def test_an_api_server_process_with_an_older_config_enforces_what_has_not_changed_since():
    unchanged = snapshot(1, ACME), snapshot(2, ACME, zone("burst"))
    engine = observed(unchanged[1], api_servers=(enforcing(unchanged[0]),))
    assert condition(status_of(ACME, [engine], configs=unchanged), "Programmed")["status"] == "True"


@pytest.mark.parametrize(
    ("observations", "programmed", "ready"),
    [
        pytest.param([observed(NEWEST)], "True Acknowledged", "True Enforced", id="acknowledged by the only engine"),
        pytest.param(
            [observed(NEWEST), observed(OLDER, engine="engine-1")],
            "Unknown Pending",
            "Unknown Pending",
            id="one of two engines is not there yet",
        ),
        pytest.param([observed(None)], "Unknown Pending", "Unknown Pending", id="an engine that has no config yet"),
        pytest.param([], "False NoEngines", "False NoEngines", id="no engine"),
        pytest.param(
            [observed(NEWEST), silent("engine-1")],
            "Unknown EngineUnreachable",
            "Unknown EngineUnreachable",
            id="an engine that does not answer may or may not enforce it",
        ),
        pytest.param(
            [silent("engine-1"), observed(OLDER, error="zones: no")],
            "False ConfigRejected",
            "False ConfigRejected",
            id="a refusal is more certain than silence",
        ),
        pytest.param(
            [observed(NEWEST, error="the config has no signature", untrusted=True)],
            "False ConfigUntrusted",
            "False ConfigUntrusted",
            id="an engine that does not trust the config in its folder",
        ),
        pytest.param(
            [observed(NEWEST.model_copy(update={"zones": ()}))],
            "False ZoneMissing",
            "False ZoneMissing",
            id="an engine that has the config but not the zone",
        ),
        pytest.param(
            [observed(NEWEST.model_copy(update={"hash": "sha256:other"}))],
            "Unknown Pending",
            "Unknown Pending",
            id="the right generation with other content",
        ),
    ],
)
def test_programmed_and_ready(observations, programmed, ready):
    status = status_of(ACME, observations)

    for kind, expected in (("Programmed", programmed), ("Ready", ready)):
        found = condition(status, kind)
        assert f"{found['status']} {found['reason']}" == expected


@pytest.mark.parametrize("untrusted", [False, True], ids=["refused", "untrusted"])
@pytest.mark.parametrize(("applied", "kept"), [(OLDER, "keeps the previous config"), (None, "has no config")])
def test_a_refusal_says_whether_the_engine_has_a_config(applied, kept, untrusted):
    status = status_of(ACME, [observed(applied, error="no", untrusted=untrusted)])

    refused = "a config" if untrusted else "the newest config"
    assert condition(status, "Programmed")["message"] == f"engine-0 refuses {refused} and {kept}: no"


@pytest.mark.parametrize(
    "other", [{"generation": 0}, {"reserved": 9}, {"limit": 99}], ids=["generation", "reserved", "limit"]
)
def test_an_engine_that_has_the_config_and_something_else_in_force_has_not_acknowledged(other):
    wrong = observed(NEWEST, engine="engine-1", acme=other)
    status = status_of(ACME, [observed(NEWEST), wrong])

    programmed = condition(status, "Programmed")
    assert (programmed["status"], programmed["reason"]) == ("False", "ZoneDiffers")
    ((field, value),) = other.items()
    assert programmed["message"].startswith("engine-1 has the config but reports the zone with generation")
    assert f"{field} {value}" in programmed["message"]
    assert condition(status, "Ready")["reason"] == "ZoneDiffers"
    assert [row["acknowledged"] for row in status["engines"]] == [True, False]


def test_what_an_engines_size_makes_of_percentages_is_reckoned_for_each_engine():
    half = zone("acme", reserved="33%", limit="50%")
    only = snapshot(1, half)
    status = status_of(half, [observed(only, blocks=size, engine=f"e{size}") for size in (101, 7)], configs=(only,))

    assert condition(status, "Programmed")["status"] == "True"
    assert [(row["reserved"], row["limit"]) for row in status["engines"]] == [(33, 51), (2, 4)]


def test_a_zone_that_has_not_changed_is_acknowledged_by_an_older_snapshot():
    with_acme = snapshot(1, ACME)

    status = status_of(ACME, [observed(with_acme)], configs=(with_acme, NEWEST))

    assert condition(status, "Programmed")["status"] == "True"


def test_the_same_content_is_acknowledged_whatever_its_generation():
    again = NEWEST.model_copy(update={"generation": 3})

    status = status_of(ACME, [observed(NEWEST)], configs=(again,))

    assert condition(status, "Programmed")["status"] == "True"


def test_a_zone_that_left_and_came_back_is_not():
    configs = (snapshot(1, ACME), snapshot(2), snapshot(3, ACME, zone("burst")))

    status = status_of(ACME, [observed(configs[0])], configs=configs)

    assert condition(status, "Programmed")["status"] == "Unknown"


def test_a_zone_that_is_not_accepted_is_nothing_else_either():
    status = status_of(zone("acme", reserved=200), [observed(NEWEST)])

    assert [condition(status, kind)["status"] for kind in ("Accepted", "Programmed", "Ready")] == ["False"] * 3
    assert condition(status, "Ready")["message"] == condition(status, "Accepted")["message"]
    assert [row["acknowledged"] for row in status["engines"]] == [False]


def test_a_transition_keeps_its_time_until_the_status_changes():
    first = status_of(ACME, [observed(OLDER)])
    later = zone("acme", reserved="40%", status=first)

    second = status_of(later, [observed(NEWEST)], now="2026-01-01T00:00:09Z")

    assert condition(second, "Accepted")["lastTransitionTime"] == NOW
    assert condition(second, "Ready")["lastTransitionTime"] == "2026-01-01T00:00:09Z"


def test_conditions_are_about_the_generation_that_was_seen():
    status = status_of(zone("acme", generation=5), [])

    assert status["observedGeneration"] == 5
    assert {condition["observedGeneration"] for condition in status["conditions"]} == {5}


def test_engines_add_up():
    first = observed(
        NEWEST,
        acme={
            "state": "Idle",
            "in_use": 0,
            "cached": 5,
            "prefix_query_tokens": 100,
            "prefix_hit_tokens": 80,
            "evictions": {"quiet": 2, "own": 1},
        },
    )
    second = observed(
        NEWEST,
        engine="engine-1",
        acme={"state": "Active", "in_use": 2, "cached": 1, "prefix_query_tokens": 100, "prefix_hit_tokens": 10},
    )

    status = status_of(ACME, [first, second])

    totals = {key: status[key] for key in ("state", "held", "inUse", "cached", "hitPercent", "evictions")}
    assert totals == {"state": "Active", "held": 8, "inUse": 2, "cached": 6, "hitPercent": 45, "evictions": 3}
    assert [row["hitPercent"] for row in status["engines"]] == [80, 10]


STRAY = registered("acme", state="Active", in_use=7, cached=4, evictions={"own": 3})
"""An engine names such a zone after its tenant; here this is also the name of a TenantZone."""


def test_a_zone_that_an_engine_registered_automatically_is_not_the_declared_one_of_the_same_name():
    status = status_of(ACME, [observed(NEWEST, registered=(STRAY,), acme={"state": "Idle", "cached": 5})])

    totals = {key: status[key] for key in ("state", "held", "inUse", "evictions")}
    assert totals == {"state": "Idle", "held": 5, "inUse": 0, "evictions": 0}
    assert status["engines"][0]["appliedGeneration"] == 1
    assert condition(status, "Ready")["status"] == "True"


def test_a_state_that_only_a_newer_engine_has_is_left_out_of_the_status():
    newer = observed(NEWEST, acme={"state": "Drained", "cached": 5})
    status = status_of(ACME, [newer])
    assert "state" not in status
    assert "state" not in status["engines"][0]
    assert status["held"] == 5

    older = observed(NEWEST, engine="engine-1", acme={"state": "Idle"})
    assert status_of(ACME, [newer, older])["state"] == "Idle"


def test_nor_does_it_stand_in_for_one_that_is_missing():
    status = status_of(ACME, [observed(NEWEST.model_copy(update={"zones": ()}), registered=(STRAY,))])

    assert condition(status, "Ready")["reason"] == "ZoneMissing"
    assert status["engines"] == [{"pod": "engine-0", "acknowledged": False}]


def test_nor_for_one_that_is_not_accepted():
    status = status_of(zone("acme", reserved=200), [observed(snapshot(1), registered=(STRAY,))])

    assert condition(status, "Programmed")["reason"] == "NotAccepted"
    assert "held" not in status


def test_before_the_first_request_there_is_no_hit_rate():
    assert "hitPercent" not in status_of(ACME, [observed(NEWEST)])


def test_a_silent_engine_shows_no_old_numbers():
    status = status_of(ACME, [silent()])

    assert status["engines"] == [{"pod": "engine-0", "acknowledged": False, "message": silent().error}]
    assert "held" not in status


def test_an_engine_that_says_too_much_is_cut_short():
    status = status_of(ACME, [observed(OLDER, error="x" * 100_000)])

    assert len(status["engines"][0]["message"]) <= 1000


def test_numbers_that_move_with_requests_are_not_urgent():
    quiet, busy = observed(NEWEST), observed(NEWEST, acme={"state": "Active", "in_use": 9})

    assert status_of(ACME, [quiet]) != status_of(ACME, [busy])
    assert without_gauges(status_of(ACME, [quiet])) == without_gauges(status_of(ACME, [busy]))
    assert without_gauges(status_of(ACME, [quiet])) != without_gauges(status_of(ACME, [silent()]))


BY_KEYS = "APIKeys: keys that the pods mount"
TOKENS = {"jwt": {"issuer": "https://issuer", "audiences": ["models"]}}
HEADER = {"trustedHeader": {"name": "x-tenant", "proof": {"secretHeader": {"name": "x-proof"}}}}


def identity_of(asked: dict[str, Any] | None, *observations: Observation) -> tuple[str, str, str]:
    """Status, reason and message of the condition about a pool with this identity."""
    declared = pool(**({"identity": asked} if asked is not None else {}))
    made = make_plan(declared, [], in_force=None, last_generation=0, size=None, room=ConfigRoom())
    status = pool_status(declared, made, observations, History(), size=None, before={}, now=NOW)
    (found,) = [condition for condition in status["conditions"] if condition["type"] == "IdentityEnforced"]
    return found["status"], found["reason"], found["message"]


def knowing(asked: dict[str, Any] | None, problem: str = "", engine: str = "engine-0") -> Observation:
    """An engine that identifies tenants in this way."""
    declared = pool(**({"identity": asked} if asked is not None else {})).config
    assert declared is not None
    return observed(None, engine=engine, identity=(identity_digest(declared.identity), problem))


@pytest.mark.parametrize(
    ("asked", "engines", "found"),
    [
        (
            None,
            [knowing(None)],
            ("True", "Acknowledged", f"{BY_KEYS}; acknowledged by 1 engine"),
        ),
        (
            None,
            [observed(None)],
            ("True", "Acknowledged", f"{BY_KEYS}; acknowledged by 1 engine"),
        ),
        ({"apiKeys": {}}, [knowing(TOKENS)], ("Unknown", "Pending", "by 0 of 1 engine; waiting for engine-0")),
        (
            TOKENS,
            [knowing(TOKENS)],
            ("True", "Acknowledged", "JWT: tokens of https://issuer; acknowledged"),
        ),
        (TOKENS, [], ("Unknown", "NoEngines", "no engine is ready")),
        (TOKENS, [observed(None)], ("Unknown", "Pending", "waiting for engine-0")),
        (TOKENS, [silent()], ("Unknown", "Pending", "waiting for engine-0")),
        (
            TOKENS,
            [knowing(TOKENS), knowing(TOKENS, "jwks.json is missing", "engine-1")],
            ("False", "IdentityUnusable", "engine-1 serves no request: jwks.json is missing"),
        ),
        (HEADER, [knowing(HEADER), knowing(TOKENS, "", "engine-1")], ("Unknown", "Pending", "waiting for engine-1")),
        (
            HEADER,
            [knowing(HEADER)],
            ("True", "Acknowledged", "x-tenant, proved by the secret in x-proof"),
        ),
        (
            {"trustedHeader": {"name": "x-tenant", "from": ["10.0.0.0/8"]}},
            [observed(None)],
            ("False", "IdentityIncomplete", "no request is served: trustedHeader has no proof"),
        ),
    ],
)
def test_a_pool_says_who_knows_tenants_and_how(asked, engines, found):
    status, reason, message = identity_of(asked, *engines)
    assert (status, reason) == found[:2]
    assert found[2] in message


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param(
            {"watermarks": {"low": 0.1, "high": 0.2}, "unknownTenants": {"mode": "AutoRegister"}},
            None,
            id="nothing but what is enforced",
        ),
        pytest.param({"identity": {"apiKeys": {}}}, None, id="API keys"),
        pytest.param(
            {"identity": {"apiKeys": {"secretSelector": {"matchLabels": {"app": "keys"}}}}},
            "identity.apiKeys.secretSelector",
            id="Secrets by their labels",
        ),
    ],
)
def test_fields_of_a_pool_that_nothing_acts_on(spec, fields):
    asked = pool(**spec)
    made = make_plan(asked, [], in_force=None, last_generation=0, size=None, room=ConfigRoom())

    status = pool_status(asked, made, [], History(), size=None, before=asked.status, now=NOW)

    named = [condition["message"] for condition in status["conditions"] if condition["type"] == "NotEnforced"]
    assert named == ([] if fields is None else [f"this version accepts but does not enforce: {fields}"])


def test_the_pool_counts_what_is_declared():
    history = History()
    history.record(NEWEST, 1000)
    made = make_plan(
        pool(), [zone("acme", age=1, reserved=60), zone("greedy", reserved=60)],
        in_force=None, last_generation=0, size=100, room=ConfigRoom()
    )  # fmt: skip

    status = pool_status(
        pool(),
        made,
        [observed(NEWEST, registered=(registered("stray"),)), silent("engine-1")],
        history,
        size=100,
        before={},
        now=NOW,
    )

    assert status["capacityBlocks"] == 100
    assert (status["enginesReady"], status["enginesAcknowledged"]) == (2, 1)
    assert (status["zonesAccepted"], status["zonesRejected"]) == (1, 1)
    assert (status["configGeneration"], status["configHash"]) == (2, NEWEST.hash)
    assert condition(status, "Ready")["status"] == "Unknown"


def test_that_an_engine_has_the_config_and_something_else_of_the_zone_is_seen_when_it_gets_it():
    """Its report of the zone is the same before and after."""
    statuses, history, before = ZoneStatuses(), History(), zone("acme", reserved="10%")
    history.record(snapshot(1, before), 1000)
    changed = zone("acme", reserved="20%", generation=2)
    history.record(newest := snapshot(2, changed), 1000)
    decisions = make_plan(pool(), [changed], in_force=newest, last_generation=2, size=100, room=ConfigRoom()).decisions
    as_it_was = {"generation": 1, "reserved": 0}

    made = [
        statuses.make([changed], decisions, [observed(applied, acme=as_it_was)], history, now=NOW)["acme"]
        for applied in (snapshot(1, before), newest)
    ]

    assert [condition(status, "Programmed")["reason"] for status in made] == ["Pending", "ZoneDiffers"]


@pytest.mark.parametrize(
    ("later", "message"),
    [
        pytest.param(observed(None, error="no", untrusted=True), "refuses a config and has no config", id="untrusted"),
        pytest.param(
            observed(snapshot(1, zone("other")), error="no"),
            "the newest config and keeps the previous config",
            id="a config",
        ),
    ],
)
def test_a_refusal_in_the_same_words_has_another_status_if_it_means_something_else(later, message):
    statuses, history = ZoneStatuses(), History()
    history.record(newest := snapshot(2, ACME), 1000)
    decisions = make_plan(pool(), [ACME], in_force=newest, last_generation=2, size=100, room=ConfigRoom()).decisions

    for seen in (observed(None, error="no"), later):
        status = statuses.make([ACME], decisions, [seen], history, now=NOW)["acme"]

    assert message in condition(status, "Programmed")["message"]
