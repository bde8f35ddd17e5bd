"""The scraped targets. Discovery itself needs a cluster; Prometheus' own tool checks the rest of the config."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane.binaries import find_binaries
from hack.monitoring.files import FOLDER
from hack.monitoring.scraping import pod_labels, without_cluster
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION
from tests.monitoring.promtool import promtool

MANIFESTS = FOLDER.parent
GROUP_VERSION = "monitoring.coreos.com/v1"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def by_kind(name: str) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in documents(FOLDER / name)}


def test_the_scrape_config_is_well_formed(tmp_path: Path):
    (config,) = documents(FOLDER / "prometheus.yaml")
    labels = pod_labels("shop", "engine-0", "admin", {"app": "vllm"}, [CONFIG_HASH_ANNOTATION])
    here = without_cluster(config, [{"targets": ["127.0.0.1:1"], "labels": labels}])
    (engines, *_) = here["scrape_configs"]
    assert engines["authorization"] == {"credentials_file": "/etc/prometheus/tenantzone-admin-demo/token"}
    engines["authorization"]["credentials_file"] = str(tmp_path / "token")
    (tmp_path / "token").write_text("token")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(here))
    (tmp_path / "rules.yaml").write_text((FOLDER / "rules.yaml").read_text())
    said = promtool("check", "config", tmp_path / "prometheus.yaml")
    assert "SUCCESS: 1 rule files found" in said


def test_discovery_asks_for_pods():
    (config,) = documents(FOLDER / "prometheus.yaml")
    discoveries = [found for job in config["scrape_configs"] for found in job["kubernetes_sd_configs"]]
    assert discoveries == [
        {"role": "pod", "namespaces": {"names": ["default"]}},
        {"role": "pod", "namespaces": {"names": ["tenantzone-system"]}},
        {"role": "pod", "namespaces": {"names": ["tenantzone-system"]}},
    ]


def test_the_pod_monitor_finds_the_port_that_the_engines_manifest_names():
    monitor = by_kind("engines.yaml")["PodMonitor"]
    assert monitor["apiVersion"] == GROUP_VERSION
    assert set(monitor["spec"]) == {"selector", "podMetricsEndpoints"}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert set(endpoint) == {"port", "interval", "authorization", "relabelings"}
    assert endpoint["port"] in _ports(MANIFESTS / "engine" / "engine.yaml")
    (kept,) = endpoint["relabelings"]
    assert kept == {
        "sourceLabels": ["__meta_kubernetes_pod_annotationpresent_tenantzone_io_config_hash"],
        "regex": "true",
        "action": "keep",
    }
    assert CONFIG_HASH_ANNOTATION == "tenantzone.io/config-hash"


def test_the_pod_monitor_shows_the_pools_token_to_the_pools_engines_only():
    monitor = by_kind("engines.yaml")["PodMonitor"]
    (pool,) = documents(MANIFESTS / "samples" / "pool.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert monitor["spec"]["selector"] == pool["spec"]["selector"]
    assert endpoint["authorization"]["credentials"]["name"] == f"tenantzone-admin-{pool['metadata']['name']}"


def test_the_service_monitor_finds_the_operators_pods_through_the_service():
    kinds, (operator,) = by_kind("operator.yaml"), documents(MANIFESTS / "base" / "operator.yaml")
    monitor, service = kinds["ServiceMonitor"], kinds["Service"]
    assert monitor["apiVersion"] == GROUP_VERSION
    assert set(monitor["spec"]) == {"namespaceSelector", "selector", "endpoints"}
    pods = operator["spec"]["template"]
    assert monitor["spec"]["namespaceSelector"]["matchNames"] == [operator["metadata"]["namespace"]]
    assert service["metadata"]["namespace"] == operator["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= pods["metadata"]["labels"].items()
    (endpoint,), (port,) = monitor["spec"]["endpoints"], service["spec"]["ports"]
    assert set(endpoint) == {"port", "interval"}
    assert endpoint["port"] == port["name"]
    assert _ports(MANIFESTS / "base" / "operator.yaml")[port["targetPort"]] == port["port"]


def test_the_managers_monitor_finds_its_service_and_its_port():
    monitor = by_kind("manager.yaml")["ServiceMonitor"]
    (service,) = documents(MANIFESTS / "manager" / "service.yaml")
    assert monitor["spec"]["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_kustomize_puts_all_of_it_together_with_the_dashboard_where_grafana_looks():
    kubectl = find_binaries().kubectl
    ran = subprocess.run([kubectl, "kustomize", FOLDER], capture_output=True, text=True, check=True)
    objects = {document["kind"]: document for document in yaml.safe_load_all(ran.stdout)}
    assert set(objects) == {"ConfigMap", "PodMonitor", "PrometheusRule", "Service", "ServiceMonitor"}
    dashboards = objects["ConfigMap"]
    assert dashboards["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert dashboards["data"] == {"dashboard.json": (FOLDER / "dashboard.json").read_text()}


def _ports(manifest: Path) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"]
        for document in documents(manifest)
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]
    }
