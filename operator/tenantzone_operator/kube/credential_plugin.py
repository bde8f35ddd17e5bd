"""Credential plugins as kubectl runs them: programs that a kubeconfig names (``client.authentication.k8s.io``)."""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Section = Mapping[str, Any]

_SECONDS = 60.0
_OWN_CONFIG = "client.authentication.k8s.io/exec"
"""The extension of a cluster that is meant for plugins."""
_FIELDS = {
    "token": "token",
    "clientCertificateData": "client-certificate-data",
    "clientKeyData": "client-key-data",
}
"""Of what a plugin gives, as a user's section names it."""


def ask_plugin(plugin: Section, cluster: Section) -> dict[str, Any]:
    """What a plugin says, as the fields of a user's section.

    Args:
        plugin: a user's section ``exec``.
        cluster: for which credentials are needed; the plugin is told of it if it wants to be.

    Raises:
        ValueError: it gives nothing by which a server would know the user.
        OSError: it can't be run.
    """
    version = plugin["apiVersion"]
    about = {"cluster": _about(cluster)} if plugin.get("provideClusterInfo") else {}
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False, **about}}
    variables = {entry["name"]: entry["value"] for entry in plugin.get("env") or []}
    try:
        done = subprocess.run(
            [plugin["command"], *(plugin.get("args") or [])],
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(str(error)) from None
    if done.returncode != 0:
        raise ValueError(f"{plugin['command']} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    status = json.loads(done.stdout)["status"]
    given = {_FIELDS[key]: value for key, value in status.items() if key in _FIELDS and value}
    if not ("token" in given or {"client-certificate-data", "client-key-data"} <= given.keys()):
        raise ValueError(f"{plugin['command']} gave neither a token nor a certificate with its key")
    return given


def _about(cluster: Section) -> dict[str, Any]:
    """A cluster as plugins are told of it: complete in itself, where a kubeconfig may name a file."""
    same = ("server", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url", "disable-compression")
    about = {key: cluster[key] for key in same if cluster.get(key)}
    if "certificate-authority-data" not in about and cluster.get("certificate-authority"):
        authority = Path(cluster["certificate-authority"]).read_bytes()
        about["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or []:
        if extension["name"] == _OWN_CONFIG:
            about["config"] = extension["extension"]
    return about
