"""Defines the plugin's command line. Flags with the name of a kubectl flag have the same meaning as in kubectl."""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tenantzone_cli.names import CONNECTION, SORTS
from tenantzone_contract.duration import parse_duration
from tenantzone_contract.kube_names import OPERATOR_NAMESPACE
from tenantzone_contract.quantity import parse_bytes


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the plugin's arguments; exit the process with a usage message if they are invalid."""
    return _parser().parse_args(arguments)


def kubectl_flags(arguments: argparse.Namespace) -> list[str]:
    """Returns the kubectl flags that select the cluster and the user."""
    return list(_flags(arguments))


def _flags(arguments: argparse.Namespace) -> Iterator[str]:
    for name in CONNECTION:
        value = getattr(arguments, name.replace("-", "_"))
        for one in value if isinstance(value, list) else [value] if value is not None else []:
            yield f"--{name}={one}"


def _parser() -> argparse.ArgumentParser:
    common = _common()
    parser = argparse.ArgumentParser(
        prog="kubectl tenantzone",
        description="Shows what zones use, explains why a zone is not ready, and diagnoses the installation.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    top = commands.add_parser("top", parents=[common], help="show a live table of the zones and their usage")
    top.add_argument("-A", "--all-namespaces", action="store_true", help="show zones of all namespaces")
    top.add_argument("--pool", metavar="NAME", help="show only zones of this pool")
    top.add_argument("-e", "--engines", action="store_true", help="show each engine below its zone")
    top.add_argument(
        "--live",
        action="store_true",
        help="ask the engines instead of reading the status; requires the right to get pods/proxy",
    )
    top.add_argument(
        "--sort-by",
        choices=SORTS,
        default="name",
        dest="sort",
        help="sort by this column, largest first (default: %(default)s)",
    )
    when = top.add_mutually_exclusive_group()
    when.add_argument(
        "--watch", action="store_true", default=None, help="refresh until Ctrl-C; the default on a terminal"
    )
    when.add_argument(
        "--once", action="store_false", dest="watch", help="print once; the default in a pipe and with -o"
    )
    top.add_argument(
        "--interval",
        type=_seconds,
        metavar="DURATION",
        help="time between updates, such as 500ms or 5s (default: 2s); with --once, time over which rates are measured",
    )
    top.add_argument("-o", "--output", choices=("json",), help="print JSON; with --watch, one document per line")
    explain = commands.add_parser(
        "explain", parents=[common], help="explain why a zone is not ready, and what it lent and borrowed"
    )
    explain.add_argument("zone", metavar="ZONE", help="name of the TenantZone")
    doctor = commands.add_parser(
        "doctor", parents=[common], help="diagnose the installation; exit code 1 if anything is broken"
    )
    doctor.add_argument("-A", "--all-namespaces", action="store_true", help="check pools and zones of all namespaces")
    doctor.add_argument(
        "--operator-namespace",
        metavar="NS",
        default=OPERATOR_NAMESPACE,
        help="namespace of the operator (default: %(default)s)",
    )
    doctor.add_argument("-o", "--output", choices=("json",), help="print JSON")
    storage = commands.add_parser(
        "storage", parents=[common], help="show the KV-cache manager's storages, their contents and the quotas"
    )
    storage.add_argument("-o", "--output", choices=("json",), help="print JSON")
    salt = commands.add_parser(
        "salt", parents=[common], help="print the cache salt of a tenant's requests, for a gateway"
    )
    salt.add_argument("tenant", metavar="TENANT", help="name of the tenant")
    salt.add_argument("--client-salt", metavar="TEXT", default="", help="the cache_salt that the client sends, if any")
    whose = salt.add_mutually_exclusive_group()
    whose.add_argument(
        "--pool", metavar="NAME", help="use the key of this pool (default: the only pool of the namespace)"
    )
    whose.add_argument(
        "--key-file", type=Path, metavar="FILE", help="read the key from this file instead of the cluster"
    )
    purge = commands.add_parser(
        "purge",
        parents=[common],
        help="evict all cached blocks of a zone in every engine; requires the right to patch the zone",
    )
    purge.add_argument("zone", metavar="ZONE", help="name of the TenantZone")
    purge.add_argument(
        "--timeout",
        type=_seconds,
        metavar="DURATION",
        default="3m",
        help="maximum wait for all engines, such as 30s (default: %(default)s); the purge continues after the timeout",
    )
    purge.add_argument("--no-wait", action="store_true", help="print the purge's id without waiting for engines")
    purge.add_argument("-o", "--output", choices=("json",), help="print JSON")
    _migrate(commands.add_parser("migrate", parents=[common], help="move a zone's cache from one engine to another"))
    # List these commands in --help. The replay parses the arguments of ``replay``, and of ``advise`` for a trace.
    commands.add_parser(
        "replay", add_help=False, help="simulate zones for recorded traffic; needs vLLM on this machine"
    )
    advise = commands.add_parser(
        "advise",
        parents=[common],
        help="advise zones for recorded traffic (needs vLLM on this machine); with --watch, show advice for live pools",
    )
    _live_advice(advise)
    return parser


def _migrate(migrate: argparse.ArgumentParser) -> None:
    migrate.add_argument("zone", metavar="ZONE", help="name of the TenantZone")
    migrate.add_argument(
        "--from", required=True, dest="source", metavar="POD", help="pod of the engine that has the zone's cache"
    )
    migrate.add_argument(
        "--to", required=True, dest="target", metavar="POD", help="pod of the engine that receives the cache"
    )
    migrate.add_argument(
        "--rate", type=_rate, metavar="BYTES", default="100Mi", help="maximum bytes per second (default: %(default)s)"
    )
    migrate.add_argument(
        "--timeout",
        type=_seconds,
        metavar="DURATION",
        default="1h",
        help="time after which the migration is stopped, such as 30s or 1m30s (default: %(default)s)",
    )
    what = migrate.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="only print the estimate, and whether moving pays")
    what.add_argument("--anyway", action="store_true", help="move the cache even if recomputing it is faster")
    what.add_argument("--cancel", action="store_true", help="stop a migration that another command has started")
    migrate.add_argument("-o", "--output", choices=("json",), help="print JSON")


