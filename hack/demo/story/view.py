"""``kubectl get tenantzones``, as the story shows it after each step."""

import json
import time

from hack.demo.stack import Stack
from hack.demo.workspace import show
from tenantzone_contract.reports.report import REPORT_PATH, parse_report
from tenantzone_contract.reports.summary import ZoneSummary

_SETTLE_SECONDS = 10.0


def show_zones(stack: Stack, *options: str) -> None:
    """Show the table once it has what the engine reports: the operator polls the reports.

    Args:
        stack: the running demo.
        options: for kubectl.
    """
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not _is_current(stack) and time.monotonic() < deadline:
        time.sleep(0.2)
    show(stack.cluster, "get", "tenantzones", *options)


def _is_current(stack: Stack) -> bool:
    zones = json.loads(stack.cluster.kubectl("get", "tenantzones", "--output=json").stdout)["items"]
    shown = {zone["metadata"]["name"]: ZoneSummary.read(zone.get("status", {})) for zone in zones}
    with stack.admin() as engine:
        report = parse_report(engine.get(REPORT_PATH).content)
    return all(shown.get(zone.name) == ZoneSummary.of([zone]) for zone in report.zones)
