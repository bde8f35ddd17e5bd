"""A change made with kubectl reaches all engines, and how long that takes."""

import random
import statistics
import time

import pytest

from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION, CONFIG_KEY
from tenantzone_contract.zone_config.config_text import parse_config
from tests.e2e.engines import NAMESPACE
from tests.e2e.kustomizing import PROJECT

PATCHES = 20
REVOCATIONS = 10
_PAUSES = random.Random(0)


@pytest.mark.parametrize(
    ("frequency", "shortest_pause", "longest_pause"),
    [("1 to 2 s apart", 1.0, 2.0), ("one right after the other", 0.0, 0.0)],
)
def test_patches_are_enforced_in_both_engines_soon(engines, capsys, frequency, shortest_pause, longest_pause):
    """With either pause: kubelet syncs a pod again only after another look at its containers, once a second."""
    pods = engines.pods()
    assert len(pods) == 2
    seconds = []
    for reserved in range(40, 40 + PATCHES):
        time.sleep(_PAUSES.uniform(shortest_pause, longest_pause))
        began = time.monotonic()
        engines.await_enforced("acme", reserved, engines.patch("acme", reserved), pods)
        seconds.append(time.monotonic() - began)
    engines.kubectl("wait", "--for=condition=Ready", "tenantzone/acme", "--timeout=30s")
    _show(capsys, f"kubectl patch to enforced in both engines, {PATCHES} times, {frequency}", seconds)


def test_a_key_that_is_revoked_ends_soon_in_both_engines(cluster, engines, client, capsys):
    """With the right to watch the Secret, the operator makes kubelet look at once."""
    cluster.kubectl(
        "apply", "--namespace", NAMESPACE, "--filename", str(PROJECT / "manifests/engine/secret-watch.yaml")
    )
    engines.kubectl("wait", "--for=condition=IdentityEnforced", "zonepool/demo", "--timeout=60s")
    addresses = [engines.get(f"pod/{pod}")["status"]["podIP"] for pod in engines.pods()]
    assert len(addresses) == 2
    seconds = []
    for number in range(REVOCATIONS):
        time.sleep(_PAUSES.uniform(1, 2))
        key = f"another-key-of-burst-{number}"
        with client.until(200, key, addresses) as added:
            engines.give_key("burst", f"key-of-burst\n{key}")
        with client.until(401, key, addresses) as gone:
            revoked = time.time()
            engines.give_key("burst", "key-of-burst")
        assert len(added) == len(gone) == 2
        seconds.append(max(gone) - revoked)
    _show(capsys, f"a key taken out of the Secret to refused by both engines, {REVOCATIONS} times", seconds)
    with client.until(200, "key-of-burst", addresses) as kept:
        pass
    assert len(kept) == 2


def _show(capsys, what: str, seconds: list[float]) -> None:
    with capsys.disabled():
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        print(f"\n{what}, in seconds with kubectl's own:")
        shown = {"min": min(seconds), "p50": statistics.median(seconds), "p99": cuts[98], "max": max(seconds)}
        print("  " + "   ".join(f"{name} {value:.2f}" for name, value in shown.items()))


def test_the_pods_carry_the_hash_of_the_config_so_that_kubelet_looks_at_once(engines):
    config = parse_config(engines.get("configmap/tenantzone-demo")["data"][CONFIG_KEY])
    pods = engines.pods()
    hashes = [engines.get(f"pod/{pod}")["metadata"]["annotations"][CONFIG_HASH_ANNOTATION] for pod in pods]
    assert hashes == [config.hash] * len(pods)


def test_a_zone_that_does_not_fit_says_so_and_changes_nothing_for_the_others(engines):
    zone = {
        "apiVersion": "tenantzone.io/v1alpha1",
        "kind": "TenantZone",
        "metadata": {"name": "greedy", "namespace": "serving"},
        "spec": {"pool": "demo", "reserved": "90%"},
    }
    engines.apply(zone)
    wait = ("wait", "--for=jsonpath={.status.conditions[?(@.type=='Accepted')].reason}=PoolOvercommitted")
    engines.kubectl(*wait, "tenantzone/greedy", "--timeout=30s")
    engines.kubectl("wait", "--for=condition=Ready", "tenantzone/acme", "--timeout=30s")
    engines.kubectl("delete", "tenantzone/greedy")
