"""``tenantzone-runtime hand-down``: copies an engine's cached blocks to shared storages before the pod ends.

Use this command in the pod's ``preStop`` hook, so that other engines find the cached blocks. Blocks that the storages
already have are not copied again. Because the pod ends anyway, the command stops migrations of other clients, and
continues with the next zone if a zone can't be copied.
"""

import argparse
import http.client
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from tenantzone_contract.cache.migration import (
    MIGRATION_PATH,
    TENANT_PARAMETER,
    MigrationOrder,
    MigrationReport,
    parse_migration,
)
from tenantzone_contract.keys.admin_token import ACCEPTED_FILE, AdminTokenError, parse_accepted
from tenantzone_contract.quantity import parse_bytes, shown_bytes
from tenantzone_contract.reports.report import DEFAULT_ADMIN_PORT, REPORT_PATH, parse_report

_LOOK_SECONDS: Final = 0.1
CALL_SECONDS: Final = 10.0
"""Maximum duration of a call to the engine, in seconds."""
_LAST_SECONDS: Final = 1.0
"""Maximum duration of a call to the engine after the deadline, in seconds."""
_OK: Final = 200
_CONFLICT: Final = 409


class HandDownError(Exception):
    """The engine failed to copy its blocks to shared storages. The message states why."""


class _Refused(HandDownError):
    """The engine refused an order for one zone, but may accept an order for another zone."""


def main(arguments: Sequence[str]) -> None:
    """Copy the blocks of one zone after another to shared storages, until the time limit is reached.

    Exits with a message if a zone's blocks were not copied completely.

    Args:
        arguments: the arguments after ``hand-down``.
    """
    parsed = _parser().parse_args(arguments)
    deadline = time.monotonic() + parsed.seconds
    try:
        engine = _Engine(parsed.admin_host, parsed.admin_port, _token(parsed.admin_token), deadline)
        results = {tenant: _result(engine, tenant, parsed.rate, deadline) for tenant in engine.tenants()}
    except (HandDownError, OSError, http.client.HTTPException, ValueError) as error:
        sys.exit(f"tenantzone-runtime hand-down: {error}")
    if failed := [tenant for tenant, is_done in results.items() if not is_done]:
        sys.exit(f"tenantzone-runtime hand-down: {len(failed)} of {len(results)} zones were not handed down")


def _result(engine: "_Engine", tenant: str, rate: int, deadline: float) -> bool:
    """Copy a zone's blocks to shared storages, and print the result. Returns whether all blocks were copied."""
    try:
        report = _hand_down(engine, tenant, rate, deadline)
    except _Refused as error:
        print(f"{tenant}: {error}", flush=True)
        return False
    print(
        f"{tenant}: {report.state}, {report.moved} chunks ({shown_bytes(report.moved_bytes)}) moved "
        f"in {report.seconds:.1f} s{_left(report)}{': ' if report.problem else ''}{report.problem}",
        flush=True,
    )
    return report.state == "Done" and not report.left


def _left(report: MigrationReport) -> str:
    if not report.left:
        return ""
    return f", {report.left} chunks not moved, because requests use them, or the zone or its storages have no room"


def _hand_down(engine: "_Engine", tenant: str, rate: int, deadline: float) -> MigrationReport:
    order = MigrationOrder(order="hand-down", tenant=tenant, bytes_per_second=rate)
    if time.monotonic() >= deadline:
        raise HandDownError(f"the time limit was reached before the zone of {tenant} was handed down; increase --for")
    while True:
        report = _begun(engine, order)
        while report.is_running and report.work == order.order:
            if time.monotonic() >= deadline:
                engine.stop(tenant)
                raise HandDownError(_late(tenant, report))
            time.sleep(_LOOK_SECONDS)
            report = engine.migration(tenant)
        if report.work == order.order and report.state != "Stopped":
            return report
        # Another client has stopped this migration or ordered another, so order the hand-down again.
        if time.monotonic() >= deadline:
            raise HandDownError(_late(tenant, report))
        time.sleep(_LOOK_SECONDS)


def _begun(engine: "_Engine", order: MigrationOrder) -> MigrationReport:
    try:
        return engine.order(order)
    except _Refused:
        if engine.was_stopped:
            raise
        # Another client, which does not know that the pod ends, has ordered a migration of another zone.
        engine.stop_all()
        return engine.order(order)


def _late(tenant: str, report: MigrationReport) -> str:
    return f"the time limit was reached when only {report.moved} chunks of {tenant} were moved; increase --for"


class _Engine:
    """A client of the admin port of this pod's engine."""

    def __init__(self, host: str, port: int, token: str, deadline: float) -> None:
        self._host, self._port, self._deadline = host, port, deadline
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.was_stopped = False
        """Whether migrations of other clients were already stopped. They are stopped only once."""

    def tenants(self) -> list[str]:
        """Returns the tenants of all zones that the config declares."""
        zones = parse_report(self._ask("GET", REPORT_PATH)).zones
        return [zone.tenant for zone in zones if not zone.auto_registered]

    def order(self, order: MigrationOrder) -> MigrationReport:
        return parse_migration(self._ask("POST", MIGRATION_PATH, order.model_dump_json(by_alias=True)))

    def stop(self, tenant: str) -> None:
        self.order(MigrationOrder(order="stop", tenant=tenant))

    def stop_all(self) -> None:
        """Stop the migrations of all zones, whichever clients have ordered them."""
        self.was_stopped = True
        for tenant in self.tenants():
            self.stop(tenant)

    def migration(self, tenant: str) -> MigrationReport:
        return parse_migration(self._ask("GET", f"{MIGRATION_PATH}?{urlencode({TENANT_PARAMETER: tenant})}"))

    def _ask(self, method: str, target: str, body: str | None = None) -> bytes:
        # Keep to the deadline even if the engine is slow, because the pod's grace period ends in any case.
        seconds = min(CALL_SECONDS, max(_LAST_SECONDS, self._deadline - time.monotonic()))
        connection = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        try:
            connection.request(method, target, body, self._headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != _OK:
            raise (_Refused if answer.status == _CONFLICT else HandDownError)(
                text.decode(errors="replace").strip() or f"the engine answered with status {answer.status}"
            )
        return text


def _token(folder: Path) -> str:
    """Returns the newest token that the engine accepts; empty if there is no file, as with ``--admin-open``."""
    try:
        return parse_accepted((folder / ACCEPTED_FILE).read_bytes())[0].decode()
    except FileNotFoundError:
        return ""
    except AdminTokenError as error:
        raise HandDownError(f"{folder / ACCEPTED_FILE}: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenantzone-runtime hand-down", description=__doc__)
    parser.add_argument(
        "--rate", type=_rate, default="1Gi", help="maximum rate in bytes per second (default: %(default)s)"
    )
    parser.add_argument(
        "--for",
        type=float,
        default=60.0,
        dest="seconds",
        metavar="SECONDS",
        help="time limit, which must be below the pod's grace period (default: %(default)g)",
    )
    parser.add_argument(
        "--admin-host", default="127.0.0.1", help="address of the engine's admin port (default: %(default)s)"
    )
    parser.add_argument("--admin-port", type=int, default=DEFAULT_ADMIN_PORT, help="default: %(default)s")
    parser.add_argument(
        "--admin-token",
        type=Path,
        default=Path("/etc/tenantzone/admin"),
        metavar="DIR",
        help="folder with the engine's admin tokens (default: %(default)s)",
    )
    return parser


def _rate(text: str) -> int:
    try:
        rate = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if rate <= 0:
        raise argparse.ArgumentTypeError("expected more than 0 bytes per second, such as 1Gi")
    return rate
