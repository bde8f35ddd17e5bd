"""What ``explain`` prints about a zone. All pure."""

from typing import Any

import pytest
from msgspec import structs

from tenantzone_cli.advice import advice, is_known
from tenantzone_cli.api import ApiError
from tenantzone_cli.live import EngineAnswer
from tenantzone_cli.resources import Pod, Pool, Zone, read_pool, read_zone, unix_time
from tenantzone_cli.views.explain import Facts, explain
from tenantzone_contract.reports.report import AdapterReport, EncoderUseReport, LoanReport, TierReport
from tenantzone_contract.reports.zone_report import LatencyReport, TargetReport, ZoneTierReport
from tenantzone_operator.kube.conditions import Reason
from tests.cli.reports import answer, engine_report, zone_report
from tests.operator.objects import body

NOW = unix_time("2026-01-01T01:00:00Z") or 0.0
SINCE = "2026-01-01T00:59:00Z"


def condition(kind: str, status: str, reason: str, message: str = "so it is") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


READY = [
    condition("Accepted", "True", "Accepted"),
    condition("Programmed", "True", "Acknowledged"),
    condition("Ready", "True", "Enforced"),
]


def zone(
    name: str = "acme", conditions: list[dict[str, Any]] | None = None, *, age: int = 0, status: Any = None, **spec: Any
) -> Zone:
    whole = {"observedGeneration": 1, "conditions": READY if conditions is None else conditions} | (status or {})
    metadata = {"namespace": "shop"}
    return read_zone(body(name, age=age, metadata=metadata, spec={"pool": "demo"} | spec, status=whole))


def pool(tiers: Any = None, **status: Any) -> Pool:
    spec = {"selector": {"matchLabels": {"app": "vllm"}}} | ({"tiers": tiers} if tiers is not None else {})
    return read_pool(body("demo", metadata={"namespace": "shop"}, spec=spec, status={"capacityBlocks": 100} | status))


def pod(name: str = "engine-0", trouble: str = "") -> Pod:
    return Pod("shop", name, not trouble, trouble, {})


def explained(
    subject: Zone,
    *answers: EngineAnswer,
    siblings: Any = (),
    the_pool: Pool | None = None,
    pods: Any = None,
) -> str:
    facts = Facts(
        zone=subject,
        pool=the_pool or pool(),
        siblings=siblings if isinstance(siblings, ApiError) else [subject, *siblings],
        pods=[pod()] if pods is None else pods,
        answers=answers,
        now=NOW,
    )
    return "\n".join(explain(facts))


def test_a_ready_zone_is_said_to_be_ready_and_nothing_is_to_be_done():
    said = explained(zone(reserved="40%"))

    assert said.startswith("TenantZone shop/acme: Ready\n")
    assert "reserved 40%, limit none" in said
    assert "What to do" not in said


@pytest.mark.parametrize("kind", ["Programmed", "Ready"])
def test_the_reason_is_the_first_conditions_that_does_not_hold(kind: str):
    broken = [condition("Accepted", "True", "Accepted")]
    broken.append(condition("Programmed", "False" if kind == "Programmed" else "True", "ConfigRejected"))
    broken.append(condition("Ready", "False", "ZoneMissing"))

    assert f"not Ready ({'ConfigRejected' if kind == 'Programmed' else 'ZoneMissing'})" in explained(zone("a", broken))


def test_what_is_not_known_for_sure_is_not_claimed():
    unknown = [*READY[:1], condition("Programmed", "Unknown", "Pending"), condition("Ready", "Unknown", "Pending")]

    said = explained(zone("acme", unknown))

    assert "perhaps not Ready (Pending)" in said
    assert "kubectl tenantzone doctor -n shop" in said


def test_a_zone_that_was_not_looked_at_yet_points_to_the_operator():
    said = explained(zone(conditions=[], status={"observedGeneration": None}))

    assert "the operator has not handled it yet" in said
    assert "kubectl tenantzone doctor" in said


def test_a_status_of_an_older_generation_is_said_to_be_one():
    said = explained(zone(status={"observedGeneration": 0}))

    assert "the operator has only seen generation 0, not 1" in said


def test_the_same_message_is_said_once():
    same = [condition("Accepted", "False", "Invalid", "wrong"), condition("Ready", "False", "NotAccepted", "wrong")]

    said = explained(zone("acme", same))

    assert said.count("wrong") == 1
    assert "the same as Accepted" in said


