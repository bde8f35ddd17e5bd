"""The Helm chart: the same objects as the overlays, and values that are checked."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.manifests import chart
from hack.manifests.tools import helm
from hack.version import VERSION
from tests.manifests.rendering import NAMESPACE, PROJECT, Objects, documents, kustomize, refusal, template

DEPLOYMENT = ("Deployment", "tenantzone-operator")


def pod_spec(objects: Objects) -> dict[str, Any]:
    return objects[DEPLOYMENT]["spec"]["template"]["spec"]


def container(objects: Objects) -> dict[str, Any]:
    (only,) = pod_spec(objects)["containers"]
    return only


def without_namespace(objects: Objects) -> Objects:
    return {name: body for name, body in objects.items() if body["kind"] != "Namespace"}


def test_the_charts_copies_are_up_to_date():
    for path, text in chart.files().items():
        assert (chart.CHART / path).read_text() == text, f"{path}: run `make chart`"


def test_helm_finds_nothing_wrong_with_the_chart():
    for flags in ((), ("--set", "monitoring.enabled=true")):
        done = subprocess.run(
            [helm(), "lint", "--strict", chart.CHART, *flags], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_by_default_the_chart_makes_what_the_manifests_make():
    assert template() == without_namespace(kustomize("."))


def test_with_monitoring_the_chart_makes_what_the_overlay_makes():
    assert template({"monitoring": {"enabled": True}}) == without_namespace(kustomize("overlays/monitoring"))


def test_with_the_manager_the_chart_makes_what_the_overlay_makes():
    assert template({"manager": {"enabled": True}}) == without_namespace(kustomize("overlays/manager"))


def test_with_tls_the_chart_makes_what_the_overlay_makes():
    values = {"manager": {"enabled": True, "tls": {"secretName": "tenantzone-manager-tls"}}}
    assert template(values) == without_namespace(kustomize("overlays/manager-tls"))


def test_the_manager_is_as_the_values_say():
    values = {
        "enabled": True,
        "index": "redis://redis:6379/0",
        "replicas": 3,
        "image": {"repository": "registry.example/manager", "tag": "1.2.3"},
        "extraArgs": ["--lease=5"],
        "volumes": [{"name": "kv", "nfs": {"server": "nfs", "path": "/kv"}}],
        "volumeMounts": [{"name": "kv", "mountPath": "/mnt/kv"}],
    }
    spec = template({"manager": values})["StatefulSet", "tenantzone-manager"]["spec"]
    (made,) = spec["template"]["spec"]["containers"]

    assert (spec["replicas"], "volumeClaimTemplates" in spec) == (3, False)
    assert (made["args"][0], made["args"][-1]) == ("--index=redis://redis:6379/0", "--lease=5")
    # There is no volume to write them to.
    assert not any(argument.startswith("--events") for argument in made["args"])
    assert made["image"] == "registry.example/manager:1.2.3"
    assert values["volumeMounts"][0] in made["volumeMounts"]
    assert values["volumes"][0] in spec["template"]["spec"]["volumes"]
    assert "index" not in [mount["name"] for mount in made["volumeMounts"]]


def test_an_index_in_a_file_has_one_manager():
    assert "needs manager.index" in refusal({"manager": {"enabled": True, "replicas": 2}})


def test_the_manager_s_volume_is_as_the_values_say():
    values = {"manager": {"enabled": True, "storage": {"size": "1Ti", "className": "fast"}}}
    (claim,) = template(values)["StatefulSet", "tenantzone-manager"]["spec"]["volumeClaimTemplates"]

    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Ti"


def test_the_chart_brings_the_crds():
    objects = template(None, "--include-crds")

    for file in sorted((PROJECT / "crds").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        assert objects["CustomResourceDefinition", definition["metadata"]["name"]] == definition
    assert len(objects) == len(template()) + len(list((PROJECT / "crds").glob("*.yaml")))


def test_the_chart_has_the_projects_version():
    described = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]

    assert (described["version"], described["appVersion"]) == (version, version)


def test_everything_follows_the_namespace_of_the_release():
    monitored = {"monitoring": {"enabled": True}, "manager": {"enabled": True}}
    elsewhere = template(monitored, namespace="elsewhere")

    # As JSON: YAML breaks a long line depending on the length of the name.
    text = json.dumps(list(elsewhere.values()))
    assert "tenantzone-system" not in text
    assert text.replace("elsewhere", "tenantzone-system") == json.dumps(list(template(monitored).values()))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({"repository": "registry.example/operator"}, f"registry.example/operator:{VERSION}"),
        ({"tag": "1.2.3"}, "tenantzone-operator:1.2.3"),
        ({"tag": "1.2.3", "digest": f"sha256:{'a' * 64}"}, f"tenantzone-operator@sha256:{'a' * 64}"),
    ],
)
def test_the_image_is_named_as_the_values_say(image, expected):
    assert container(template({"image": image}))["image"] == expected


def test_the_container_is_as_the_values_say():
    made = container(
        template(
            {
                "image": {"pullPolicy": "Always"},
                "resources": {"limits": {"memory": "1Gi"}},
                "logFormat": "text",
                "extraArgs": ["--leader-elect-lease-duration=30s"],
            }
        )
    )

    assert made["imagePullPolicy"] == "Always"
    assert made["resources"] == {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
    assert made["args"][-2:] == ["--log-format=text", "--leader-elect-lease-duration=30s"]


def test_pods_are_as_the_values_say():
    placement = {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "priorityClassName": "system-cluster-critical",
    }
    objects = template(
        {
            **placement,
            "image": {"pullSecrets": [{"name": "registry"}]},
            "replicas": 3,
            "podLabels": {"team": "inference"},
            "podAnnotations": {"note": "1"},
        }
    )

    assert {name: pod_spec(objects)[name] for name in placement} == placement
    assert pod_spec(objects)["imagePullSecrets"] == [{"name": "registry"}]
    assert objects[DEPLOYMENT]["spec"]["replicas"] == 3
    assert objects[DEPLOYMENT]["spec"]["template"]["metadata"] == {
        "labels": {"app.kubernetes.io/name": "tenantzone-operator", "team": "inference"},
        "annotations": {"note": "1"},
    }


def test_budget_and_policy_can_be_left_out():
    made = template({"podDisruptionBudget": {"enabled": False}, "networkPolicy": {"enabled": False}})

    gone = {("PodDisruptionBudget", "tenantzone-operator"), ("NetworkPolicy", "tenantzone-operator")}
    assert template().keys() - made.keys() == gone


def test_monitors_and_rules_get_the_labels_that_a_prometheus_chooses_them_by():
    labels = {"release": "kube-prometheus-stack"}
    made = template({"monitoring": {"enabled": True, "labels": labels}})

    labelled = {body["kind"] for body in made.values() if body["metadata"].get("labels") == labels}
    assert labelled == {"PodMonitor", "ServiceMonitor", "PrometheusRule"}


def test_alerts_link_to_the_runbooks_that_the_values_name():
    made = template({"monitoring": {"enabled": True, "runbooks": "https://docs.example/runbooks/"}})

    rules = [rule for group in made["PrometheusRule", "tenantzone"]["spec"]["groups"] for rule in group["rules"]]
    alerts = [rule for rule in rules if "alert" in rule]
    assert alerts
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"https://docs.example/runbooks/{alert['alert']}.md"


def test_for_listed_pools_rights_end_with_their_namespaces_and_config_maps_have_names():
    pools = [("shop", "demo"), ("shop", "spare"), ("bank", "demo"), ("bank", "demo")]
    made = documents({"pools": [{"namespace": namespace, "name": name} for namespace, name in pools]})

    rights = {(rule["namespace"], *named): verbs for rule in rules(made) for named, verbs in core_rights(rule)}
    assert rights == {
        ("shop", "pods", ""): ["list", "watch", "patch"],
        ("shop", "configmaps", ""): ["create"],
        ("shop", "secrets", ""): ["create"],
        ("shop", "configmaps", "tenantzone-demo"): ["get", "patch"],
        ("shop", "configmaps", "tenantzone-spare"): ["get", "patch"],
        ("bank", "pods", ""): ["list", "watch", "patch"],
        ("bank", "configmaps", ""): ["create"],
        ("bank", "secrets", ""): ["create"],
        ("bank", "configmaps", "tenantzone-demo"): ["get", "patch"],
        ("tenantzone-system", "secrets", ""): ["create"],
        ("tenantzone-system", "secrets", "tenantzone-operator-key"): ["get"],
    }
    bound = {
        body["metadata"]["namespace"]: body["subjects"][0]["namespace"]
        for body in made
        if body["kind"] == "RoleBinding" and body["roleRef"]["name"] == "tenantzone-operator-pools"
    }
    assert bound == {"shop": NAMESPACE, "bank": NAMESPACE}


def rules(bodies: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rules of all roles, each with its role's namespace; None: of all namespaces."""
    for body in bodies:
        if body["kind"] in ("Role", "ClusterRole"):
            yield from ({**rule, "namespace": body["metadata"].get("namespace")} for rule in body["rules"])


