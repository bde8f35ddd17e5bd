"""A KV-cache manager's access in a cluster, from manifests and kubelet: permissions, credentials, and its clients."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hack.controlplane import Cluster

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
RIGHTS: Final = tuple(MANIFESTS / "manager" / name for name in ("rbac.yaml", "guard.yaml"))
"""The manifests of the manager's service account, and of the operator's permissions at the manager."""
SYSTEM: Final = "tenantzone-system"
"""The namespace of both."""
AUDIENCE: Final = "tenantzone-manager"


def token_of(cluster: Cluster, namespace: str, account: str, *options: str) -> str:
    """A new token of a service account; it is good for an hour unless kubectl's options say otherwise."""
    return cluster.kubectl("create", "token", account, "--namespace", namespace, *options).stdout.strip()


class ManagerAccess:
    """A manager whose clients are reviewed by the API server, and an operator that administers it.

    Args:
        cluster: with ``RIGHTS``, and the operator's service account.
        folder: for the manager's credentials, the file of accounts, and the operator's token.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._folder = folder
        credentials = folder / "api-server"
        credentials.mkdir(parents=True)
        view = ("config", "view", "--raw", "--minify", "--output")
        data = cluster.kubectl(*view, "jsonpath={.clusters[0].cluster.certificate-authority-data}").stdout
        file = cluster.kubectl(*view, "jsonpath={.clusters[0].cluster.certificate-authority}").stdout
        (credentials / "ca.crt").write_bytes(base64.b64decode(data) if data else Path(file).read_bytes())
        (credentials / "token").write_text(token_of(cluster, SYSTEM, "tenantzone-manager"))
        self._accounts: dict[str, Any] = {f"{SYSTEM}/tenantzone-operator": {"admin": True}}
        self.admit({})
        self.token_file = folder / "token"
        """The operator's token."""
        self.token_file.write_text(token_of(cluster, SYSTEM, "tenantzone-operator", f"--audience={AUDIENCE}"))
        self.flags = [
            *("--service-accounts", str(folder / "accounts.json")),
            *("--api-server", cluster.server, "--api-server-credentials", str(credentials)),
        ]
        """The manager's flags."""

    def admit(self, accounts: Mapping[str, Any]) -> None:
        """Makes managers that start from now on know the service accounts, too."""
        self._accounts |= accounts
        (self._folder / "accounts.json").write_text(json.dumps(self._accounts))