def test_an_overcommitted_zone_names_the_holders_of_reservations_oldest_first():
    refused = [condition("Accepted", "False", "PoolOvercommitted"), condition("Ready", "False", "NotAccepted")]
    others = [
        zone("young", age=1, reserved="30%"),
        zone("old", age=9, reserved=25),
        zone("refused-too", refused, age=5, reserved=90),
        zone("elsewhere", age=5, reserved=90, pool="other"),
        zone("nothing", age=7),
    ]

    lines = explained(zone("greedy", refused, reserved="80%"), siblings=others).splitlines()

    table = [" ".join(line.split()) for line in lines[lines.index(next(line for line in lines if "Who" in line)) + 2 :]]
    assert table[:4] == ["old 25 25", "young 30% 30", "not reserved 45", "greedy asks for 80% 80"]


def sharing(name: str, conditions: Any = None, *, age: int = 0, **reserved: Any) -> Zone:
    """A zone that reserves these amounts of each tier."""
    return zone(name, conditions, age=age, tiers=[{"tier": tier, "reserved": each} for tier, each in reserved.items()])


def test_holders_of_the_reservations_of_a_tier_are_named_where_that_is_what_is_missing():
    refused = [condition("Accepted", "False", "PoolOvercommitted"), condition("Ready", "False", "NotAccepted")]
    others = [
        sharing("young", age=1, cpu="25%", disk="10%"),
        sharing("old", age=9, cpu="2Gi"),
        sharing("refused-too", refused, age=5, cpu="9Gi"),
        zone("nothing", age=7),
    ]
    of = pool(tiers={"cpu": {"bytes": "8Gi"}, "disk": {"folder": "/data", "bytes": 2**40}})

    lines = explained(sharing("greedy", refused, cpu="75%", disk="5%"), siblings=others, the_pool=of).splitlines()

    (start,) = [place for place, line in enumerate(lines) if line.startswith("Who holds")]
    assert lines[start] == "Who holds the reservations of tier cpu of pool demo, 8Gi in each engine"
    table = [" ".join(line.split()) for line in lines[start + 2 :]]
    assert table == ["old 2Gi", "young 2Gi", "not reserved 4Gi", "greedy asks for 6Gi"]


def test_a_zone_that_fits_into_the_tiers_reports_blocks():
    refused = [condition("Accepted", "False", "PoolOvercommitted"), condition("Ready", "False", "NotAccepted")]
    of = pool(tiers={"cpu": {"bytes": "8Gi"}})

    assert "with 100 planned blocks per engine" in explained(sharing("greedy", refused, cpu="8Gi"), the_pool=of)
    assert "tier disk of pool demo, 0 in each engine" in explained(sharing("greedy", refused, disk="1Gi"), the_pool=of)


def test_what_a_zone_has_of_tiers_is_reported_engine_by_engine():
    reported = ZoneTierReport(
        tier="cpu",
        reserved_bytes=2**31,
        limit_bytes=2**33,
        held_bytes=2**30,
        hits=12,
        evictions=3,
        writes_refused=2,
        corrupt=1,
    )
    lacking = structs.replace(reported, tier="disk", reserved_bytes=0, awaited_bytes=2**40)
    failing = TierReport(tier="cpu", capacity_bytes=2**33, held_bytes=0, chunk_bytes=1, problem="writes fail: \x1bfull")
    fine = TierReport(tier="disk", capacity_bytes=2**33, held_bytes=0, chunk_bytes=1)
    report = engine_report(zone_report("acme", tiers=(reported, lacking)), tiers=(failing, fine))

    shares = [{"tier": "cpu", "reserved": "2Gi", "limit": "50%"}, {"tier": "disk"}]
    said = explained(zone(tiers=shares, offload="Prompt"), answer(report), answer(engine_report()))

    assert "  tiers: cpu reserved 2Gi, limit 50%; disk reserved 0; offload Prompt" in said
    rows = [" ".join(line.split()) for line in said.splitlines() if line.strip().startswith("engine-0")]
    assert rows[-2:] == [
        "engine-0 cpu 1Gi 2Gi 8Gi 12 3 2 1 writes fail: \N{REPLACEMENT CHARACTER}full",
        "engine-0 disk 1Gi 0 8Gi 12 3 2 1 too small by 1Ti for the reservation",
    ]


def test_without_tiers_nothing_is_said_of_them():
    said = explained(zone(), answer(engine_report(zone_report("acme"))))

    assert "tier" not in said.lower()


@pytest.mark.parametrize("reason", ["TierMissing", "TierTooSmall", "TierFailing"])
def test_a_tier_that_is_not_enforced_leaves_a_zone_ready_and_has_advice(reason: str):
    said = explained(zone("acme", [*READY, condition("TiersEnforced", "False", reason)]))

    assert "TenantZone shop/acme: Ready" in said
    assert "What to do" in said


