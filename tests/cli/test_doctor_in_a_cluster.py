"""``kubectl tz doctor`` against a real API server: on broken set-ups, and on a healthy one."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.ports import free_ports
from tests.cli.conftest import REPOSITORY, Clinic, Plugin
from tests.operator.conftest import MANIFESTS, SERVICE_ACCOUNT, Operator
from tests.operator.kube import Kube, eventually
from tests.operator.world import POOL, World, conditions, world_in

pytestmark = pytest.mark.controlplane

Found = dict[tuple[str, str], str]
"""Messages, by level and subject."""


@pytest.fixture
def namespace(clinic: Clinic) -> Iterator[str]:
    clinic.install_crds()
    clinic.create_namespace("ward")
    yield "ward"
    clinic.delete_namespace("ward")


@pytest.fixture
def world(clinic: Clinic, clinic_kube: Kube, namespace: str) -> Iterator[World]:
    with world_in(clinic, clinic_kube, namespace) as made:
        yield made


@pytest.fixture
def installed(clinic: Clinic) -> Iterator[None]:
    """The operator's manifests; its Deployment's status is written by the test, because no controller does."""
    clinic.kubectl("apply", "--kustomize", str(MANIFESTS))
    status = {"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}}
    target = ("deployment/tenantzone-operator", "--namespace=tenantzone-system", "--subresource=status")
    clinic.kubectl("patch", *target, "--type=merge", f"--patch={json.dumps(status)}")
    yield
    clinic.kubectl("delete", "--kustomize", str(MANIFESTS), "--ignore-not-found", "--wait=false")
    clinic.delete_namespace("tenantzone-system")


@pytest.fixture
def operator(clinic: Clinic, installed: None, tmp_path: Path) -> Iterator[Operator]:
    running = Operator(clinic.user_kubeconfig(SERVICE_ACCOUNT), tmp_path / "operator.log", "--leader-elect")
    running.start()
    running.await_leading()
    yield running
    running.stop()


def found(answer: subprocess.CompletedProcess[str]) -> Found:
    assert "Traceback" not in answer.stderr
    findings = json.loads(answer.stdout)["findings"]
    return {(finding["level"], finding["subject"]): finding["message"] for finding in findings}


def levels(answer: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {subject: level for level, subject in found(answer)}


def test_an_empty_cluster_gets_advice_on_what_to_install(clinic: Clinic, plugin: Plugin):
    kinds = [f"{file.stem}.tenantzone.io" for file in (REPOSITORY / "crds").glob("*.yaml")]
    clinic.kubectl("delete", "crd", "--ignore-not-found", *kinds)

    answer = plugin("tz", "doctor")

    assert answer.returncode == 1
    assert "FAIL  CRD tenantzones    is not installed" in answer.stdout
    assert "-> kubectl apply --server-side -f crds/" in answer.stdout
    assert "FAIL  operator           there is no Deployment tenantzone-operator" in answer.stdout
    assert "FAIL  leader             there is no Lease tenantzone-operator" in answer.stdout
    assert "FAIL  operator's rights" in answer.stdout
    assert "Traceback" not in answer.stderr


def test_an_older_schema_is_named_with_what_it_lacks(clinic: Clinic, namespace: str, plugin: Plugin):
    older = yaml.safe_load((REPOSITORY / "crds" / "tenantzones.yaml").read_text())
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["lending"]["properties"]["grace"]
    clinic.kubectl("replace", "--filename=-", stdin=json.dumps(older))

    answer = eventually(lambda: plugin("tz", "doctor", "-o", "json"))

    assert answer.returncode == 1
    assert "without spec.lending.grace" in found(answer)["FAIL", "CRD tenantzones"]
    assert levels(answer)["CRD zonepools"] == "OK"


def test_a_healthy_set_up_is_found_healthy(world: World, operator: Operator, plugin: Plugin):
    world.add_pool()
    world.add_engine()
    world.add_zone("acme", reserved="40%")
    world.await_ready("acme")
    eventually(lambda: world.pool()["status"].get("enginesAcknowledged") == 1)

    answer = plugin("tz", "doctor", "-n", world.namespace, "-o", "json")

    # No API server proxies to a loopback address; such an engine is queried from here.
    assert {level for level, _ in found(answer)} == {"OK"}
    engines = found(answer)["OK", f"engines {world.namespace}/{POOL}"]
    assert engines == "1 ready, all have acknowledged the config; 1 answered now"
    assert answer.returncode == 0


def test_two_pools_that_select_the_same_pods_each_report_the_other(world: World, operator: Operator, plugin: Plugin):
    world.add_pool()
    engine = world.add_engine()
    world.add_zone("acme")
    world.await_ready("acme")
    world.add_pool("younger", selector={"matchLabels": {"pool": POOL}})
    world.add_zone("beta", pool="younger")
    world.await_condition("beta", "Ready", "False", "EnginesOfAnotherPool")
    eventually(lambda: "SelectorOverlaps" in conditions(world.pool()))

    explained = plugin("tz", "explain", "beta", "-n", world.namespace).stdout
    findings = found(plugin("tz", "doctor", "-n", world.namespace, "-o", "json"))

    assert "Change spec.selector of one of the two pools" in explained
    assert "Start an engine" not in explained
    assert "No pod in namespace" not in explained
    assert engine.name not in explained.partition("What to do")[2]
    for name, other in ((POOL, "younger, which is younger"), ("younger", f"{POOL}, which is older")):
        assert f"by ZonePool {other}" in findings["WARN", f"selector {world.namespace}/{name}"]
    assert not [subject for _, subject in findings if subject == f"engines {world.namespace}/younger"]


def test_pods_of_the_operator_that_do_not_start_are_named(clinic: Clinic, installed: None, plugin: Plugin):
    clinic.install_crds()
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator-0", "labels": {"app.kubernetes.io/name": "tenantzone-operator"}},
        "spec": {
            "schedulerName": "none",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "operator",
                    "image": "none",
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
    inside = ("--namespace", "tenantzone-system")
    clinic.kubectl("create", *inside, "--filename=-", stdin=json.dumps(pod))
    state = {"name": "operator", "ready": False, "restartCount": 3, "image": "none", "imageID": ""}
    waiting = {"containerStatuses": [state | {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    patch = (*inside, "--subresource=status", "--type=merge")
    clinic.kubectl("patch", "pod/operator-0", *patch, f"--patch={json.dumps({'status': waiting})}")
    unready = {"status": {"replicas": 2, "readyReplicas": 0, "availableReplicas": 0}}
    clinic.kubectl("patch", "deployment/tenantzone-operator", *patch, f"--patch={json.dumps(unready)}")

    answer = plugin("tz", "doctor", "-o", "json")

    assert found(answer)["FAIL", "operator"] == "0 of 2 pods are ready (operator-0: CrashLoopBackOff)"
    assert answer.returncode == 1


def test_a_user_without_rights_sees_which_are_missing(namespace: str, plugin: Plugin):
    answer = plugin("tz", "doctor", "-n", namespace, "--as=nobody", "-o", "json")

    said = found(answer)
    assert said["FAIL", "your rights"] == f"you may not list tenantzones.tenantzone.io in namespace {namespace}"
    assert said["WARN", "CRD tenantzones"].startswith("is installed; its schema was not compared")
    assert "WARN", "operator's rights" in said
    assert answer.returncode == 1


def test_an_edited_config_is_found(world: World, plugin: Plugin):
    world.add_pool()
    data = {"config.json": '{"schemaVersion": 1, "generation": 1, "hash": "sha256:0", "pool": {}, "zones": []}'}
    body = {"metadata": {"name": f"tenantzone-{POOL}"}, "data": data}
    world.kube.call("POST", f"/api/v1/namespaces/{world.namespace}/configmaps", body)

    answer = plugin("tz", "doctor", "-n", world.namespace, "-o", "json")

    subject = f"config {world.namespace}/{POOL}"
    assert "so engines keep their previous config" in found(answer)["FAIL", subject]


def test_an_api_server_that_is_away_is_the_only_thing_that_is_said(clinic: Clinic, plugin: Plugin, tmp_path: Path):
    copy = tmp_path / "kubeconfig"
    copy.write_text(clinic.kubeconfig.read_text())
    (port,) = free_ports(1)
    clinic.kubectl(f"--kubeconfig={copy}", "config", "set-cluster", "tenantzone", f"--server=https://127.0.0.1:{port}")

    answer = plugin("tz", "doctor", "-o", "json", KUBECONFIG=str(copy))

    assert list(levels(answer)) == ["API server"]
    assert "connection refused" in found(answer)["FAIL", "API server"]
    assert answer.returncode == 1
