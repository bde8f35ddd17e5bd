"""Engines come and go under load."""

from tests.waiting import await_that


def test_a_rolling_restart_under_load_fails_no_request_and_loses_no_configuration(engines, client):
    engines.reserve("acme", 80)
    before = engines.pods()
    with client.load("acme") as load:
        engines.kubectl("rollout", "restart", "deployment/vllm")
        engines.await_rollout()
    after = engines.pods()
    assert len(after) == 2
    assert not set(before) & set(after)
    assert engines.reserved("acme") == dict.fromkeys(after, 80)
    assert load.failures == []
    assert load.answered > 10


def test_more_and_fewer_engines_are_what_the_status_says_and_no_request_fails(engines, client):
    with client.load("acme") as load:
        for replicas in (3, 1):
            engines.scale(replicas)
            assert len(engines.pods()) == replicas
            await_that(lambda: engines.rows("acme") == engines.pods(), "the zone's status has a row for each")
            engines.reserve("acme", 70 + replicas)
    assert load.failures == []
    assert load.answered > 10


def test_a_tenants_cache_is_its_own_through_the_service(engines, client):
    prompt = "Tell me about the sea. " * 60
    assert len(engines.pods()) == 1, "each engine has its own cache"
    first, again, other = (client.ask(tenant, prompt) for tenant in ("acme", "acme", "burst"))
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (first, again, other)]
    assert cached == [0, cached[1], 0]
    assert cached[1] > 1000
