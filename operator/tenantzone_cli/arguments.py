"""The plugin's command line; flags that kubectl also has mean the same as in kubectl."""

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
        prog="kubectl tenantzone", description="What the zones hold, why one is not ready, what is broken."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    top = commands.add_parser("top", parents=[common], help="what each zone holds, as a live table")
    top.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    top.add_argument("--pool", metavar="NAME", help="of one pool only")
    top.add_argument("-e", "--engines", action="store_true", help="each engine below its zone")
    top.add_argument(
        "--live",
        action="store_true",
        help="ask the engines themselves, not the status; takes the right to get pods/proxy",
    )
    top.add_argument(
        "--sort-by", choices=SORTS, default="name", dest="sort", help="largest first; default: %(default)s"
    )
    when = top.add_mutually_exclusive_group()
    when.add_argument("--watch", action="store_true", default=None, help="again and again; the default on a terminal")
    when.add_argument("--once", action="store_false", dest="watch", help="the default in a pipe, and with -o")
    top.add_argument(
        "--interval",
        type=_seconds,
        metavar="DURATION",
        help="between two looks, such as 500ms or 5s (default: 2s); with --once, look twice, so that rates are known",
    )
    top.add_argument("-o", "--output", choices=("json",), help="for programs; with --watch, one document per line")
    explain = commands.add_parser(
        "explain", parents=[common], help="why a zone is not ready, what it lent and borrowed"
    )
    explain.add_argument("zone", metavar="ZONE", help="the TenantZone's name")
    doctor = commands.add_parser("doctor", parents=[common], help="what is broken; exit code 1 if anything is")
    doctor.add_argument("-A", "--all-namespaces", action="store_true", help="pools and zones in all namespaces")
    doctor.add_argument("--operator-namespace", metavar="NS", default=OPERATOR_NAMESPACE, help="default: %(default)s")
    doctor.add_argument("-o", "--output", choices=("json",), help="for programs")
    storage = commands.add_parser(
        "storage", parents=[common], help="what the KV-cache manager stores, where, and within which quotas"
    )
    storage.add_argument("-o", "--output", choices=("json",), help="for programs")
    salt = commands.add_parser("salt", parents=[common], help="the cache salt of a tenant's requests, for a gateway")
    salt.add_argument("tenant", metavar="TENANT", help="the tenant's name")
    salt.add_argument("--client-salt", metavar="TEXT", default="", help="the cache_salt that the client sends, if any")
    whose = salt.add_mutually_exclusive_group()
    whose.add_argument("--pool", metavar="NAME", help="whose key; default: the only pool of the namespace")
    whose.add_argument("--key-file", type=Path, metavar="FILE", help="the key, so that no cluster is asked")
    purge = commands.add_parser(
        "purge", parents=[common], help="evict all that a zone has cached, in every engine; takes the right to patch it"
    )
    purge.add_argument("zone", metavar="ZONE", help="the TenantZone's name")
    purge.add_argument(
        "--timeout",
        type=_seconds,
        metavar="DURATION",
        default="3m",
        help="how long to wait for all engines, such as 30s (default: %(default)s); the purge goes on after it",
    )
    purge.add_argument("--no-wait", action="store_true", help="print the purge's id, and wait for no engine")
    purge.add_argument("-o", "--output", choices=("json",), help="for programs")
    _migrate(commands.add_parser("migrate", parents=[common], help="have another engine find what one has cached"))
    # Listed for --help only: the replay parses its own arguments, and also those of advise when it reads a trace.
    commands.add_parser("replay", add_help=False, help="what zones would do for recorded traffic; needs vLLM here")
    advise = commands.add_parser(
        "advise",
        parents=[common],
        help="which zones to apply for recorded traffic (needs vLLM here); --watch: what live pools are advised",
    )
    _live_advice(advise)
    return parser


def _migrate(migrate: argparse.ArgumentParser) -> None:
    migrate.add_argument("zone", metavar="ZONE", help="the TenantZone's name")
    migrate.add_argument("--from", required=True, dest="source", metavar="POD", help="the engine that has its cache")
    migrate.add_argument("--to", required=True, dest="target", metavar="POD", help="the engine that is to have it")
    migrate.add_argument(
        "--rate", type=_rate, metavar="BYTES", default="100Mi", help="a second, at most (default: %(default)s)"
    )
    migrate.add_argument(
        "--timeout",
        type=_seconds,
        metavar="DURATION",
        default="1h",
        help="after which it is stopped, such as 30s or 1m30s (default: %(default)s)",
    )
    what = migrate.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="only say whether it pays")
    what.add_argument("--anyway", action="store_true", help="also if to compute it again is faster")
    what.add_argument("--cancel", action="store_true", help="stop what another command has begun")
    migrate.add_argument("-o", "--output", choices=("json",), help="for programs")


def _live_advice(advise: argparse.ArgumentParser) -> None:
    when = advise.add_mutually_exclusive_group()
    when.add_argument("--watch", action="store_true", default=True, help="again and again, until Ctrl-C (the default)")
    when.add_argument("--once", action="store_false", dest="watch", help="only once")
    advise.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    advise.add_argument("--pool", metavar="NAME", help="of one pool only")
    advise.add_argument(
        "--interval", type=_seconds, metavar="DURATION", help="between two looks, such as 500ms or 5s (default: 2s)"
    )
    advise.add_argument("-o", "--output", choices=("json",), help="for programs; with --watch, one document per line")


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-n", "--namespace", metavar="NS", help="default: that of the context")
    common.add_argument("--kubeconfig", metavar="FILE", help="default: the variable KUBECONFIG")
    common.add_argument("--context", metavar="NAME", help="of the kubeconfig")
    common.add_argument("--cluster", metavar="NAME", help="of the kubeconfig")
    common.add_argument("--user", metavar="NAME", help="of the kubeconfig")
    common.add_argument("--as", metavar="USER", help="impersonate this user")
    common.add_argument("--as-group", metavar="GROUP", action="append", help="impersonate this group; may be repeated")
    return common


def _seconds(text: str) -> float:
    """Parse a duration in kubectl's format.

    A number without a unit is in seconds; unlike kubectl, it may have a fraction.
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
        raise argparse.ArgumentTypeError("expected bytes a second, such as 100Mi")
    return float(rate)