def core_rights(rule: dict[str, Any]) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Rights on Kubernetes' own kinds: resource and name, and the verbs."""
    if "" in rule["apiGroups"]:
        for name in rule.get("resourceNames", [""]):
            yield from (((resource, name), rule["verbs"]) for resource in rule["resources"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replica": 2}, ("replica", "not allowed")),
        ({"replicas": "two"}, ("/replicas", "integer")),
        ({"replicas": -1}, ("/replicas", "minimum")),
        ({"image": {"name": "x"}}, ("/image", "name", "not allowed")),
        ({"image": {"digest": "latest"}}, ("/image/digest", "pattern")),
        ({"image": {"pullPolicy": "Sometimes"}}, ("/image/pullPolicy", "IfNotPresent")),
        ({"image": {"pullSecrets": ["registry"]}}, ("/image/pullSecrets/0", "object")),
        ({"extraArgs": ["verbose"]}, ("/extraArgs/0", "pattern")),
        ({"logFormat": "xml"}, ("/logFormat", "json")),
        ({"resources": {"limit": {}}}, ("/resources", "limit", "not allowed")),
        ({"affinity": {"nodeAfinity": {}}}, ("/affinity", "nodeAfinity", "not allowed")),
        ({"podLabels": {"app.kubernetes.io/name": "mine"}}, ("/podLabels/app.kubernetes.io~1name",)),
        ({"pools": ["demo"]}, ("/pools/0", "object")),
        ({"pools": [{"name": "demo"}]}, ("/pools/0", "namespace")),
        ({"monitoring": {"enabled": "yes"}}, ("/monitoring/enabled", "boolean")),
        ({"monitoring": {"runbooks": "docs/runbooks"}}, ("/monitoring/runbooks", "pattern")),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_values_that_mean_nothing_are_refused_with_their_names(values, words):
    said = refusal(values)

    assert all(word in said for word in words), said


def test_a_kubernetes_that_could_not_guard_the_operator_is_refused():
    assert "1.29.0" in refusal({}, "--kube-version", "1.29.0")


def test_a_packaged_chart_makes_the_same(tmp_path: Path):
    command = [helm(), "package", chart.CHART, "--destination", tmp_path]
    subprocess.run(command, capture_output=True, check=True)
    (packaged,) = tmp_path.iterdir()
    values = {"monitoring": {"enabled": True}}

    assert template(values, "--include-crds", chart=packaged) == template(values, "--include-crds")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A chart with ours as a dependency, which one of its values switches on and off."""
    dependency = {"name": "tenantzone", "version": VERSION, "condition": "tenantzone.enabled"}
    described = {"apiVersion": "v2", "name": "ours", "version": "0.1.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(described))
    (tmp_path / "values.yaml").write_text("tenantzone: {enabled: true}")
    shutil.copytree(chart.CHART, tmp_path / "charts" / "tenantzone")
    return tmp_path


def test_the_chart_can_be_a_dependency_of_another_one(whole: Path):
    made = template({"global": {"region": "north"}, "tenantzone": {"replicas": 3}}, chart=whole)

    assert made == template({"replicas": 3})


def test_a_chart_that_depends_on_it_can_leave_it_out(whole: Path):
    assert template({"tenantzone": {"enabled": False}}, "--include-crds", chart=whole) == {}


def test_a_dependency_is_refused_what_means_nothing_too(whole: Path):
    assert "'replica' not allowed" in refusal({"tenantzone": {"replica": 2}}, chart=whole)


def test_the_chart_alone_is_not_left_out_by_a_value():
    assert template({"enabled": True}) == template()
    assert "enabled: false" in refusal({"enabled": False})
