"""Reads a kubeconfig with the official Kubernetes client, for an operator that runs outside a pod.

The official client sends requests without credentials if it finds no usable ones, and reads some settings differently
from kubectl. This module refuses or adapts such kubeconfigs. Only this module imports the client, and the
operator imports this module only if a kubeconfig is named
(docs/decisions/0009-the-official-client-reads-kubeconfigs.md).
"""

import base64
import os
import re
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
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from tenantzone_operator.kube.credentials.service_account import CredentialsError, checked_token

Section = dict[str, Any]

_IMPERSONATION = "the operator does not impersonate; give it a user of its own"
_UNSUPPORTED = {
    "auth-provider": "use exec or a token",
    "tls-server-name": "use the server name for which its certificate is valid",
    **dict.fromkeys(("as", "as-groups", "as-uid", "as-user-extra"), _IMPERSONATION),
}
"""Unsupported fields of a cluster or user, with what to use instead."""
_QUOTES = "['\"]"
_LONGEST = 500
"""A message shows at most this number of characters of a plugin's error."""
_PEM = ("certificate-authority", "client-certificate", "client-key")
_DATA = tuple(f"{field}-data" for field in _PEM)
_FILES = (*_PEM, "tokenFile")
"""Fields that contain a path."""
_TEXTS = (*_FILES, *_DATA, "server", "proxy-url", "token", "username", "password")
"""Fields that must be text. YAML reads an unquoted 0123 as the number 83, and the official client would send 83."""


def from_kubeconfig(paths: str) -> kopf.ConnectionInfo:
    """Read the cluster and the user of a kubeconfig's current context.

    Args:
        paths: one file, or several as in the variable KUBECONFIG. The first file that defines a name wins. Missing
            files are skipped if another file exists, as in kubectl.

    Raises:
        CredentialsError: none of the files exists, a file can't be read, or the content of a file can't be used.
    """
    try:
        return _read(paths)
    except (ConfigException, OSError, ValueError) as error:
        complaint = str(error)
    except (AttributeError, KeyError, TypeError) as error:
        complaint = f"not a valid kubeconfig ({error})"
    raise CredentialsError(f"kubeconfig {paths}: {complaint}")


def _read(paths: str) -> kopf.ConnectionInfo:
    merged = KubeConfigMerger("")
    for path in _existing(paths):
        _add(merged, path)
    cluster, user = _sections(merged)
    _check_cluster(cluster)
    _check_user(user)
    if "exec" in user:
        user = _answer(user["exec"], cluster)
    # Name the nodes, because the official client shows their names in errors. Default names are whole sections.
    named = {"context": {"cluster": "cluster", "user": "user"}, "cluster": cluster, "user": user}
    nodes = {f"{kind}s": [ConfigNode(kind, {"name": kind, kind: section})] for kind, section in named.items()}
    configuration = Configuration()
    # The official client writes certificates and keys to files. Read them back at once, and delete the files.
    with tempfile.TemporaryDirectory() as folder:
        loader = KubeConfigLoader(
            ConfigNode("kubeconfig", nodes), active_context="context", config_base_path="", temp_file_path=folder
        )
        try:
            loader.load_and_set(configuration)
        except UnicodeDecodeError:
            raise ValueError(f"{user.get('tokenFile')} contains no token") from None
        return _connection(configuration, cluster, user)


def _add(merged: KubeConfigMerger, path: str) -> None:
    """Merge a kubeconfig file into the files that were read before. An empty file changes nothing.

    Raises:
        OSError: the file can't be read.
        ValueError: the file is not a valid kubeconfig. The message quotes nothing from the file, which may be a token.
    """
    try:
        merged.load_config(path)
        # Replace the names, because the official client shows them in errors. The name that it gives an entry contains
        # the whole entry, with its secrets.
        for kind in ("clusters", "users", "contexts"):
            for node in merged.config.value[kind]:
                node.name = f"{path}/{kind}"
        return
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        complaint = f"is invalid YAML{line}: {re.split(_QUOTES, error.problem or '')[0].strip()}"
    except (UnicodeDecodeError, yaml.YAMLError):
        complaint = "is not YAML text"
    except RecursionError:
        complaint = "is nested too deeply"
    except (AttributeError, ConfigException, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ConfigException) and str(error).endswith("file is empty"):
            return
        complaint = "is not a valid kubeconfig; check that each entry of clusters, users and contexts has a name"
    raise ValueError(f"{path} {complaint}")