def test_a_tenant_that_has_a_zone_already_is_named_with_it():
    refused = [condition("Accepted", "False", "TenantConflict"), condition("Ready", "False", "NotAccepted")]

    said = explained(zone("two", refused, tenant="t"), siblings=[zone("one", age=3, tenant="t"), zone("other")])

    assert "Tenant t already has a zone: one" in said


def test_without_the_right_to_list_zones_the_rest_is_said_all_the_same():
    refused = [condition("Accepted", "False", "PoolOvercommitted"), condition("Ready", "False", "NotAccepted")]

    said = explained(zone("greedy", refused), siblings=ApiError(403, "no"))

    assert "Lower reserved" in said


def test_pods_that_are_not_there_or_not_ready_are_named():
    waiting = [*READY[:1], condition("Programmed", "False", "NoEngines"), condition("Ready", "False", "NoEngines")]

    assert "No pod in namespace shop has the labels app=vllm" in explained(zone("a", waiting), pods=[])
    assert "Engine engine-0 is not ready: Pending" in explained(zone("a", waiting), pods=[pod(trouble="Pending")])
    assert "can't be listed: no" in explained(zone("a", waiting), pods=ApiError(403, "no"))


def test_a_reservation_is_divided_into_what_is_held_lent_and_not_in_use():
    report = zone_report("acme", reserved=40, in_use=5, cached=7, lent=20)

    said = explained(zone(), answer(engine_report(report)))

    assert "of 40 reserved blocks the zone holds 12, 20 are lent, 8 are not in use" in said


def test_what_a_zone_holds_beyond_its_reservation_is_not_counted_into_it():
    report = zone_report("acme", reserved=40, in_use=70)

    assert "the zone holds 40, 0 are lent, 0 are not in use" in explained(zone(), answer(engine_report(report)))


@pytest.mark.parametrize(
    ("due", "terms"),
    [
        (None, "5 blocks for 30s, until the lender needs them"),
        (200.0, "5 blocks for 30s, due in 100s"),
        (90.0, "5 blocks for 30s, due 10s ago"),
    ],
)
def test_a_loans_terms_are_counted_by_the_engines_own_clock(due: float | None, terms: str):
    loan = LoanReport(lender="acme", borrower="burst", blocks=5, since_unix_time=70.0, due_unix_time=due)
    zones = (zone_report("acme", reserved=9, lent=5), zone_report("burst", borrowed=5, in_use=5))
    engine = answer(engine_report(*zones, loans=(loan,), published=100.0))

    assert f"lent to burst: {terms}" in explained(zone("acme"), engine)
    assert f"borrowed from acme: {terms}" in explained(zone("burst"), engine)


def test_a_zone_with_neither_reservation_nor_loans_has_nothing_to_say_of_them():
    said = explained(zone(), answer(engine_report(zone_report("acme", cached=5))))

    assert "Reservation and loans" not in said


def test_a_borrower_without_a_reservation_is_said_to_have_none():
    loan = LoanReport(lender="other", borrower="acme", blocks=5, since_unix_time=0.0)

    said = explained(zone(), answer(engine_report(zone_report("acme", borrowed=5, in_use=5), loans=(loan,))))

    assert "engine-0: nothing is reserved\n    borrowed from other: 5 blocks" in said


def test_a_zone_is_found_among_loans_by_its_tenant():
    loan = LoanReport(lender="t", borrower="u", blocks=5, since_unix_time=0.0)
    report = zone_report("acme", tenant="t", reserved=9, lent=5)

    assert "lent to u: 5 blocks" in explained(zone(tenant="t"), answer(engine_report(report, loans=(loan,))))


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("limit", "waits for blocks, because the zone's limit is in use; raise spec.limit, or wait"),
        ("reserved", "waits for blocks, because free blocks are reserved for other zones; raise spec.reserved"),
        ("in_use", "waits for blocks that other requests use, until these requests end"),
        ("seats", "waits for a seat, because the engine runs its maximum of requests; reserve blocks or spec.seats"),
        ("seat_limit", "waits for a seat, because the zone runs spec.seats.limit requests"),
        ("tokens", "waits for tokens, because the zone's share of the steps is used"),
        ("adapter", "waits for a LoRA adapter slot, because other adapters use all slots; set spec.reserved or"),
        (
            "encoder",
            "waits for room in the encoder, which other requests use or which is kept for another zone; set",
        ),
        ("grammar", "waits until the grammar of its structured output is compiled"),
        ("load", "waits until blocks of its prompt are looked up in a tier or copied from it"),
        ("something newer", "something newer"),
    ],
)
def test_why_requests_wait_is_said_with_what_to_do(reason: str, why: str):
    report = zone_report("acme", waiting_requests=2, waits_for=reason)

    (line,) = [line for line in explained(zone(), answer(engine_report(report))).splitlines() if "waiting" in line]

    assert line.startswith(f"  engine-0: 0 running, 2 waiting: {why}")


