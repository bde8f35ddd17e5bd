"""The result of the quick start's commands for a user."""

import json
import urllib.request

from tests.e2e.engines import NAMESPACE
from tests.e2e.plugin import tenantzone


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


def test_the_plugins_doctor_has_nothing_to_say_and_top_asks_both_engines(cluster, engines):
    examined = tenantzone(cluster, "doctor", "--namespace", NAMESPACE)
    assert (examined.returncode, examined.stderr) == (0, ""), examined.stdout
    shown = tenantzone(cluster, "top", "--live", "--namespace", NAMESPACE)
    assert shown.returncode == 0, shown.stderr
    assert {"acme", "burst"} <= set(shown.stdout.split())


def test_the_console_is_reached_by_port_forward_and_shows_both_engines(installation, engines):
    with installation.forwarded(8082) as address:
        with urllib.request.urlopen(address, timeout=20) as page:
            assert "TenantZone" in page.read().decode()
        with urllib.request.urlopen(f"{address}api/pools/{NAMESPACE}/demo", timeout=20) as pool:
            shown = json.load(pool)
    assert {zone["name"]: zone["live"] for zone in shown["zones"]} == {"acme": True, "burst": True}
    assert sorted(engine["pod"] for engine in shown["engines"]) == engines.pods()
