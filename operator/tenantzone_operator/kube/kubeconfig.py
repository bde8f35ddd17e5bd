"""Reads a kubeconfig with the official Kubernetes client, for an operator that runs outside a pod.

The official client sends a request without credentials if it finds none that it can use, and reads some settings
differently from kubectl. This module refuses such kubeconfigs. Only this module imports the client, and the operator
imports this module only if a kubeconfig is named (docs/decisions/0009-the-official-client-reads-kubeconfigs.md).
"""

from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import kopf
import yaml
from kubernetes.client import Configuration
from kubernetes.client.rest import should_bypass_proxies
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from tenantzone_operator.kube.service_account import CredentialsError, checked_token

Section = dict[str, Any]

_UNSUPPORTED = {
    "auth-provider": "use exec or a token",
    "tls-server-name": "use the server name for which its certificate is valid",
    "as": "the operator does not impersonate; give it a user of its own",
}
"""Fields of a cluster or user that would change the connection, and what to use instead."""


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
        # The message of the error itself shows the line, which may contain a token.
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        complaint = f"invalid YAML{line}: {error.problem}"
    except (UnicodeDecodeError, yaml.YAMLError):
        complaint = "not YAML text"
    except (ConfigException, OSError, ValueError) as error:
        complaint = str(error)
    except (AttributeError, KeyError, TypeError) as error:
        complaint = f"not a valid kubeconfig ({error})"
    raise CredentialsError(f"kubeconfig {paths}: {complaint}")


def _read(paths: str) -> kopf.ConnectionInfo:
    merged = KubeConfigMerger(paths)
    if merged.config is None:
        raise FileNotFoundError("No such file or directory")
    cluster, user, context = _sections(merged)
    _check_cluster(cluster)
    _check_user(user)
    configuration = Configuration()
    loader = KubeConfigLoader(merged.config, active_context=context, config_base_path=None)
    loader.load_and_set(configuration)
    return _connection(configuration, cluster, user)


def _sections(merged: KubeConfigMerger) -> tuple[Section, Section, str]:
    """Returns the sections of the cluster and the user in the current context, and the context's name."""
    # The official client uses the last file that names a context, kubectl the first one.
    chosen = (merged.config_files[path].get("current-context") for path in merged.paths)
    name = next(filter(None, chosen), None)
    if name is None:
        raise ValueError("no context is chosen; run kubectl config use-context NAME")
    context = merged.config["contexts"].get_with_name(name)["context"]
    cluster = merged.config["clusters"].get_with_name(context["cluster"]).value["cluster"]
    # The official client sends anonymous requests if it does not find the user.
    user = merged.config["users"].get_with_name(context["user"]).value["user"]
    return cluster, user or {}, name


def _check_cluster(cluster: Section) -> None:
    _refuse_unsupported(cluster)
    url = urlsplit(cluster["server"])
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("server must be a URL that begins with https:// or http://")
    insecure = cluster.get("insecure-skip-tls-verify")
    if insecure not in (None, True, False):
        # The official client skips the verification for any text, even for "false".
        raise ValueError("insecure-skip-tls-verify must be true or false, without quotes")
    if insecure and _has(cluster, "certificate-authority"):
        raise ValueError("certificate-authority and insecure-skip-tls-verify exclude each other; remove one of them")


def _check_user(user: Section) -> None:
    """Refuse credentials that the official client would ignore in part, connecting anonymously or as another user."""
    _refuse_unsupported(user)
    if _has(user, "client-certificate") != _has(user, "client-key"):
        raise ValueError("client-certificate and client-key are only valid together; add the missing one")
    named = [field for field in ("token", "tokenFile", "exec", "username") if user.get(field)]
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
        if section.get(field):
            raise ValueError(f"{field} is not supported; {instead}")


def _connection(configuration: Configuration, cluster: Section, user: Section) -> kopf.ConnectionInfo:
    scheme, _, token = (configuration.api_key.get("BearerToken") or "").partition(" ")
    if user.get("exec") and token == "None":
        token = ""  # The official client turns a null token into text.
    if user.get("tokenFile") or token:
        token = checked_token(user.get("tokenFile") or "token", token)
    if user.get("exec") and not token and not (configuration.cert_file and configuration.key_file):
        raise ValueError(
            f"the exec plugin {user['exec']['command']} returned neither a token nor a certificate with its key; "
            "the line before this one in the log has its error"
        )
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=_proxy(configuration, is_named=bool(cluster.get("proxy-url"))),
    )


def _has(section: Section, field: str) -> bool:
    return bool(section.get(field) or section.get(f"{field}-data"))


def _proxy(configuration: Configuration, *, is_named: bool) -> str | None:
    """Returns the proxy that the kubeconfig names, or else the environment's, as kubectl does."""
    url: str | None = configuration.proxy
    if not url or (not is_named and _is_direct(configuration)):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"the proxy must be an HTTP or HTTPS proxy, not {parts.scheme}")
    try:
        is_valid = parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        # The message does not show the URL, which may contain a password.
        raise ValueError("the URL of the proxy has no host, or an invalid port")
    return parts.geturl()


def _is_direct(configuration: Configuration) -> bool:
    """Returns whether the environment's proxy does not apply to the server, as to loopback addresses in kubectl."""
    host = urlsplit(configuration.host).hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return is_loopback or bool(should_bypass_proxies(configuration.host, configuration.no_proxy or ""))
