"""Reads a kubeconfig with the official Kubernetes client, for an operator that runs outside a pod.

The official client sends a request without credentials if it finds none that it can use, and reads some settings
differently from kubectl. This module refuses such kubeconfigs. Only this module imports the client, and the operator
imports this module only if a kubeconfig is named (docs/decisions/0009-the-official-client-reads-kubeconfigs.md).
"""

import base64
import os
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import kopf
import yaml
from kubernetes.client import Configuration
from kubernetes.client.rest import should_bypass_proxies
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from tenantzone_operator.kube.service_account import CredentialsError, checked_token

Section = dict[str, Any]

_IMPERSONATION = "the operator does not impersonate; give it a user of its own"
_UNSUPPORTED = {
    "auth-provider": "use exec or a token",
    "tls-server-name": "use the server name for which its certificate is valid",
    **dict.fromkeys(("as", "as-groups", "as-uid", "as-user-extra"), _IMPERSONATION),
}
"""Fields of a cluster or user that would change the connection, and what to use instead."""
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def from_kubeconfig(paths: str) -> kopf.ConnectionInfo:
    """Read the cluster and the user of a kubeconfig's current context.

    Args:
        paths: one file, or several as in the variable KUBECONFIG. The first file that defines a name wins. Missing
            files are skipped if another file exists, as in kubectl.

    Raises:
        CredentialsError: no file exists, a file can't be read, or its content can't be used.
    """
    try:
        return _read(paths)
    except yaml.MarkedYAMLError as error:
        # The whole message shows the line, and quotes parts of it, which may contain a token.
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        complaint = f"invalid YAML{line}: {(error.problem or '').partition(chr(39))[0].strip()}"
    except (UnicodeDecodeError, yaml.YAMLError):
        complaint = "not YAML text"
    except RecursionError:
        complaint = "nested too deeply"
    except (ConfigException, OSError, ValueError) as error:
        complaint = str(error)
    except (AttributeError, KeyError, TypeError) as error:
        complaint = f"not a valid kubeconfig ({error})"
    raise CredentialsError(f"kubeconfig {paths}: {complaint}")


def _read(paths: str) -> kopf.ConnectionInfo:
    cluster, user = _sections(KubeConfigMerger(os.pathsep.join(_existing(paths))))
    _check_cluster(cluster)
    _check_user(user)
    # The official client shows the names of these nodes in errors. With its own names, it shows whole sections.
    named = {"context": {"cluster": "cluster", "user": "user"}, "cluster": cluster, "user": user}
    nodes = {f"{kind}s": [ConfigNode(kind, {"name": kind, kind: section})] for kind, section in named.items()}
    configuration = Configuration()
    # The official client writes certificates and keys to files, which would stay if the operator is killed.
    with tempfile.TemporaryDirectory() as folder:
        loader = KubeConfigLoader(
            ConfigNode("kubeconfig", nodes), active_context="context", config_base_path="", temp_file_path=folder
        )
        loader.load_and_set(configuration)
        return _connection(configuration, cluster, user)


def _existing(paths: str) -> list[str]:
    """Returns the paths of the files that exist.

    Raises:
        OSError: there is no such file, or one can't be looked at, for example because of its folder's permissions.
    """
    found, missing = [], None
    for path in (Path(path).expanduser() for path in paths.split(os.pathsep) if path):
        try:
            path.stat()
        except FileNotFoundError as error:
            missing = missing or error
        else:
            found.append(str(path))
    if not found:
        raise missing or FileNotFoundError("no file is named")
    return found


def _sections(merged: KubeConfigMerger) -> tuple[Section, Section]:
    """Returns the sections of the current context's cluster and user."""
    # The official client uses the last file that names a context, kubectl the first one.
    chosen = (merged.config_files[path].get("current-context") for path in merged.paths)
    name = next(filter(None, chosen), None)
    if name is None:
        raise ValueError("no context is chosen; run kubectl config use-context NAME")
    context = merged.config["contexts"].get_with_name(name).value["context"]
    if not context.get("user"):
        raise ValueError(f"context {name} names no user; add one, which may be empty for anonymous requests")
    # The official client sends anonymous requests if it does not find the user.
    return _section(merged, "cluster", context["cluster"]), _section(merged, "user", context["user"])


