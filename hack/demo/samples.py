"""The parts of the sample manifests that the demo uses, and the engine's pod that joins their pool."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hack.demo.paths import REPOSITORY
from tenantzone_contract.keys.admin_token import admin_secret_name
from tenantzone_contract.keys.salt import salt_secret_name
from tenantzone_contract.reports.report import DEFAULT_ADMIN_PORT

SAMPLES = Path("manifests") / "samples"
"""The path from the repository's root, as a reader would type it."""

POD = "engine-0"
CONFIG_VOLUME = "zones"
SALT_VOLUME = "salt"
ADMIN_VOLUME = "admin"

_NO_SCHEDULER = "none-this-engine-is-a-local-process"
"""Name of a scheduler that does not exist, so that a real cluster never runs the pod on a node."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples' pool and tenants."""

    pool: str
    labels: dict[str, str]
    """Labels with which an engine pod belongs to the pool."""
    admin_port: int
    tenants: tuple[str, ...]


def read_samples(folder: Path = REPOSITORY / SAMPLES) -> Samples:
    """Read the pool and the tenants from the sample manifests.

    Raises:
        ValueError: there is not exactly one pool.
    """
    documents = [
        document
        for file in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
        if document
    ]
    pools = [document for document in documents if document["kind"] == "ZonePool"]
    if len(pools) != 1:
        raise ValueError(f"{folder} has {len(pools)} ZonePools; the demo has engines for exactly one")
    (pool,) = pools
    zones = [document for document in documents if document["kind"] == "TenantZone"]
    return Samples(
        pool=pool["metadata"]["name"],
        labels=pool["spec"]["selector"]["matchLabels"],
        admin_port=pool["spec"].get("adminPort", DEFAULT_ADMIN_PORT),
        tenants=tuple(zone["spec"].get("tenant", zone["metadata"]["name"]) for zone in zones),
    )


def engine_pod(name: str, pool: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Returns a pod for the control plane that stands for an engine, which is a local process."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "schedulerName": _NO_SCHEDULER,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "engine",
                    "image": "tenantzone-engine",
                    "command": ["tenantzone-runtime", "serve"],
                    "volumeMounts": [
                        # Mount the folder and not a subPath, because kubelet does not update subPath mounts.
                        {"name": CONFIG_VOLUME, "mountPath": "/etc/tenantzone/config", "readOnly": True},
                        {"name": SALT_VOLUME, "mountPath": "/etc/tenantzone/salt", "readOnly": True},
                        {"name": ADMIN_VOLUME, "mountPath": "/etc/tenantzone/admin", "readOnly": True},
                    ],
                }
            ],
            "volumes": [
                {"name": CONFIG_VOLUME, "configMap": {"name": f"tenantzone-{pool}", "optional": True}},
                {"name": SALT_VOLUME, "secret": {"secretName": salt_secret_name(pool), "optional": True}},
                {"name": ADMIN_VOLUME, "secret": {"secretName": admin_secret_name(pool), "optional": True}},
            ],
        },
    }
