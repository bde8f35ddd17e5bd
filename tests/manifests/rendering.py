"""The manifests as rendered by kustomize and Helm."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane.binaries import find_kubectl
from hack.manifests.chart import CHART
from hack.manifests.tools import helm

PROJECT = Path(__file__).parents[2]
MANIFESTS = PROJECT / "manifests"
NAMESPACE = "tenantzone-system"
OVERLAYS = {
    "base": "base",
    "ha": "overlays/ha",
    "monitoring": "overlays/monitoring",
    "cpu-demo": "overlays/cpu-demo",
    "gpu": "overlays/gpu",
    "data-parallel": "overlays/data-parallel",
    "manager": "overlays/manager",
    "manager-tls": "overlays/manager-tls",
}
ENGINES = ("cpu-demo", "gpu", "data-parallel")
"""Overlays without a namespace: they use the user's current one."""

Objects = dict[tuple[str, str], dict[str, Any]]
"""Objects by kind and name."""


def kustomize(folder: str) -> Objects:
    command = [find_kubectl(), "kustomize", MANIFESTS / folder]
    return by_name(yaml.safe_load_all(_output(command)))


def template(
    values: Mapping[str, Any] | None = None, *flags: str, namespace: str = NAMESPACE, chart: Path = CHART
) -> Objects:
    """The objects that the chart makes."""
    return by_name(documents(values, *flags, namespace=namespace, chart=chart))


def documents(
    values: Mapping[str, Any] | None = None, *flags: str, namespace: str = NAMESPACE, chart: Path = CHART
) -> list[dict[str, Any]]:
    """The same, where objects in several namespaces may have one name."""
    text = _output(template_command(*flags, namespace=namespace, chart=chart), values)
    return [document for document in yaml.safe_load_all(text) if document is not None]


def refusal(values: Mapping[str, Any], *flags: str, chart: Path = CHART) -> str:
    """Helm's error for these values.

    Raises:
        AssertionError: Helm rendered them.
    """
    done = _run(template_command(*flags, chart=chart), values)
    assert done.returncode != 0, done.stdout
    return done.stderr


def template_command(*flags: str, namespace: str = NAMESPACE, chart: Path = CHART) -> list[str | Path]:
    return [helm(), "template", "tenantzone", chart, "--namespace", namespace, "--values", "-", *flags]


def by_name(documents: Iterable[dict[str, Any] | None]) -> Objects:
    objects = [document for document in documents if document is not None]
    named = {(body["kind"], body["metadata"]["name"]): body for body in objects}
    assert len(named) == len(objects), "two objects of one kind and name"
    return named


def _output(command: list[str | Path], values: Mapping[str, Any] | None = None) -> str:
    done = _run(command, values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(command: list[str | Path], values: Mapping[str, Any] | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=yaml.safe_dump(dict(values or {})), capture_output=True, text=True, check=False
    )
