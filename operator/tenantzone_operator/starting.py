"""Starts the operator with the arguments of the command line."""

import argparse
import asyncio
import os
import resource
import sys
from urllib.parse import urlsplit

from tenantzone_contract.keys.tls import TlsFiles
from tenantzone_operator.app import LeaseOptions, Options, run
from tenantzone_operator.cache_manager.client import ManagerAddress
from tenantzone_operator.kube.credentials.connection import Connection, CredentialsError
from tenantzone_operator.leader.leadership import own_namespace
from tenantzone_operator.leader.lease import Timing
from tenantzone_operator.logs import configure_logging


def options_of(arguments: argparse.Namespace) -> Options:
    """Returns the operator's options from the parsed arguments and the environment.

    Raises:
        ValueError: the arguments contradict each other.
    """
    return Options(
        connection=Connection(
            arguments.kubeconfig or os.environ.get("KUBECONFIG"), arguments.allow_missing_key_identifiers
        ),
        namespace=arguments.namespace,
        probes=(arguments.probe_host, arguments.probe_port) if arguments.probe_port else None,
        lease=_lease_options(arguments),
        own_namespace=arguments.leader_elect_namespace or own_namespace(),
        metrics=(arguments.metrics_host, arguments.metrics_port) if arguments.metrics_port else None,
        console_port=arguments.console_port,
        manager=_manager(arguments),
    )


def start(options: Options, log_format: str) -> None:
    """Run the operator until a signal ends it. If the operator can't log in, exit with an error message."""
    configure_logging(log_format)
    _allow_connections()
    try:
        asyncio.run(run(options))
    except CredentialsError as error:
        sys.exit(f"tenantzone-operator: {error}")


def _allow_connections() -> None:
    """Raise this process's limit of open files to the hard limit, because each pool's watch needs a connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _manager(arguments: argparse.Namespace) -> ManagerAddress | None:
    """Returns the address of the KV-cache manager in the flags; None without --manager-url.

    Raises:
        ValueError: the flags contradict each other.
    """
    url = arguments.manager_url
    files = {
        "--manager-token-file": arguments.manager_token_file,
        "--manager-ca-file": arguments.manager_ca_file,
        "--manager-client-cert-file": arguments.manager_client_cert_file,
        "--manager-client-key-file": arguments.manager_client_key_file,
    }
    given = [flag for flag, path in files.items() if path is not None]
    if url is None:
        if given:
            raise ValueError(f"{given[0]} requires --manager-url; set it, or remove {given[0]}")
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"--manager-url must be a URL such as http://tenantzone-manager:9470, not {url}")
    token, authorities, certificate, key = files.values()
    tls = TlsFiles(certificate, key, authorities)
    if tls.paths and parts.scheme != "https":
        raise ValueError(f"{given[-1]} requires an https:// URL in --manager-url, not {url}")
    return ManagerAddress(url, token, tls)


def _lease_options(arguments: argparse.Namespace) -> LeaseOptions | None:
    """Returns the options of the leader election; None with --no-leader-elect.

    Raises:
        ValueError: the durations contradict each other.
    """
    if not arguments.leader_elect:
        return None
    if arguments.leader_elect_lease_duration != int(arguments.leader_elect_lease_duration):
        raise ValueError("--leader-elect-lease-duration must be a whole number of seconds, for example 15s")
    return LeaseOptions(
        namespace=arguments.leader_elect_namespace or own_namespace(),
        name=arguments.leader_elect_name,
        timing=Timing(
            lease_seconds=int(arguments.leader_elect_lease_duration),
            renew_deadline=arguments.leader_elect_renew_deadline,
            retry=arguments.leader_elect_retry_period,
        ),
    )
