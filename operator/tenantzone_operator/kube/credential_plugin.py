"""Runs credential plugins as kubectl does: programs that a kubeconfig names (``client.authentication.k8s.io``)."""

import base64
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Section = Mapping[str, Any]

_SECONDS = 60.0
_OWN_CONFIG = "client.authentication.k8s.io/exec"
"""The name of the cluster's extension that is passed to plugins."""
_FIELDS = {
    "token": "token",
    "clientCertificateData": "client-certificate-data",
    "clientKeyData": "client-key-data",
}
"""The fields of a plugin's answer, with their names in a user's section."""


def ask_plugin(plugin: Section, cluster: Section) -> dict[str, Any]:
    """Run a plugin, and return its answer as the fields of a user's section.

    Args:
        plugin: the user's section ``exec``.
        cluster: the cluster that needs credentials; passed to the plugin if it asks for cluster info.

    Raises:
        ValueError: the plugin can't be run, takes too long, or returns no credentials.
        OSError: the cluster's certificate can't be read.
    """
    if plugin.get("interactiveMode") == "Always":
        raise ValueError(f"{plugin['command']} asks on a terminal (interactiveMode), which an operator does not have")
    version = plugin["apiVersion"]
    about = {"cluster": _about(cluster)} if plugin.get("provideClusterInfo") else {}
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False, **about}}
    variables = {entry["name"]: entry["value"] for entry in plugin.get("env") or []}
    try:
        code, output, complaint = _run(
            [plugin["command"], *(plugin.get("args") or [])],
            {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(request)},
        )
    except subprocess.TimeoutExpired:
        # The error itself contains the arguments, which may be secret.
        raise ValueError(f"{plugin['command']} timed out after {_SECONDS:g} s") from None
    except OSError as error:
        hint = f"; {plugin['installHint']}" if plugin.get("installHint") else ""
        raise ValueError(f"{plugin['command']} can't be run: {error.strerror}{hint}") from None
    if code != 0:
        raise ValueError(f"{plugin['command']} ended with {code}: {complaint.strip()[-500:]}")
    try:
        status = json.loads(output)["status"]
        given = {_FIELDS[key]: value for key, value in status.items() if key in _FIELDS and value}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError(f"{plugin['command']} printed something else than an ExecCredential with a status") from None
    if not ("token" in given or {"client-certificate-data", "client-key-data"} <= given.keys()):
        raise ValueError(f"{plugin['command']} gave neither a token nor a certificate with its key")
    return given


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a program without a terminal; returns its exit code, output and errors.

    A timeout kills it and its children.
    """
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, complaint = process.communicate(timeout=_SECONDS)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output, complaint


def _about(cluster: Section) -> dict[str, Any]:
    """Returns a cluster's section for plugins, with the content of the certificate file that a kubeconfig may name."""
    same = ("server", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url", "disable-compression")
    about = {key: cluster[key] for key in same if cluster.get(key)}
    if "certificate-authority-data" not in about and cluster.get("certificate-authority"):
        authority = Path(cluster["certificate-authority"]).read_bytes()
        about["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or []:
        if extension["name"] == _OWN_CONFIG:
            about["config"] = extension["extension"]
    return about
