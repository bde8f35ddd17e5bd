"""Cross-references of the objects: labels, ports and names exist where they are looked up."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantzone_manager.arguments import AUDIENCE, make_parser
from tests.manifests.rendering import ENGINES, MANIFESTS, OVERLAYS, Objects, kustomize

Template = dict[str, Any]
OPERATOR = ("base", "ha", "monitoring", "manager")
WORKLOADS = ("Deployment", "StatefulSet")


def templates(objects: Objects) -> list[Template]:
    return [body["spec"]["template"] for (kind, _), body in objects.items() if kind in WORKLOADS]


def selectors(objects: Objects) -> Iterator[tuple[str, dict[str, str]]]:
    """Selectors of the kinds that select pods; those of a topology constraint are named by their Deployment."""
    for (kind, name), body in objects.items():
        spec = body.get("spec", {})
        if kind == "Service":
            yield f"{kind} {name}", spec["selector"]
        elif kind == "NetworkPolicy":
            yield f"{kind} {name}", spec["podSelector"]["matchLabels"]
        elif kind in ("PodDisruptionBudget", *WORKLOADS, "ZonePool"):
            yield f"{kind} {name}", spec["selector"]["matchLabels"]
        if kind in WORKLOADS:
            for constraint in spec["template"]["spec"].get("topologySpreadConstraints", []):
                yield f"{kind} {name}", constraint["labelSelector"]["matchLabels"]


def ports(template: Template) -> dict[str, int]:
    """The ports that the containers name."""
    containers = template["spec"]["containers"]
    return {port["name"]: port["containerPort"] for container in containers for port in container["ports"]}


def ports_of_services_and_probes(objects: Objects) -> Iterator[tuple[str, str]]:
    for (kind, name), body in objects.items():
        if kind == "Service":
            yield from ((f"{kind} {name}", port["targetPort"]) for port in body["spec"]["ports"])
        elif kind == "NetworkPolicy":
            rules = body["spec"].get("ingress", [])
            yield from ((f"{kind} {name}", port["port"]) for rule in rules for port in rule.get("ports", []))
    for template in templates(objects):
        for container in template["spec"]["containers"]:
            probes = (probe for field, probe in container.items() if field.endswith("Probe"))
            yield from ((container["name"], probe["httpGet"]["port"]) for probe in probes)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_selector_finds_the_pods(rendered, overlay):
    labels = [template["metadata"]["labels"] for template in templates(rendered[overlay])]

    assert len(labels) == (2 if overlay in ("manager", "manager-tls") else 1)
    for who, wanted in selectors(rendered[overlay]):
        assert any(wanted.items() <= of_pods.items() for of_pods in labels), who


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_port_that_is_named_is_a_containers(rendered, overlay):
    named = {name for template in templates(rendered[overlay]) for name in ports(template)}

    for who, port in ports_of_services_and_probes(rendered[overlay]):
        assert port in named, who


@pytest.mark.parametrize("overlay", [*ENGINES, "ha", "monitoring"])
def test_pods_are_spread_and_survive_drains_together(rendered, overlay):
    (template,) = templates(rendered[overlay])
    (budget,) = (body["spec"] for (kind, _), body in rendered[overlay].items() if kind == "PodDisruptionBudget")

    keys = [constraint["topologyKey"] for constraint in template["spec"]["topologySpreadConstraints"]]
    assert keys[0] == "kubernetes.io/hostname"
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


@pytest.mark.parametrize("overlay", ENGINES)
def test_the_operator_may_reach_the_engines_and_is_admitted(rendered, overlay):
    (template,) = templates(rendered[overlay])
    egress = rendered["base"]["NetworkPolicy", "tenantzone-operator"]["spec"]["egress"]
    (admitted,) = [
        rule
        for rule in rendered[overlay]["NetworkPolicy", "vllm"]["spec"]["ingress"]
        if {"port": "admin"} in rule["ports"]
    ]

    assert ports(template)["admin"] in [port["port"] for rule in egress for port in rule["ports"]]
    namespaces = [each["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for each in admitted["from"]]
    assert namespaces == ["tenantzone-system", "monitoring"]


def test_an_engine_mounts_the_config_of_the_pool_that_chooses_it(rendered):
    objects = rendered["cpu-demo"]
    (template,) = templates(objects)
    (pool,) = (name for kind, name in objects if kind == "ZonePool")
    mounted = {volume["name"]: volume for volume in template["spec"]["volumes"]}

    assert mounted["config"]["configMap"]["name"] == f"tenantzone-{pool}"
    assert mounted["admin"]["secret"]["secretName"] == f"tenantzone-admin-{pool}"
    assert ("Secret", mounted["keys"]["secret"]["secretName"]) in objects
    assert {name for kind, name in objects if kind == "TenantZone"} == set(objects["Secret", "tenant-keys"]["data"])


def pod_specs(body: Any) -> Iterator[dict[str, Any]]:
    """All parts of an object that have containers, wherever they are."""
    if isinstance(body, dict):
        if "containers" in body:
            yield body
        for part in body.values():
            yield from pod_specs(part)
    elif isinstance(body, list):
        for part in body:
            yield from pod_specs(part)


def test_each_pod_of_each_file_says_that_it_gets_no_token_but_the_operators():
    """Except for overlays' patches, which change a Deployment that sets it."""
    said = {
        str(file.relative_to(MANIFESTS)): [spec.get("automountServiceAccountToken") for spec in pod_specs(body)]
        for file in sorted(MANIFESTS.rglob("*.yaml"))
        if "chart" not in file.parts and "overlays" not in file.parts
        for body in yaml.safe_load_all(file.read_text())
        if list(pod_specs(body))
    }
    assert said.pop("base/operator.yaml") == [True]
    assert said
    assert {each for specs in said.values() for each in specs} == {False}


