"""What a user has after the commands of the README."""

import json


def test_two_replicas_run_under_the_strictest_pod_security_and_one_leads(cluster, installation):
    namespace = json.loads(cluster.kubectl("get", "namespace", "tenantzone-system", "-o", "json").stdout)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    names = [pod["metadata"]["name"] for pod in installation.pods()]
    assert len(names) == 2
    assert installation.leader() in names


def test_the_zones_are_ready_with_a_row_for_each_engine(engines):
    engines.kubectl("wait", "--for=condition=Ready", "tenantzones", "--all", "--timeout=60s")
    zone = json.loads(engines.kubectl("get", "tenantzone/acme", "-o", "json"))
    assert sorted(row["pod"] for row in zone["status"]["engines"]) == sorted(engines.pods())
    assert len(engines.pods()) == 2


def test_a_tenants_cache_is_its_own_through_the_service(engines, client):
    prompt = "Tell me about the sea. " * 60
    engines.scale(1)
    first, again, other = (client.ask(tenant, prompt) for tenant in ("acme", "acme", "burst"))
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (first, again, other)]
    assert cached == [0, cached[1], 0]
    assert cached[1] > 1000