def _live_advice(advise: argparse.ArgumentParser) -> None:
    when = advise.add_mutually_exclusive_group()
    when.add_argument("--watch", action="store_true", default=True, help="refresh until Ctrl-C (the default)")
    when.add_argument("--once", action="store_false", dest="watch", help="print once")
    advise.add_argument("-A", "--all-namespaces", action="store_true", help="show advice for all namespaces")
    advise.add_argument("--pool", metavar="NAME", help="show advice for this pool only")
    advise.add_argument(
        "--interval", type=_seconds, metavar="DURATION", help="time between updates, such as 500ms or 5s (default: 2s)"
    )
    advise.add_argument("-o", "--output", choices=("json",), help="print JSON; with --watch, one document per line")


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-n", "--namespace", metavar="NS", help="namespace (default: the namespace of the context)")
    common.add_argument(
        "--kubeconfig", metavar="FILE", help="path of the kubeconfig (default: the variable KUBECONFIG)"
    )
    common.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    common.add_argument("--cluster", metavar="NAME", help="cluster of the kubeconfig")
    common.add_argument("--user", metavar="NAME", help="user of the kubeconfig")
    common.add_argument("--as", metavar="USER", help="impersonate this user")
    common.add_argument("--as-group", metavar="GROUP", action="append", help="impersonate this group; may be repeated")
    return common


def _seconds(text: str) -> float:
    """Parse a duration in kubectl's format, and return the seconds.

    A number without a unit means seconds. Unlike in kubectl, it may have a fraction.
    """
    plain = re.fullmatch(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)", text)
    try:
        seconds = float(text) if plain else parse_duration(text.removeprefix("+"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected a duration from 100ms to 1h, got {text!r:.60}")
    return seconds


def _rate(text: str) -> float:
    try:
        rate = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < rate <= 10**15:
        raise argparse.ArgumentTypeError(f"expected bytes per second, such as 100Mi, got {text!r:.60}")
    return float(rate)