def _section(merged: KubeConfigMerger, kind: str, name: str) -> Section:
    """Returns a section without empty fields, and with absolute paths.

    The official client prefers an empty ``client-key-data`` to a ``client-key``, and looks for a user's files next to
    the file that defines the cluster. kubectl looks for them next to the file that defines the user.
    """
    node = merged.config[f"{kind}s"].get_with_name(name)
    given = node.value.get(kind)
    if given is None:
        raise ValueError(f"{kind} {name} is empty")
    section = {field: value for field, value in given.items() if value not in (None, "")}
    folder = Path(node.path).absolute().parent
    for field in _FILES:
        if field in section:
            section[field] = str(folder / section[field])
    plugin = section.get("exec")
    if isinstance(plugin, dict) and os.sep in plugin["command"]:
        section["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    return section


def _check_cluster(cluster: Section) -> None:
    _refuse_unsupported(cluster)
    url = _split(cluster["server"])
    if url is None or url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
        # The message does not show the URL, which may contain a password.
        raise ValueError("server must be a URL that begins with https:// or http://, with a host and without a user")
    # The official client ignores certificates if the scheme is in capitals.
    cluster["server"] = url.geturl()
    insecure = cluster.get("insecure-skip-tls-verify")
    if insecure not in (None, True, False):
        # The official client skips the verification for any text, even for "false".
        raise ValueError("insecure-skip-tls-verify must be true or false, without quotes")
    if insecure and _has(cluster, "certificate-authority"):
        raise ValueError("certificate-authority and insecure-skip-tls-verify exclude each other; remove one of them")


def _split(url: str) -> SplitResult | None:
    """Returns the parts of a URL; None if it is invalid. An exception's message could show a password in the URL."""
    try:
        parts = urlsplit(url)
        return None if parts.port == 0 else parts
    except ValueError:
        return None


def _check_user(user: Section) -> None:
    """Refuse credentials that the official client would ignore in part, connecting anonymously or as another user."""
    _refuse_unsupported(user)
    if _has(user, "client-certificate") != _has(user, "client-key"):
        raise ValueError("client-certificate and client-key are only valid together; add the missing one")
    named: list[str] = [field for field in ("token", "tokenFile", "exec", "username") if field in user]
    if "exec" in named and _has(user, "client-certificate"):
        named.append("client-certificate")
    if len(named) > 1:
        raise ValueError(f"{' and '.join(named)} exclude each other; keep one of them")
    if bool(user.get("username")) != bool(user.get("password")):
        raise ValueError("username and password are only valid together; add the missing one")
    if (user.get("exec") or {}).get("interactiveMode") == "Always":
        raise ValueError("the exec plugin needs a terminal (interactiveMode: Always), which the operator does not have")


def _refuse_unsupported(section: Section) -> None:
    for field, instead in _UNSUPPORTED.items():
        if field in section:
            raise ValueError(f"{field} is not supported; {instead}")


def _connection(configuration: Configuration, cluster: Section, user: Section) -> kopf.ConnectionInfo:
    scheme, _, token = (configuration.api_key.get("BearerToken") or "").partition(" ")
    if "exec" in user and token == "None":
        token = ""  # The official client turns a null token into text.
    if "tokenFile" in user or token:
        token = checked_token(user.get("tokenFile", "token"), token)
    if user and not token and not (configuration.cert_file and configuration.key_file):
        if "exec" in user:
            raise ValueError(
                f"the exec plugin {user['exec']['command']} returned neither a token nor a certificate with its key; "
                "the line before this one in the log has its error"
            )
        raise ValueError(
            f"the user has no credentials for {cluster['server']}, although it has {', '.join(map(str, user))}; add a "
            "token or, with https://, a certificate and key, or remove all fields for anonymous requests"
        )
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_data=_data("certificate-authority", configuration.ssl_ca_cert),
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_data=_data("client-certificate", configuration.cert_file),
        private_key_data=_data("client-key", configuration.key_file),
        proxy_url=_proxy(configuration, is_named="proxy-url" in cluster),
    )


def _data(field: str, path: str | None) -> str | None:
    """Returns the content of a file in base64; None if no file is named."""
    if not path:
        return None
    content = Path(path).read_bytes()
    if not content:
        # Without an authority, any public authority could vouch for the server.
        raise ValueError(f"{field} is not in PEM")
    return base64.b64encode(content).decode()


def _has(section: Section, field: str) -> bool:
    return bool(section.get(field) or section.get(f"{field}-data"))


def _proxy(configuration: Configuration, *, is_named: bool) -> str | None:
    """Returns the proxy that the kubeconfig names, or else the environment's, as kubectl does."""
    url: str | None = configuration.proxy
    if not url or (not is_named and _is_direct(configuration)):
        return None
    parts = _split(url if "://" in url else f"http://{url}")
    if parts is None or not parts.hostname:
        # The message does not show the URL, which may contain a password.
        raise ValueError("the URL of the proxy has no host, or an invalid port")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"the proxy must be an HTTP or HTTPS proxy, not {parts.scheme}")
    return parts.geturl()


def _is_direct(configuration: Configuration) -> bool:
    """Returns whether the environment's proxy does not apply to the server, as to loopback addresses in kubectl."""
    host = urlsplit(configuration.host).hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return is_loopback or bool(should_bypass_proxies(configuration.host, configuration.no_proxy or ""))
