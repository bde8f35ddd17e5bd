"""Engines come and go under load."""

import json

from tests.e2e.waiting import await_that


def rows(engines) -> list[str]:
    zone = json.loads(engines.kubectl("get", "tenantzone/acme", "-o", "json"))
    return sorted(row["pod"] for row in zone["status"].get("engines", []))


def test_more_and_fewer_engines_are_what_the_status_says(engines):
    for replicas in (3, 1):
        engines.scale(replicas)
        assert len(engines.pods()) == replicas
        await_that(lambda: rows(engines) == engines.pods(), "the zone's status has a row for each")
        engines.reserve("acme", 70 + replicas)


def test_a_rolling_restart_under_load_loses_no_configuration_and_one_engine_always_serves(engines, client):
    engines.scale(2)
    engines.reserve("acme", 80)
    before = engines.pods()
    with client.load("acme") as load:
        engines.kubectl("rollout", "restart", "deployment/vllm")
        engines.await_rollout()
    after = engines.pods()
    assert not set(before) & set(after)
    for pod in after:
        (zone,) = (zone for zone in engines.report(pod).zones if zone.name == "acme")
        assert zone.reserved == 80
    assert len(load.answers) > 10
    assert load.longest_gap_seconds < 60, load.failures
