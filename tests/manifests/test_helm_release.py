"""The chart installed, upgraded and uninstalled, on a real API server."""

import json
import os
import subprocess
from pathlib import Path

from hack.controlplane import ControlPlane
from hack.manifests.chart import CHART
from hack.manifests.tools import helm
from tests.manifests.rendering import MANIFESTS, template

NAMESPACE = "zones"
CRDS = {f"{file.stem}.tenantzone.io" for file in (CHART / "crds").glob("*.yaml")}


class Helm:
    """Helm as the cluster's administrator runs it.

    Args:
        cluster: the cluster.
        cache: a folder for Helm's cache by cluster address; another control plane may have had this address.
    """

    def __init__(self, cluster: ControlPlane, cache: Path) -> None:
        self.cluster = cluster
        self._environment = os.environ | {"KUBECACHEDIR": str(cache)}

    def __call__(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [helm(), *arguments, "--kubeconfig", self.cluster.kubeconfig],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done

    def released(self, namespace: str = NAMESPACE) -> set[tuple[str, str]]:
        """Kind and name of the chart's objects that exist."""
        kinds = "deployment,clusterrole,clusterrolebinding,role,rolebinding,serviceaccount,networkpolicy,pdb"
        guards = "validatingadmissionpolicy,validatingadmissionpolicybinding"
        listed = self.cluster.kubectl("get", f"{kinds},{guards}", "--namespace", namespace, "--output=json").stdout
        ours = (body for body in json.loads(listed)["items"] if body["metadata"]["name"] == "tenantzone-operator")
        return {(body["kind"], body["metadata"]["name"]) for body in ours}


def test_a_release_comes_changes_and_goes_and_the_zones_stay(cluster, tmp_path):
    command = Helm(cluster, tmp_path)
    where = ("--namespace", NAMESPACE)

    said = command("install", "tenantzone", CHART, *where, "--create-namespace").stdout
    assert f"--operator-namespace {NAMESPACE}" in said
    assert command.released() == set(template(namespace=NAMESPACE))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", *CRDS)
    cluster.kubectl("apply", *where, "--filename", str(MANIFESTS / "samples" / "acme.yaml"))

    refused = command("install", "another", CHART, "--namespace", "default", check=False)
    assert refused.returncode != 0
    assert "tenantzone-operator" in refused.stderr

    command("upgrade", "tenantzone", CHART, *where, "--set", "replicas=3", "--set", "networkPolicy.enabled=false")
    replicas = cluster.kubectl("get", *where, "deployment", "tenantzone-operator", "--output=jsonpath={.spec.replicas}")
    assert replicas.stdout == "3"
    assert ("NetworkPolicy", "tenantzone-operator") not in command.released()

    command("uninstall", "tenantzone", *where)
    assert command.released() == set()
    left = cluster.kubectl("get", *where, "tenantzone", "--output=name").stdout
    assert left.split() == ["tenantzone.tenantzone.io/acme"]


def test_with_listed_pools_the_operator_may_do_for_them_what_it_needs_and_nothing_elsewhere(cluster, tmp_path):
    command = Helm(cluster, tmp_path)
    for namespace in ("shop", "bank"):
        cluster.create_namespace(namespace)
    pools = ("--set", "pools[0].namespace=shop", "--set", "pools[0].name=demo")
    command("install", "listed", CHART, "--namespace", NAMESPACE, "--create-namespace", *pools)

    def may(verb: str, what: str, namespace: str) -> bool:
        user = f"--as=system:serviceaccount:{NAMESPACE}:tenantzone-operator"
        done = cluster.kubectl("auth", "can-i", verb, what, "--namespace", namespace, user, check=False)
        return done.stdout.strip() == "yes"

    for verb in ("get", "patch"):
        assert may(verb, "configmaps/tenantzone-demo", "shop")
        assert not may(verb, "configmaps/tenantzone-demo", "bank")
        assert not may(verb, "configmaps/another", "shop")
    for verb, what in (
        ("create", "configmaps"),
        ("create", "secrets"),
        ("list", "pods"),
        ("watch", "pods"),
        ("patch", "pods"),
    ):
        assert may(verb, what, "shop")
        assert not may(verb, what, "bank")
    assert may("watch", "tenantzones.tenantzone.io", "bank")
    command("uninstall", "listed", "--namespace", NAMESPACE)
