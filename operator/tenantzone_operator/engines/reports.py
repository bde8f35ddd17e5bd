"""Bounds the size of engines' reports, and parses long reports outside of the event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from tenantzone_contract.reports.report import EngineReport, parse_report

_BASE_BYTES = 64 * 2**10
_ZONE_BYTES = 4 * 2**10
"""Maximum number of bytes per zone in a report: several times the usual size of a zone and its loans."""
_REGISTERED_ZONES = 4096
"""Maximum number of automatically registered zones in a report, in mode AutoRegister."""

_IN_THREAD_BYTES = 64 * 2**10
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="reports")
"""Threads that parse long reports, so that parsing does not block the event loop."""


def max_report_bytes(declared: int, *, may_register: bool) -> int:
    """Returns the maximum size of an engine's report in bytes.

    Args:
        declared: the number of TenantZones that name the pool.
        may_register: whether engines register zones for unknown tenants automatically.
    """
    return _BASE_BYTES + _ZONE_BYTES * (declared + (_REGISTERED_ZONES if may_register else 0))


async def parse_report_aside(text: bytes) -> EngineReport:
    """Parse a report like `parse_report`, but parse a long report in a thread, which does not block the event loop.

    Raises:
        ValueError: see `parse_report`.
    """
    if len(text) <= _IN_THREAD_BYTES:
        return parse_report(text)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, parse_report, text)
