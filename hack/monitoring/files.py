"""The files of ``manifests/monitoring``, and the runbooks' URL in the cases that alerts are tested with."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from hack.monitoring import scraping
from hack.monitoring.dashboard import dashboard_json
from hack.monitoring.model import rule_file
from hack.monitoring.rules import groups

_ROOT = Path(__file__).parents[2]
FOLDER = _ROOT / "manifests" / "monitoring"
CASES = _ROOT / "tests" / "monitoring" / "rules"
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNBOOKS = f"{_PROJECT['urls']['Documentation']}/runbooks"
"""The URL of the pages of ``docs/runbooks``, which alerts link to unless another is given."""

_HEADER = "# Made by `make monitoring` from hack/monitoring. Do not edit.\n"
_ALERTMANAGER = [{"static_configs": [{"targets": ["alertmanager:9093"]}]}]
_DASHBOARD = "dashboard.json"
_WIDTH = 116


def files(runbooks: str = RUNBOOKS) -> dict[str, str]:
    """Their contents, by name."""
    rules = rule_file(groups(), runbooks)
    return {
        "rules.yaml": _text(rules),
        "prometheus.yaml": _text(scraping.scrape_config(["rules.yaml"], _ALERTMANAGER)),
        "prometheus-rule.yaml": _text(_prometheus_rule(rules)),
        "engines.yaml": _text(scraping.pod_monitor()),
        "operator.yaml": _text(scraping.metrics_service(), scraping.service_monitor()),
        "manager.yaml": _text(scraping.manager_monitor()),
        "kustomization.yaml": _text(_kustomization()),
        _DASHBOARD: dashboard_json(),
    }


def cases(runbooks: str = RUNBOOKS) -> dict[str, str]:
    """The contents of the files in ``CASES``, by name, with this URL of the runbooks."""
    url = re.compile(r"(?<=\brunbook_url: )\S*/(?=\w+\.md$)", re.MULTILINE)
    return {path.name: url.sub(f"{runbooks.rstrip('/')}/", path.read_text()) for path in sorted(CASES.iterdir())}


def _prometheus_rule(rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "tenantzone", "namespace": "tenantzone-system"},
        "spec": rules,
    }


def _kustomization() -> dict[str, Any]:
    """Returns the kustomization for clusters with the Prometheus Operator and Grafana's sidecar."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["prometheus-rule.yaml", "engines.yaml", "operator.yaml", "manager.yaml"],
        "configMapGenerator": [
            {
                "name": "tenantzone-dashboard",
                "namespace": "tenantzone-system",
                "files": [_DASHBOARD],
                "options": {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}},
            }
        ],
    }


def _text(*documents: dict[str, Any]) -> str:
    return _HEADER + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=_WIDTH)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text_node)
