"""Reads credentials from a kubeconfig as kubectl does, and from a pod's service account.

docs/decisions/0006-own-requests-to-kubernetes.md explains why no client library does this.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kopf
import yaml

from tenantzone_operator.kube.credential_plugin import Section, ask_plugin
from tenantzone_operator.kube.proxy import proxy_of_the_environment

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UNSUPPORTED = {
    "auth-provider": "kubectl does not know it any more, either; use exec or a token",
    "tls-server-name": "name the server as its certificate does",
    "as": "the operator acts as itself; give it a user of its own",
}
"""Fields of a cluster or user that can't be ignored without connecting differently, and what to do instead."""


class CredentialsError(Exception):
    """No cluster is named, or the credentials for it can't be used."""


def from_kubeconfig(paths: str) -> kopf.ConnectionInfo:
    """Read the cluster and the user of a kubeconfig's current context.

    Args:
        paths: one file, or several as in the variable KUBECONFIG; the first file that defines a name wins. Missing
            files are skipped if another exists, as in kubectl.

    Raises:
        CredentialsError: no file exists, one can't be read, or the content can't be used.
    """
    try:
        named = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
        # If no file exists, reading the first one raises the error.
        config = _merged([path for path in named if path.exists()] or named[:1])
        if "current-context" not in config:
            raise ValueError("no context is chosen; kubectl config use-context NAME does")
        context = _section(config, "contexts", config["current-context"])
        cluster = _section(config, "clusters", context["cluster"])
        return _connection(cluster, _section(config, "users", context["user"]))
    except (OSError, ValueError) as error:
        raise CredentialsError(f"kubeconfig {paths}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise CredentialsError(f"kubeconfig {paths}: nothing usable under {error}") from None


def from_service_account(folder: Path = _SERVICE_ACCOUNT) -> kopf.ConnectionInfo:
    """Read the cluster and the service account of the pod that this process runs in.

    The token is replaced after some time: call this again when it is refused.

    Raises:
        CredentialsError: this process does not run in a pod, or has no token at the moment.
    """
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        token = _token_in(folder / "token")
    except (KeyError, OSError) as error:
        raise CredentialsError(f"not in a pod ({error}); name a cluster with --kubeconfig or KUBECONFIG") from None
    except ValueError as error:
        raise CredentialsError(str(error)) from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return kopf.ConnectionInfo(server=server, ca_path=str(folder / "ca.crt"), token=token)


def _merged(paths: Sequence[Path]) -> dict[str, Any]:
    """Merge all kubeconfig files into one, with their lists of named sections as dicts."""
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}}
    for path in paths:
        content = _read(path)
        if content.get("current-context"):
            merged.setdefault("current-context", content["current-context"])
        for kind in ("clusters", "users", "contexts"):
            for item in content.get(kind) or []:
                section = item.get(kind[:-1]) or {}
                merged[kind].setdefault(item["name"], _located(section, path.absolute().parent))
    return merged


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except yaml.MarkedYAMLError as error:
        # The whole error contains the line, which may contain a token.
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise ValueError(f"{path}{line}: {error.problem}") from None
    except (UnicodeDecodeError, yaml.YAMLError):
        raise ValueError(f"{path} is not text in YAML") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no kubeconfig")
    return content


def _section(config: dict[str, Any], kind: str, name: str) -> Section:
    section: Section | None = config[kind].get(name)
    if section is None:
        raise ValueError(f"nothing is named {name} in {kind}")
    return section


def _located(section: Section, folder: Path) -> dict[str, Any]:
    """Returns a section with full paths: a kubeconfig's paths are relative to its own folder."""
    files = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
    located = {key: str(folder / value) if key in files and value else value for key, value in section.items()}
    plugin = section.get("exec")
    if plugin and os.sep in plugin["command"]:
        located["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    return located


def _connection(cluster: Section, user: Section) -> kopf.ConnectionInfo:
    for field, instead in _UNSUPPORTED.items():
        if cluster.get(field) or user.get(field):
            raise ValueError(f"{field} is not supported; {instead}")
    _check_server(cluster)
    if "exec" in user:
        user = {**user, **ask_plugin(user["exec"], cluster)}
    if _has(user, "client-certificate") and not _has(user, "client-key"):
        raise ValueError("a client certificate without its key")
    token = _token_in(Path(user["tokenFile"])) if user.get("tokenFile") else _checked_token("token", user.get("token"))
    return kopf.ConnectionInfo(
        server=cluster["server"],
        ca_path=_unless(cluster, "certificate-authority-data", "certificate-authority"),
        ca_data=cluster.get("certificate-authority-data"),
        insecure=cluster.get("insecure-skip-tls-verify"),
        proxy_url=_proxy(cluster),
        username=user.get("username"),
        password=user.get("password"),
        token=token or None,
        certificate_path=_unless(user, "client-certificate-data", "client-certificate"),
        certificate_data=user.get("client-certificate-data"),
        private_key_path=_unless(user, "client-key-data", "client-key"),
        private_key_data=user.get("client-key-data"),
    )


def _check_server(cluster: Section) -> None:
    url = urlsplit(cluster["server"])
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("server is not a URL that begins with https:// or http://")
    insecure = cluster.get("insecure-skip-tls-verify")
    if insecure not in (None, True, False):
        # In quotes, even "false" would count as true.
        raise ValueError("insecure-skip-tls-verify is true or false, without quotes")
    if insecure and _has(cluster, "certificate-authority"):
        raise ValueError("certificate-authority and insecure-skip-tls-verify exclude each other; remove one of them")


def _token_in(path: Path) -> str:
    """Returns the token in a file; the file may be empty for a moment while a new token is written."""
    try:
        token = _checked_token(str(path), path.read_text().strip())
    except UnicodeDecodeError:
        token = None
    if not token:
        # Without a token the requests would be anonymous, and the API server might allow them less.
        raise ValueError(f"{path} holds no token")
    return token


def _checked_token(where: str, token: object) -> str | None:
    if not token:
        return None
    if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
        raise ValueError(f"{where} is not a token: it is no text, has several lines, or signs that no header has")
    return token


def _has(section: Section, field: str) -> bool:
    return bool(section.get(field) or section.get(f"{field}-data"))


def _unless(section: Section, data: str, file: str) -> str | None:
    """Returns the file that a section names, or None if the section holds the data itself, which takes precedence."""
    return None if section.get(data) else section.get(file)


def _proxy(cluster: Section) -> str | None:
    """Returns the cluster's proxy, else the environment's."""
    url: str | None = cluster.get("proxy-url") or proxy_of_the_environment(cluster["server"])
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"a proxy of http or https is supported, not of {parts.scheme or 'a URL without either'}")
    if not parts.hostname or not _has_port(url):
        # The invalid part may contain a password.
        raise ValueError("the URL of the proxy has no host, or an invalid port")
    return url


def _has_port(url: str) -> bool:
    """Returns whether a URL's port is valid or absent."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False
