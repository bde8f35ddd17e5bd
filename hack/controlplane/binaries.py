"""Selects etcd, kube-apiserver and kubectl: the user's, or else what we build."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.build import built_programs

ASSETS = "KUBEBUILDER_ASSETS"
"""The environment variable that envtest uses, too: a folder with etcd, kube-apiserver and, mostly, kubectl."""


class BinariesError(Exception):
    """Programs that were named but can't be used."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of a control plane."""

    etcd: Path
    kube_apiserver: Path
    kubectl: Path


def find_binaries(environ: Mapping[str, str] = os.environ) -> Binaries:
    """Returns binaries from ``KUBEBUILDER_ASSETS`` if it is set, else from PATH if both servers are there, else built.

    Raises:
        BinariesError: ``KUBEBUILDER_ASSETS`` lacks a server.
        CommandFailed: the build failed.
    """
    etcd, kube_apiserver = _servers(environ)
    kubectl = _find(environ, "kubectl")
    if kubectl is None or abs(_minor_of_kubectl(kubectl) - _minor_of_server(kube_apiserver)) > 1:
        # Kubernetes supports a kubectl one minor version away from the server, not further.
        kubectl = built_programs() / "kubectl"
    return Binaries(etcd, kube_apiserver, kubectl)


def find_kubectl(environ: Mapping[str, str] = os.environ) -> Path:
    """A kubectl for a cluster that the user has named: the user's own, else a built one."""
    return _find(environ, "kubectl") or built_programs() / "kubectl"


def _servers(environ: Mapping[str, str]) -> tuple[Path, Path]:
    etcd, kube_apiserver = (_find(environ, name) for name in ("etcd", "kube-apiserver"))
    if etcd and kube_apiserver:
        return etcd, kube_apiserver
    if environ.get(ASSETS):
        missing = "etcd" if etcd is None else "kube-apiserver"
        raise BinariesError(f"{ASSETS}={environ[ASSETS]} has no {missing}; unset it to have the programs built")
    built = built_programs()
    return built / "etcd", built / "kube-apiserver"


def _find(environ: Mapping[str, str], name: str) -> Path | None:
    """The program in the named folder; only kubectl, which fits more than one server, is looked for beyond it."""
    assets = environ.get(ASSETS)
    found = shutil.which(name, path=assets) if assets else None
    if found is None and (not assets or name == "kubectl"):
        found = shutil.which(name, path=environ.get("PATH", ""))
    return Path(found).absolute() if found else None


def _minor_of_server(kube_apiserver: Path) -> int:
    shown = subprocess.run([kube_apiserver, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v1\.(\d+)", shown)
    if found is None:
        raise BinariesError(f"{kube_apiserver} --version says {shown!r}, which names no version of Kubernetes")
    return int(found[1])


def _minor_of_kubectl(kubectl: Path) -> int:
    command = (kubectl, "version", "--client", "--output=json")
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(json.loads(shown)["clientVersion"]["minor"].rstrip("+"))
