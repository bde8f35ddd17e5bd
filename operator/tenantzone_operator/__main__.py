"""``python -m tenantzone_operator``: runs the operator."""

import argparse
from pathlib import Path

from tenantzone_contract.duration import parse_duration
from tenantzone_contract.extras import needs_extra
from tenantzone_contract.kube_names import OPERATOR


def main() -> None:
    """Run ``tenantzone-operator`` with the arguments of the command line.

    The exit code is 1 if a package of the extra ``operator`` is not installed.
    """
    parser = _parser()
    arguments = parser.parse_args()
    # Import late, because --help does not need the Kubernetes client, which takes seconds to import.
    with needs_extra("tenantzone-operator", "operator"):
        from tenantzone_operator.starting import options_of, start

    try:
        options = options_of(arguments)
    except ValueError as error:
        parser.error(str(error))
    start(options, arguments.log_format)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tenantzone-operator", description="Reconciles TenantZones and ZonePools into the engines' runtime config."
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="path of the kubeconfig (default: the variable KUBECONFIG, else the pod's service account)",
    )
    parser.add_argument(
        "--allow-missing-key-identifiers",
        action="store_true",
        help="accept certificates of the API server without key identifiers, which Python 3.13 and newer refuse",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--namespace", metavar="NS", help="serve this namespace only")
    where.add_argument("--all-namespaces", action="store_true", help="serve all namespaces (the default)")
    parser.add_argument("--probe-port", type=int, metavar="N", help="serve /healthz and /readyz on this port")
    parser.add_argument(
        "--probe-host", default="0.0.0.0", metavar="ADDRESS", help="address of the probe port (default: %(default)s)"
    )
    parser.add_argument("--metrics-port", type=int, metavar="N", help="serve /metrics on this port")
    parser.add_argument(
        "--metrics-host",
        default="0.0.0.0",
        metavar="ADDRESS",
        help="address of the metrics port (default: %(default)s)",
    )
    parser.add_argument(
        "--console-port",
        type=int,
        metavar="N",
        help="serve the console on this port of the loopback address, for use with kubectl port-forward",
    )
    manager = parser.add_argument_group("the KV-cache manager, if there is one")
    manager.add_argument(
        "--manager-url",
        metavar="URL",
        help="URL of the manager; without it, KVStorages and KVCacheGroups are ignored",
    )
    for name, text in (
        ("token", "file with the token for the manager, read for each request"),
        ("ca", "CAs of the manager's certificate, for an https:// URL (default: the system's CAs)"),
        ("client-cert", "client certificate for the manager (default: none)"),
        ("client-key", "key of the client certificate"),
    ):
        manager.add_argument(f"--manager-{name}-file", type=Path, metavar="FILE", help=text)
    _add_leader_election(parser)
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: %(default)s")
    return parser


def _add_leader_election(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("leader election among several replicas")
    group.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write only while holding a Lease; without it this must be the only operator (default: %(default)s)",
    )
    group.add_argument(
        "--leader-elect-namespace",
        metavar="NS",
        help="namespace of the Lease and the key of admin tokens (default: the pod's own, or tenantzone-system)",
    )
    group.add_argument("--leader-elect-name", metavar="NAME", default=OPERATOR, help="default: %(default)s")
    for flag, default, text in (
        ("lease-duration", "15s", "time without renewal after which another replica takes over"),
        ("renew-deadline", "10s", "time after which a leader that can't renew the Lease gives up"),
        ("retry-period", "2s", "time between renewals"),
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
