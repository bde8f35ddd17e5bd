"""``python -m tenantzone_operator``: runs the operator."""

import argparse
import asyncio
import os
import resource
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tenantzone_contract.tls import TlsFiles
from tenantzone_operator.app import LeaseOptions, Options, run
from tenantzone_operator.cache_manager.client import ManagerAddress
from tenantzone_operator.kube.connection import Connection, CredentialsError
from tenantzone_operator.kube.durations import parse_duration
from tenantzone_operator.leader.leadership import LEASE_NAME, own_namespace
from tenantzone_operator.leader.lease import Timing
from tenantzone_operator.logs import configure_logging

_MANAGER_FILES: Final = {
    "token": "token that it is shown, read for each request",
    "ca": "CAs of its certificate, where the URL begins with https (default: those that the system trusts)",
    "client-cert": "certificate that it is shown (default: none)",
    "client-key": "key of that certificate",
}
"""What there is of the manager in files, as in ``--manager-token-file``."""


def main() -> None:
    """Run ``tenantzone-operator`` with the arguments of the command line."""
    parser = _parser()
    arguments = parser.parse_args()
    try:
        lease = _lease_options(arguments)
        manager = _manager(arguments)
    except ValueError as error:
        parser.error(str(error))
    configure_logging(arguments.log_format)
    _allow_connections()
    connection = Connection(arguments.kubeconfig or os.environ.get("KUBECONFIG"))
    probes = (arguments.probe_host, arguments.probe_port) if arguments.probe_port else None
    metrics = (arguments.metrics_host, arguments.metrics_port) if arguments.metrics_port else None
    options = Options(
        connection,
        arguments.namespace,
        probes,
        lease,
        arguments.leader_elect_namespace or own_namespace(),
        metrics,
        arguments.console_port,
        manager,
    )
    try:
        asyncio.run(run(options))
    except CredentialsError as error:
        sys.exit(f"tenantzone-operator: {error}")


def _allow_connections() -> None:
    """Allow this process as many connections as the system does: each pool's watch has one of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _manager(arguments: argparse.Namespace) -> ManagerAddress | None:
    """The KV-cache manager that the flags name; None if they name none.

    Raises:
        ValueError: the flags do not go together.
    """
    url = arguments.manager_url
    files = {
        f"--manager-{name}-file": getattr(arguments, f"manager_{name.replace('-', '_')}_file")
        for name in _MANAGER_FILES
    }
    given = [flag for flag, path in files.items() if path is not None]
    if url is None:
        if given:
            raise ValueError(f"{given[0]} needs --manager-url")
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"--manager-url must be like http://tenantzone-manager:9470, not {url}")
    token, authorities, certificate, key = files.values()
    tls = TlsFiles(certificate, key, authorities)
    if tls.paths and parts.scheme != "https":
        raise ValueError(f"{given[-1]} is for a --manager-url that begins with https://, not {url}")
    return ManagerAddress(url, token, tls)


def _lease_options(arguments: argparse.Namespace) -> LeaseOptions | None:
    """The options of the leader election as the flags give them; None if this process is to lead alone.

    Raises:
        ValueError: the durations do not go together.
    """
    if not arguments.leader_elect:
        return None
    if arguments.leader_elect_lease_duration != int(arguments.leader_elect_lease_duration):
        raise ValueError("--leader-elect-lease-duration must be in whole seconds")
    return LeaseOptions(
        namespace=arguments.leader_elect_namespace or own_namespace(),
        name=arguments.leader_elect_name,
        timing=Timing(
            lease_seconds=int(arguments.leader_elect_lease_duration),
            renew_deadline=arguments.leader_elect_renew_deadline,
            retry=arguments.leader_elect_retry_period,
        ),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tenantzone-operator", description="Reconciles TenantZones and ZonePools into the engines' runtime config."
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="default: the variable KUBECONFIG, else the pod's service account"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--namespace", metavar="NS", help="serve this namespace only")
    where.add_argument("--all-namespaces", action="store_true", help="serve all namespaces (the default)")
    parser.add_argument("--probe-port", type=int, metavar="N", help="serve /healthz and /readyz on this port")
    parser.add_argument(
        "--probe-host", default="0.0.0.0", metavar="ADDRESS", help="where they listen (default: %(default)s)"
    )
    parser.add_argument("--metrics-port", type=int, metavar="N", help="serve /metrics on this port")
    parser.add_argument(
        "--metrics-host", default="0.0.0.0", metavar="ADDRESS", help="where it listens (default: %(default)s)"
    )
    parser.add_argument(
        "--console-port",
        type=int,
        metavar="N",
        help="serve a page to look at on this port of the loopback address, which kubectl port-forward reaches",
    )
    manager = parser.add_argument_group("the KV-cache manager, if there is one")
    manager.add_argument(
        "--manager-url",
        metavar="URL",
        help="where it is; it is told of KVStorages and KVCacheGroups, which nobody looks at otherwise",
    )
    for name, text in _MANAGER_FILES.items():
        manager.add_argument(f"--manager-{name}-file", type=Path, metavar="FILE", help=text)
    _add_leader_election(parser)
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: %(default)s")
    return parser


def _add_leader_election(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several replicas, of which one leads")
    group.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write only while holding a Lease; without it this must be the only operator (default: %(default)s)",
    )
    group.add_argument(
        "--leader-elect-namespace",
        metavar="NS",
        help="where the Lease lies, and the key of admin tokens; default: the pod's own, or tenantzone-system",
    )
    group.add_argument("--leader-elect-name", metavar="NAME", default=LEASE_NAME, help="default: %(default)s")
    for flag, default, text in (
        ("lease-duration", "15s", "how long the others wait for a leader that they do not hear of"),
        ("renew-deadline", "10s", "how long a leader that can't renew goes on"),
        ("retry-period", "2s", "from one renewal to the next"),
    ):
        group.add_argument(
            f"--leader-elect-{flag}",
            metavar="DURATION",
            type=parse_duration,
            default=default,
            help=f"{text} (default: %(default)s)",
        )


if __name__ == "__main__":
    main()