def test_who_uses_the_adapter_slots_that_requests_wait_for_is_said():
    used = (AdapterReport(adapter="sql", tenants=("burst", "calm")), AdapterReport(adapter="old", tenants=()))
    engine = engine_report(zone_report("acme", waiting_requests=2, waits_for="adapter"))
    said = explained(zone(), answer(structs.replace(engine, adapter_slots=3, adapters=used)))
    assert "\n    slot of sql: used by burst, calm\n" in said
    assert "\n    slot of old: used by requests that arrived before any zone was declared\n" in said
    assert "\n    1 of 3 slots are free" in said

    engine = engine_report(zone_report("acme", waiting_requests=2, waits_for="in_use"))
    said = explained(zone(), answer(structs.replace(engine, adapter_slots=3, adapters=used)))
    assert "slot of" not in said


def test_who_uses_the_encoder_that_requests_wait_for_is_said():
    engine = engine_report(zone_report("acme", waiting_requests=2, waits_for="encoder"))
    used = {"encoder_embeddings": 800, "encoder_use": (EncoderUseReport(tenant="burst", embeddings=600),)}
    said = explained(zone(), answer(structs.replace(engine, **used)))
    assert "\n    encoder: burst uses 600 of 800 embeddings" in said

    engine = engine_report(zone_report("acme", waiting_requests=2, waits_for="in_use"))
    assert "encoder:" not in explained(zone(), answer(structs.replace(engine, **used)))


def test_what_becomes_of_latency_targets_is_said_with_what_to_do():
    latency = LatencyReport(
        token_time=TargetReport(target_seconds=0.05, actual_seconds=0.0612, met=False, reason="OwnLoad"),
        first_token=TargetReport(target_seconds=0.5),
    )

    said = explained(zone(), answer(engine_report(zone_report("acme", latency=latency))))

    assert "Latency targets (99th percentile of the last minute)\n" in said
    assert "  engine-0: tokenTime 61.2 ms of 50 ms: missed: the zone's own requests make steps longer" in said
    assert "  engine-0: firstToken 500 ms: nothing was served in the last minute" in said
    assert "Latency targets" not in explained(zone(), answer(engine_report(zone_report("acme"))))


def test_short_times_are_not_rounded_until_they_are_alike():
    latency = LatencyReport(token_time=TargetReport(target_seconds=0.0012, actual_seconds=0.00144, reason="OwnLoad"))
    said = explained(zone(), answer(engine_report(zone_report("acme", latency=latency))))
    assert "tokenTime 1.4 ms of 1.2 ms: missed" in said


def test_engines_that_could_not_be_asked_are_named_once_for_each_reason():
    silent = [answer(None, pod=f"engine-{index}", error="no", is_forbidden=True) for index in range(2)]

    said = explained(zone(), *silent)

    assert "engine-0, engine-1: no" in said
    assert "the right to get pods/proxy" in said


def test_an_engines_row_is_its_own_report_if_there_is_one_else_the_status():
    rows = [
        {"pod": "engine-0", "acknowledged": True, "held": 1, "inUse": 1, "cached": 0, "reserved": 40},
        {"pod": "engine-1", "acknowledged": True, "held": 2, "inUse": 2, "cached": 0, "reserved": 40},
        {"pod": "engine-2", "acknowledged": False, "message": "the connection is refused"},
    ]
    report = zone_report("acme", reserved=40, cached=33)

    said = explained(zone(status={"engines": rows}), answer(engine_report(report))).splitlines()

    cells = {line.split()[0]: line.split() for line in said if line.startswith("  engine-") and ":" not in line}
    assert (cells["engine-0"][5], cells["engine-1"][5]) == ("33", "2")
    assert " ".join(cells["engine-2"]).endswith("the connection is refused")


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_that_the_operator_gives_is_known(reason: Reason):
    assert is_known(reason.value)


@pytest.mark.parametrize("reason", list(Reason))
def test_advice_names_the_objects(reason: Reason):
    (entry,) = zone("acme", [condition("Ready", "False", reason.value)]).conditions

    text = advice(entry, zone())

    assert text is None or "{" not in text


def test_a_reason_of_another_version_is_no_error():
    (entry,) = zone("acme", [condition("Ready", "False", "Unheard")]).conditions

    assert advice(entry, zone()) is None
