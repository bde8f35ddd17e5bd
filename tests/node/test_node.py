"""The one-node Kubernetes for end-to-end tests, really started."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hack.node import Node
from hack.node.images import HOST_IMAGE, SHELL_IMAGE
from tests.node.pods import apply, log_of_finished, needs_a_node, pod
from tests.processes import descendants
from tests.waiting import await_that

pytestmark = needs_a_node

UNPRIVILEGED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
RESTRICTED = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, users_path: None) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("node") / "state") as node:
        yield node


def test_pods_reach_each_other_by_the_names_of_services(node):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    page = "mkdir /tmp/pages; echo hello > /tmp/pages/index.html; httpd -f -p 80 -h /tmp/pages"
    # Silent while the page is not there yet: the test is that it appears.
    ask = "until wget -q -O - http://web.default.svc.cluster.local 2> /dev/null; do sleep 1; done"
    apply(node, service, pod("web", SHELL_IMAGE, "sh", "-c", page), pod("asker", SHELL_IMAGE, "sh", "-c", ask))
    assert log_of_finished(node, "asker") == "hello"


def test_a_restricted_pod_runs_the_machines_own_python(node):
    apply(
        node,
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "programs"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadOnlyMany"],
                "hostPath": {"path": "/usr"},
                "claimRef": {"namespace": "strict", "name": "programs"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "programs", "namespace": "strict"},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": "programs",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    wanted = pod(
        "python", HOST_IMAGE, "/usr/bin/env", "sh", "-c", "id -u; ls /usr/bin | wc -l", securityContext=RESTRICTED
    )
    wanted["metadata"]["namespace"] = "strict"
    (container,) = wanted["spec"]["containers"]
    container["securityContext"] = UNPRIVILEGED
    container["volumeMounts"] = [{"name": "programs", "mountPath": "/usr", "readOnly": True}]
    wanted["spec"]["volumes"] = [{"name": "programs", "persistentVolumeClaim": {"claimName": "programs"}}]
    await_that(
        lambda: node.kubectl("get", "serviceaccount/default", "-n", "strict", check=False).returncode == 0, "account"
    )
    apply(node, wanted)
    finished = ("wait", "--namespace=strict", "--for=jsonpath={.status.phase}=Succeeded", "pod/python", "--timeout=60s")
    node.kubectl(*finished)
    user, programs = node.kubectl("logs", "--namespace=strict", "python").stdout.split()
    assert user == "65532"
    assert int(programs) > 100


def test_a_changed_config_map_reaches_a_pod_soon_after_an_annotation(node):
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"value": "one"}}
    reader = pod("reader", SHELL_IMAGE, "sh", "-c", "until grep -q two /settings/value; do sleep 0.1; done; echo read")
    (container,) = reader["spec"]["containers"]
    container["volumeMounts"] = [{"name": "settings", "mountPath": "/settings"}]
    reader["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": "settings"}}]
    apply(node, settings, reader)
    node.kubectl("wait", "--for=condition=Ready", "pod/reader", "--timeout=60s")
    apply(node, {**settings, "data": {"value": "two"}})
    node.kubectl("annotate", "pod/reader", "changed=yes")
    # Without the annotation, kubelet takes more than a minute.
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/reader", "--timeout=30s")
    assert node.kubectl("logs", "reader").stdout == "read\n"


def test_a_daemon_that_dies_is_started_again(node):
    before = daemon(node, "kube-apiserver")
    before.send_signal(signal.SIGKILL)
    before.wait(timeout=60)
    await_that(lambda: node.kubectl("get", "--raw=/readyz", check=False).returncode == 0, "the API server answers")
    assert daemon(node, "kube-apiserver").pid != before.pid


def daemon(node: Node, name: str) -> psutil.Process:
    """The daemon of this name."""
    found = [each for each, line in descendants(node.first_process, "cmdline") if Path((line or [""])[0]).name == name]
    (only,) = found
    return only
