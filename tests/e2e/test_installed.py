"""What a user has after the commands of the README."""


def test_two_replicas_run_under_the_strictest_pod_security_and_one_leads(installation):
    labels = installation.get("namespace/tenantzone-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    names = [pod["metadata"]["name"] for pod in installation.pods()]
    assert len(names) == 2
    assert installation.leader() in names


def test_the_zones_are_ready_with_a_row_for_each_engine(engines):
    engines.kubectl("wait", "--for=condition=Ready", "tenantzones", "--all", "--timeout=60s")
    assert len(engines.pods()) == 2
    for zone in ("acme", "burst"):
        assert engines.rows(zone) == engines.pods()
