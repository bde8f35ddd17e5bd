"""The checkers of manifests: Helm and kubeconform as Go modules, the Prometheus Operator's kinds, checkov."""

import subprocess
from pathlib import Path

from hack import locked
from hack.controlplane.build import GoProgram
from hack.controlplane.toolchain import environment, find_go
from hack.progress import watch, written

_HERE = Path(__file__).parent
_SOURCE = _HERE / "go"
_HELM = GoProgram("helm", _SOURCE, ("helm",), "helm.sh/helm/v4", "3 minutes", package="helm.sh/helm/v4/cmd/helm")
_KUBECONFORM = GoProgram(
    "kubeconform",
    _SOURCE,
    ("kubeconform",),
    "github.com/yannh/kubeconform",
    "half a minute",
    package="github.com/yannh/kubeconform/cmd/kubeconform",
)
_PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
_CHECKOV = _HERE.parents[1] / "requirements" / "checkov.txt"


def helm() -> Path:
    """The path of Helm, which is built first if need be.

    Raises:
        CommandFailed: the build failed.
    """
    return _HELM.folder() / "helm"


def kubeconform() -> Path:
    """The path of kubeconform, which is built first if need be.

    Raises:
        CommandFailed: the build failed.
    """
    return _KUBECONFORM.folder() / "kubeconform"


def monitoring_definitions() -> list[Path]:
    """The CRDs of the Prometheus Operator that our manifests use, out of its Go module; Go keeps modules itself.

    Raises:
        CommandFailed: the download failed, or its checksum is not the pinned one.
    """
    go, source = find_go(), _HERE / "prometheus-operator"
    watch("prometheus", [go, "mod", "download", _PROMETHEUS_OPERATOR], status=written, cwd=source, env=environment())
    where: list[str | Path] = [go, "list", "-m", "-f", "{{.Dir}}", _PROMETHEUS_OPERATOR]
    listed = subprocess.run(where, cwd=source, env=environment(), capture_output=True, text=True, check=True)
    folder = Path(listed.stdout.strip()) / "example" / "prometheus-operator-crd"
    kinds = ("podmonitors", "servicemonitors", "prometheusrules")
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in kinds]


def checkov() -> Path:
    """Returns checkov from an environment of its own: it pins old versions of packages that the tests use in new ones.

    Raises:
        CommandFailed: the installation failed.
    """
    return locked.environment("checkov", _CHECKOV) / "bin" / "checkov"
