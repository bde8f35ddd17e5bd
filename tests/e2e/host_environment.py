"""vLLM from the node's own disk.

An image with vLLM has gigabytes. So, unless one is named, engines use this project's own environment: read-only volumes
at the same paths in an image of empty folders, behind claims, because the strictest pod security allows no host paths.
"""

import sys
from pathlib import Path
from typing import Any

from hack.node.images import HOST_IMAGE
from tests.e2e.kustomizing import PROJECT

IMAGE = HOST_IMAGE
COMMAND = (sys.executable,)

FOLDERS = {
    Path("/usr"): "machine",
    Path(sys.base_prefix): "python",
    PROJECT: "project",
    Path(sys.prefix): "environment",
}
"""Folders with the names of their volumes. Each is mounted once, and the system's own Python is in /usr itself."""

_SIZE = {"storage": "1Gi"}
"""Required, but without effect."""


def check() -> None:
    """Checks that pods can read the environment.

    Raises:
        AssertionError: pods, which run as another user, could not read it.
    """
    for folder in FOLDERS:
        assert folder.stat().st_mode & 0o005 == 0o005, f"engines can't read {folder}: chmod -R o+rX {folder}"


def mounts() -> list[dict[str, Any]]:
    return [{"name": name, "mountPath": str(folder), "readOnly": True} for folder, name in FOLDERS.items()]


def volumes() -> list[dict[str, Any]]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": True}} for name in FOLDERS.values()]


def objects(namespace: str) -> list[dict[str, Any]]:
    """The volumes of the cluster, and the namespace's claims of them."""
    return [each for folder, name in FOLDERS.items() for each in _claimed(namespace, name, folder)]


def persistent_volumes(namespace: str) -> list[str]:
    """The names of the volumes in the cluster."""
    return [f"{namespace}-{name}" for name in FOLDERS.values()]


def _claimed(namespace: str, name: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}"},
        "spec": {
            "capacity": _SIZE,
            "accessModes": ["ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": name},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeName": f"{namespace}-{name}",
            "resources": {"requests": _SIZE},
        },
    }
    return volume, claim
