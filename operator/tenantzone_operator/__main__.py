"""``python -m tenantzone_operator``: runs the operator."""

import argparse
from pathlib import Path

from tenantzone_contract.duration import parse_duration
from tenantzone_contract.kube_names import OPERATOR


def main() -> None:
    """Run ``tenantzone-operator`` with the arguments of the command line."""
    parser = _parser()
    arguments = parser.parse_args()
    # Import late: --help does not need the Kubernetes client, which takes seconds to import.
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
        "--kubeconfig", metavar="FILE", help="default: the variable KUBECONFIG, else the pod's service account"
    )
    parser.add_argument(
        "--allow-missing-key-identifiers",
        action="store_true",
        help="take certificates of the API server that have no key identifiers, which Python 3.13 and newer refuse",
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
        help="its URL; without it, KVStorages and KVCacheGroups are ignored",
    )
    for name, text in (
        ("token", "token that it is shown, read for each request"),
        ("ca", "CAs of its certificate, where the URL begins with https (default: those that the system trusts)"),
        ("client-cert", "certificate that it is shown (default: none)"),
        ("client-key", "key of that certificate"),
    ):
        manager.add_argument(f"--manager-{name}-file", type=Path, metavar="FILE", help=text)
    _add_leader_election(parser)
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: %(default)s")
    return parser


def _add_leader_election(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several replicas, one of them the leader")
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
    group.add_argument("--leader-elect-name", metavar="NAME", default=OPERATOR, help="default: %(default)s")
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