def test_the_quick_starts_pods_mount_all_that_an_engine_reads():
    """Each block that mounts what an engine reads has all of it, and no token of a service account."""
    page = (MANIFESTS.parent / "docs" / "quick-start.md").read_text()
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    specs = [spec for block in blocks for body in yaml.safe_load_all(block) for spec in pod_specs(body)]
    mounted = {mount["mountPath"] for spec in specs for each in spec["containers"] for mount in each["volumeMounts"]}
    assert {"/etc/tenantzone/" + name for name in ("config", "keys", "salt", "admin")} <= mounted
    assert [spec["automountServiceAccountToken"] for spec in specs] == [False] * len(specs)


def test_an_engine_gets_no_token_and_the_operator_one_because_it_asks(rendered):
    for overlay in OVERLAYS:
        for template in templates(rendered[overlay]):
            is_operator = template["metadata"]["labels"].get("app.kubernetes.io/name") == "tenantzone-operator"
            assert template["spec"]["automountServiceAccountToken"] is is_operator, overlay
            assert is_operator or overlay not in OPERATOR or overlay == "manager"
    assert kustomize("base")["ServiceAccount", "tenantzone-operator"]["automountServiceAccountToken"] is False


def test_the_operator_finds_the_manager_and_shows_it_a_token_of_its_audience(rendered):
    objects = rendered["manager"]
    service = objects["Service", "tenantzone-manager"]
    spec = objects["Deployment", "tenantzone-operator"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    flags = dict(argument.split("=", 1) for argument in container["args"] if argument.startswith("--manager-"))
    (http,) = [port["port"] for port in service["spec"]["ports"] if port["name"] == "http"]
    assert flags["--manager-url"] == f"http://{service['metadata']['name']}.{service['metadata']['namespace']}:{http}"
    (volume,) = [each for each in spec["volumes"] if each["name"] == "manager-token"]
    (source,) = volume["projected"]["sources"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "manager-token"]
    assert source["serviceAccountToken"]["audience"] == AUDIENCE
    assert flags["--manager-token-file"] == f"{mount['mountPath']}/{source['serviceAccountToken']['path']}"
    accounts = json.loads(objects["ConfigMap", "tenantzone-manager-service-accounts"]["data"]["accounts.json"])
    assert accounts == {f"{service['metadata']['namespace']}/{spec['serviceAccountName']}": {"admin": True}}


@pytest.mark.parametrize("client", ["operator", "engine"])
def test_a_client_of_the_manager_may_reach_it_and_is_admitted(rendered, client):
    manager = rendered["manager"]["StatefulSet", "tenantzone-manager"]["spec"]["template"]
    if client == "operator":
        policy = rendered["manager"]["NetworkPolicy", "tenantzone-operator-manager"]
        pods = rendered["manager"]["Deployment", "tenantzone-operator"]["spec"]["template"]
    else:
        policy = yaml.safe_load((MANIFESTS / "engine" / "manager-access.yaml").read_text())
        pods = rendered["gpu"]["Deployment", "vllm"]["spec"]["template"]
    (way,) = policy["spec"]["egress"]
    (peer,) = way["to"]
    (admitted,) = rendered["manager"]["NetworkPolicy", "tenantzone-manager"]["spec"]["ingress"]

    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
    assert peer["podSelector"]["matchLabels"].items() <= manager["metadata"]["labels"].items()
    assert {port["port"] for port in way["ports"]} <= set(ports(manager).values())
    assert {port["port"] for port in admitted["ports"]} == set(ports(manager))
    assert admitted["from"] == [{"namespaceSelector": {}}]


def test_the_manager_takes_the_flags_that_it_is_started_with(rendered):
    (container,) = rendered["manager"]["StatefulSet", "tenantzone-manager"]["spec"]["template"]["spec"]["containers"]
    options = make_parser().parse_args(container["args"])
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(path.parent) for path in (Path(options.index), options.service_accounts)} <= mounted
    assert str(options.credentials) in mounted
    assert str(options.api_server_credentials) in mounted
    assert {options.listen[1], options.grpc[1]} == {port["containerPort"] for port in container["ports"]}


def test_no_right_is_granted_for_the_manager_where_there_is_none(rendered):
    for overlay in ("base", "ha", "monitoring"):
        # Prometheus looks for one, and finds none.
        watched = {("ServiceMonitor", "tenantzone-manager")}
        assert not [name for name in rendered[overlay] if "manager" in name[1] and name not in watched]
