"""``python -m tenantzone_operator``: runs the operator."""

import argparse
import asyncio
import logging
import os
import sys

import kopf

from tenantzone_operator.app import Options, run
from tenantzone_operator.connection import Connection, CredentialsError


def main() -> None:
    arguments = _parser().parse_args()
    kopf.configure(log_format=kopf.LogFormat.JSON if arguments.log_format == "json" else kopf.LogFormat.FULL)
    # What these have to say is about themselves; warnings and errors stay.
    for name in ("kopf", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    probe = f"http://{arguments.probe_host}:{arguments.probe_port}/healthz" if arguments.probe_port else None
    connection = Connection(arguments.kubeconfig or os.environ.get("KUBECONFIG"))
    try:
        asyncio.run(run(Options(connection, arguments.namespace, probe)))
    except CredentialsError as error:
        sys.exit(f"tenantzone-operator: {error}")


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
    parser.add_argument("--probe-port", type=int, metavar="N", help="serve /healthz on this port")
    parser.add_argument(
        "--probe-host", default="0.0.0.0", metavar="ADDRESS", help="where /healthz listens (default: %(default)s)"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    main()