def _existing(paths: str) -> list[str]:
    """Returns the paths of the files that exist.

    Raises:
        OSError: none of the files exists, or the permissions of a file's folder prevent the check.
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
        raise missing or FileNotFoundError("no path is given; set --kubeconfig or KUBECONFIG to a file")
    return found


def _sections(merged: KubeConfigMerger) -> tuple[Section, Section]:
    """Returns the sections of the current context's cluster and user."""
    # Use the first file that names a context, as kubectl does. The official client would use the last one.
    name = next(filter(None, (file.get("current-context") for file in merged.config_files.values())), None)
    if name is None:
        raise ValueError("no context is chosen; run kubectl config use-context NAME")
    context = _section(merged, "context", name)
    if "cluster" not in context:
        raise ValueError(f"context {name} names no cluster; add one")
    if "user" not in context:
        raise ValueError(f"context {name} names no user; add one, which may be empty for anonymous requests")
    # Look up the user, because the official client would send anonymous requests if the user does not exist.
    return _section(merged, "cluster", context["cluster"]), _section(merged, "user", context["user"])


def _section(merged: KubeConfigMerger, kind: str, name: str) -> Section:
    """Returns a section without empty fields, and with absolute paths.

    The official client prefers an empty ``client-key-data`` to a ``client-key``, and looks for a user's files next to
    the file that defines the cluster. kubectl looks for them next to the file that defines the user.
    """
    node = merged.config[f"{kind}s"].get_with_name(name)
    given = node.value.get(kind)
    section = {field: value for field, value in (given or {}).items() if value not in (None, "")}
    if not section and given != {}:
        hint = "; fill them in, or write {} for anonymous requests" if kind == "user" else ""
        raise ValueError(f"all fields of {kind} {name} are empty{hint}")
    for field in _TEXTS:
        if not isinstance(section.get(field, ""), str):
            raise ValueError(f"{field} of {kind} {name} must be text; put it in quotes")
    folder = Path(node.path).absolute().parent
    for field in _FILES:
        if field in section:
            section[field] = str(folder / section[field])
    for field in _DATA:
        if field in section and not _decoded(section[field]):
            raise ValueError(f"{field} of {kind} {name} is not in base64")
    plugin = section.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command")):
        section["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    if "tokenFile" in section:
        # Prefer the token file, as kubectl does. The official client would prefer the token.
        section.pop("token", None)
    for field in {"username", "password"} & section.keys():
        # The official client encodes this field in Latin-1. Compensate for that, because kubectl sends UTF-8.
        section[field] = section[field].encode().decode("latin-1")
    return section


def _decoded(data: str) -> bytes:
    """Returns the content of a field in base64; empty if it is invalid."""
    try:
        return base64.b64decode(data)
    except ValueError:
        return b""


def _check_cluster(cluster: Section) -> None:
    _refuse_unsupported(cluster)
    url = _split(cluster.get("server", ""))
    if url is None or url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
        # The message does not show the URL, which may contain a password.
        raise ValueError("server must be a URL that begins with https:// or http://, with a host and without a user")
    # Write the scheme in lower case, because the official client ignores certificates if the scheme is in capitals.
    cluster["server"] = url.geturl()
    insecure = cluster.get("insecure-skip-tls-verify")
    if insecure not in (None, True, False):
        # Refuse a text as the value, because with any text, even "false", the official client would verify nothing.
        raise ValueError("insecure-skip-tls-verify must be true or false, without quotes")
    if insecure and _has(cluster, "certificate-authority"):
        raise ValueError("certificate-authority and insecure-skip-tls-verify exclude each other; remove one of them")


def _split(url: str) -> SplitResult | None:
    """Returns the parts of a URL; None if it is invalid. Raises nothing, because a message could show a password."""
    try:
        parts = urlsplit(url)
        return None if parts.port == 0 else parts
    except ValueError:
        return None


def _check_user(user: Section) -> None:
    """Refuse credentials that the official client uses only in part, because it would connect as another or no user."""
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
    if "exec" not in user:
        return
    plugin = user["exec"]
    if not (isinstance(plugin, dict) and plugin.get("command") and plugin.get("apiVersion")):
        raise ValueError("exec must have the fields command and apiVersion; add the missing one")
    if plugin.get("interactiveMode") == "Always":
        raise ValueError("the exec plugin needs a terminal (interactiveMode: Always), which the operator does not have")


def _refuse_unsupported(section: Section) -> None:
    for field, instead in _UNSUPPORTED.items():
        if field in section:
            raise ValueError(f"{field} is not supported; {instead}")


def _answer(plugin: Section, cluster: Section) -> Section:
    """Run an exec plugin, and return its credentials in the form of a kubeconfig user.

    The official client would log a plugin's error and then send an anonymous request. If a plugin returned a token and
    a certificate, the official client would ignore the certificate.

    Raises:
        OSError: the file with the cluster's certificate authority can't be read.
        ValueError: the plugin fails, or returns no credentials.
    """
    about = dict(cluster)
    if path := about.pop("certificate-authority", None):
        # Pass the file's content to the plugin, as kubectl does.
        about.setdefault("certificate-authority-data", base64.b64encode(Path(path).read_bytes()).decode())
    try:
        status = ExecProvider(ConfigNode("exec", plugin), None, ConfigNode("cluster", about)).run()
    except (ConfigException, OSError, TypeError, ValueError) as error:
        hint = f"; {plugin['installHint']}" if isinstance(error, FileNotFoundError) and "installHint" in plugin else ""
        raise ValueError(f"the exec plugin {plugin['command']} failed: {str(error)[-_LONGEST:]}{hint}") from None
    texts = {key: text for key, text in status.items() if isinstance(text, str)} if isinstance(status, dict) else {}
    token, certificate, key = map(texts.get, ("token", "clientCertificateData", "clientKeyData"))
    user = {"token": token} if token else {}
    if certificate and key:
        pairs = (("client-certificate-data", certificate), ("client-key-data", key))
        user |= {field: base64.b64encode(text.encode()).decode() for field, text in pairs}
    if not user:
        raise ValueError(f"the exec plugin {plugin['command']} returned neither a token nor a certificate with its key")
    return user


def _connection(configuration: Configuration, cluster: Section, user: Section) -> kopf.ConnectionInfo:
    scheme, _, token = (configuration.api_key.get("BearerToken") or "").partition(" ")
    if "tokenFile" in user or token:
        token = checked_token(user.get("tokenFile", "token"), token)
    if user and not token and not (configuration.cert_file and configuration.key_file):
        raise ValueError(
            f"the user's fields ({', '.join(map(str, user))}) are no credentials for {cluster['server']}; add a token "
            "or, with https://, a certificate and key. To send anonymous requests, remove these fields"
        )
    ca_path, ca_data = _path_or_data(cluster, "certificate-authority", configuration.ssl_ca_cert)
    certificate_path, certificate_data = _path_or_data(user, "client-certificate", configuration.cert_file)
    private_key_path, private_key_data = _path_or_data(user, "client-key", configuration.key_file)
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=ca_path,
        ca_data=ca_data,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=certificate_path,
        certificate_data=certificate_data,
        private_key_path=private_key_path,
        private_key_data=private_key_data,
        proxy_url=_proxy(cluster, configuration.no_proxy),
    )


