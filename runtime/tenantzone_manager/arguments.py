"""The command-line arguments of ``tenantzone-manager``."""

import argparse
from pathlib import Path
from typing import Final

from tenantzone_manager.events.writer import KEEP, MAX_BYTES
from tenantzone_manager.index.meta_index import IndexSettings
from tenantzone_manager.timing import ORPHAN_GRACE_SECONDS, Timing

AUDIENCE: Final = "tenantzone-manager"
"""Default audience of service account tokens."""
_API_SERVER: Final = "https://kubernetes.default.svc"
_IN_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder with the credentials of a pod's service account for the API server."""


def make_parser() -> argparse.ArgumentParser:
    """Returns the argument parser of the command that starts a manager."""
    parser = argparse.ArgumentParser(
        prog="tenantzone-manager",
        description="Records which KV-cache blocks are stored where, for many engines.",
        epilog="tenantzone-manager events --help describes how to list who wrote and read a block.",
    )
    parser.add_argument(
        "--index", required=True, metavar="PATH|URL", help="location of the index: a file, or redis://HOST:PORT/DB"
    )
    parser.add_argument(
        "--redis-prefix", default="tenantzone/", help="prefix of all keys in Redis (default: %(default)s)"
    )
    parser.add_argument(
        "--listen",
        type=_address,
        default=("127.0.0.1", 9470),
        metavar="HOST:PORT",
        help="address of the HTTP port (default: port 9470)",
    )
    parser.add_argument(
        "--grpc",
        type=_address,
        default=("127.0.0.1", 9471),
        metavar="HOST:PORT",
        help="address of the gRPC port (default: port 9471)",
    )
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument(
        "--tokens",
        type=Path,
        metavar="FILE",
        help='callers by bearer token: {"TOKEN": {"pool": "NAMESPACE/POOL"}, "TOKEN": {"admin": true}}',
    )
    who.add_argument(
        "--service-accounts",
        type=Path,
        metavar="FILE",
        help="callers by service account; Kubernetes reviews their tokens",
    )
    who.add_argument("--anyone", action="store_true", help="let every caller do everything; for experiments only")
    parser.add_argument(
        "--audience", default=AUDIENCE, help="required audience of service account tokens (default: %(default)s)"
    )
    parser.add_argument(
        "--api-server", default=_API_SERVER, metavar="URL", help="API server that reviews tokens (default: %(default)s)"
    )
    parser.add_argument(
        "--api-server-credentials",
        type=Path,
        default=_IN_POD,
        metavar="DIR",
        help="folder with token and ca.crt for the API server (default: %(default)s)",
    )
    for name, what in (
        (
            "--tls-cert-file",
            "PEM file with the certificate of both ports and its intermediate certificates (default: no TLS)",
        ),
        ("--tls-private-key-file", "PEM file with the key of that certificate"),
        (
            "--client-ca-file",
            "CAs; each call needs a client certificate signed by one of them, in addition to its token",
        ),
    ):
        parser.add_argument(name, type=Path, metavar="FILE", help=what)
    parser.add_argument(
        "--credentials", type=Path, metavar="DIR", help="folder with the credential files that storages refer to"
    )
    timing, index = Timing(), IndexSettings()
    for name, default, what in (
        ("--lease", timing.lease, "time for which a caller can read a location after receiving the location"),
        ("--write-timeout", timing.write, "time after which a write that was not finished counts as failed"),
        ("--orphan-grace", ORPHAN_GRACE_SECONDS, "minimum age of an object without a record before it is removed"),
        ("--search-cache-max-age", index.max_age_seconds, "maximum age of a cached record before Redis is read again"),
    ):
        parser.add_argument(
            name, type=_seconds, default=default, metavar="SECONDS", help=f"{what} (default: {default:g})"
        )
    for name, number, what in (
        ("--search-cache", index.cached_records, "maximum number of records in the search cache"),
        ("--lock-shards", index.lock_shards, "number of locks of the index, a power of two"),
        ("--batch-size", index.batch_size, "maximum number of independent records per commit"),
        ("--events-max-bytes", MAX_BYTES, "size of a file of events at which a new file is started"),
        ("--events-keep", KEEP, "number of files of events to keep, including the newest"),
    ):
        parser.add_argument(name, type=_count, default=number, metavar="N", help=f"{what} (default: {number})")
    parser.add_argument(
        "--events", type=Path, metavar="FILE", help="record in this file who wrote and read which blocks"
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT with a port up to 65535, got {text!r:.60}")
    return host.strip("[]"), int(port)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0 and below 1e9, got {text!r:.60}")
    return seconds


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r:.60}")
    return count
