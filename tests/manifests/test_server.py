"""A real API server's answers to the manifests, before any of it runs."""

import json
from collections.abc import Iterator
from copy import deepcopy

import pytest
import yaml

from hack.controlplane import Cluster
from tests.manifests.rendering import ENGINES, MANIFESTS, OVERLAYS, Objects, kustomize

RESTRICTED = "restricted-pods"


@pytest.fixture(scope="module")
def restricted(cluster_with_kinds) -> Cluster:
    """A cluster with the operator's own namespace, and an equally strict one for engines."""
    cluster_with_kinds.kubectl("apply", "--server-side", "--filename", str(MANIFESTS / "base" / "namespace.yaml"))
    cluster_with_kinds.kubectl("create", "namespace", RESTRICTED)
    levels = (f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn"))
    cluster_with_kinds.kubectl("label", "namespace", RESTRICTED, *levels)
    return cluster_with_kinds


def pods(objects: Objects) -> Iterator[dict]:
    """Pods as the controllers would make them."""
    for (kind, name), body in objects.items():
        if kind in ("Deployment", "StatefulSet"):
            template = deepcopy(body["spec"]["template"])
            for claim in body["spec"].get("volumeClaimTemplates", ()):
                template["spec"]["volumes"].append({"name": claim["metadata"]["name"], "emptyDir": {}})
            metadata = {
                **template["metadata"],
                "name": name,
                "namespace": body["metadata"].get("namespace", RESTRICTED),
            }
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize("overlay", [*OVERLAYS, "chart", "chart-with-monitoring", "chart-with-manager"])
def test_the_server_takes_everything_without_a_warning(restricted, rendered, overlay):
    text = yaml.safe_dump_all(rendered[overlay].values())
    namespace = ("--namespace", RESTRICTED) if overlay in ENGINES else ()

    done = restricted.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", *namespace, "--filename=-", stdin=text
    )

    assert done.stdout.count("serverside-applied (server dry run)") == len(rendered[overlay])
    assert done.stderr == ""


@pytest.mark.parametrize("overlay", [*OVERLAYS, "chart"])
def test_pods_pass_the_restricted_pod_security_standard(restricted, rendered, overlay):
    made = list(pods(rendered[overlay]))

    assert made
    for pod in made:
        restricted.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(pod))


@pytest.mark.parametrize(
    ("overlay", "part", "field", "value"),
    [
        ("base", "container", "allowPrivilegeEscalation", True),
        ("gpu", "container", "capabilities", {}),
        ("cpu-demo", "pod", "runAsNonRoot", False),
        ("cpu-demo", "pod", "seccompProfile", None),
    ],
)
def test_a_pod_with_more_rights_is_refused(restricted, overlay, part, field, value):
    (pod,) = pods(kustomize(OVERLAYS[overlay]))
    (pod["spec"] if part == "pod" else pod["spec"]["containers"][0])["securityContext"][field] = value

    done = restricted.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(pod), check=False)

    assert done.returncode != 0
    assert 'violates PodSecurity "restricted:latest"' in done.stderr
    assert field in done.stderr