def _path_or_data(section: Section, field: str, path: str | None) -> tuple[str | None, str | None]:
    """Returns the path of a file that the kubeconfig names, or the data that the official client wrote to a file.

    The path of a named file is passed on, not the file's content, because kopf would write the content to another
    file, and would refuse files with comments that are not in ASCII.
    """
    if not path or f"{field}-data" not in section:
        return path, None
    return None, base64.b64encode(Path(path).read_bytes()).decode()


def _has(section: Section, field: str) -> bool:
    return bool(section.get(field) or section.get(f"{field}-data"))


def _proxy(cluster: Section, no_proxy: str | None) -> str | None:
    """Returns the proxy of the kubeconfig, or else of the environment variables, as kubectl does; None for no proxy."""
    url = cluster.get("proxy-url") or _proxy_of_environment(cluster["server"], no_proxy)
    if not url:
        return None
    parts = _split(url if "://" in url else f"http://{url}")
    if parts is None or not parts.hostname:
        # The message does not show the URL, which may contain a password.
        raise ValueError("the URL of the proxy has no host, or an invalid port; correct proxy-url or HTTPS_PROXY")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"the proxy must be an HTTP or HTTPS proxy, not {parts.scheme}")
    return parts.geturl()


def _proxy_of_environment(server: str, no_proxy: str | None) -> str | None:
    """Returns the proxy for a server from the environment variables; None for loopback addresses, as in kubectl.

    Unlike the official client, kubectl does not use ALL_PROXY.
    """
    parts = urlsplit(server)
    host = parts.hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    # The official client does not support the star in *.example.com.
    if is_loopback or should_bypass_proxies(server, (no_proxy or "").replace("*.", ".")):
        return None
    variable = f"{parts.scheme}_proxy"
    return os.environ.get(variable.upper()) or os.environ.get(variable)
