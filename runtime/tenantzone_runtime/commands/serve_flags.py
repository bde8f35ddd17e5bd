"""The flags of ``tenantzone-runtime serve``."""

import argparse
from pathlib import Path
from typing import Final

from tenantzone_runtime import settings
from tenantzone_runtime.metrics_levels import LEVELS
from tenantzone_runtime.offloading_flags import parse_bytes
from tenantzone_runtime.shared.settings import QUERY_SECONDS

MANAGER_FILES: Final = {
    "token": "file with the token to send to the manager, which is read again when it changes (default: no token)",
    "ca": "file with the CAs of the manager's certificate, for an https URL (default: the system's CAs)",
    "client-cert": "file with the client certificate to send to the manager (default: no certificate)",
    "client-key": "file with the private key of the client certificate",
}
"""Help texts of the flags for files of the KV-cache manager. For example, ``token`` is ``--manager-token-file``."""


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the flags. It ignores vLLM's flags, which may stand between them."""
    default = settings.read_settings({})
    parser = argparse.ArgumentParser(
        prog="tenantzone-runtime serve",
        usage="%(prog)s MODEL [options] [any option of vllm serve]",
        description="Serve a model with vLLM and enforce zones. Options that are not listed here go to vLLM unchanged.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "-h",
        "--help",
        nargs="?",
        const="",
        metavar="WHAT",
        help="print this help, or vLLM's help on WHAT ('all' for everything)",
    )
    parser.add_argument(
        "--zones-config",
        type=Path,
        metavar="DIR",
        help=f"folder that contains the pool's config.json (default: {default.config_dir})",
    )
    parser.add_argument(
        "--signed-config",
        action="store_true",
        help="refuse a config that the operator did not sign with a token of --admin-token; needs an operator of "
        "version 0.2 or later",
    )
    parser.add_argument(
        "--tenant-keys",
        type=Path,
        metavar="DIR",
        help=f"folder with one file of API keys per tenant (default: {default.keys_dir})",
    )
    parser.add_argument(
        "--salt-key",
        type=Path,
        metavar="DIR",
        help=f"folder with the pool's salt key, which all of its engines share (default: {default.salt_dir})",
    )
    parser.add_argument(
        "--tenant-identity",
        type=Path,
        metavar="DIR",
        help="folder with the file that spec.identity of the pool needs: secret, ca.crt or jwks.json"
        f" (default: {default.identity_dir})",
    )
    parser.add_argument(
        "--admin-host", metavar="HOST", help=f"address of the admin server (default: {default.admin_host})"
    )
    parser.add_argument(
        "--admin-port",
        type=int,
        metavar="PORT",
        help=f"port of the admin server; 0 for any free port (default: {default.admin_port})",
    )
    parser.add_argument(
        "--admin-token",
        type=Path,
        metavar="DIR",
        help="folder with the tokens that clients of the admin port must send; without tokens, all are refused"
        f" (default: {default.admin_token_dir})",
    )
    parser.add_argument(
        "--admin-open",
        action="store_true",
        help="require no tokens at the admin port; use this only if just trusted clients can reach the port, because "
        "it shows the usage of all tenants",
    )
    parser.add_argument(
        "--max-auto-registered-series",
        type=int,
        metavar="N",
        help="maximum number of tenants without a TenantZone whose zones have metrics of their own; the metrics of "
        "others are summed up in the zone 'overflow'"
        f" (default: {default.max_auto_registered_series})",
    )
    parser.add_argument(
        "--metrics-level",
        choices=LEVELS,
        help="level of detail of each zone at the admin port's /metrics: the metrics for alerts, all counters, or also "
        f"histograms and all labels (default: {default.metrics_level})",
    )
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="DIR",
        help="folder for the audit journal, which no other engine may use (default: no journal)",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="folder for recordings of requests, as lengths and salted hashes, for a replay (default: no recordings)",
    )
    parser.add_argument(
        "--scrub-blocks",
        action="store_true",
        help="prepare GPU workers for zones with scrub: OnTransfer; CPU workers are always prepared",
    )
    parser.add_argument(
        "--cpu-tier",
        type=_size,
        metavar="SIZE",
        help="size of the CPU tier, which stores blocks in the machine's memory, for example 64GiB (default: no tier)",
    )
    parser.add_argument(
        "--disk-tier",
        type=Path,
        metavar="DIR",
        help="folder of the disk tier, which no other engine may use (default: no tier)",
    )
    parser.add_argument(
        "--disk-tier-size", type=_size, metavar="SIZE", help="maximum size of the disk tier, for example 500GiB"
    )
    parser.add_argument(
        "--manager-url",
        metavar="URL",
        help="URL of the KV-cache manager, for storages that several engines share, for example http://HOST:9470 "
        "(default: no shared storages)",
    )
    parser.add_argument(
        "--manager-budget",
        type=float,
        metavar="SECONDS",
        help="maximum time that a request waits for the KV-cache manager before it computes its prompt instead "
        f"(default: {QUERY_SECONDS:g})",
    )
    for name, what in MANAGER_FILES.items():
        parser.add_argument(f"--manager-{name}-file", type=Path, metavar="FILE", help=what)
    parser.add_argument(
        "--tier-chunk",
        type=int,
        metavar="TOKENS",
        help="number of tokens that tiers move together, a multiple of --block-size (default: one block)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="format of all log lines, including vLLM's (default: %(default)s)",
    )
    parser.add_argument(
        "--show-flags",
        action="store_true",
        help="print the variables and flags that enable zones in your own 'vllm serve', and exit",
    )
    return parser


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
