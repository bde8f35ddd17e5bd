"""Implements ``purge ZONE``, which evicts a zone's cached blocks in every engine of its pool, and shows the counts.

The command only sets an annotation. The operator passes the purge on to the engines, and collects their
acknowledgements even if the command does not wait.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator

from tenantzone_cli.api import Api
from tenantzone_cli.resources import Zone, read_zone
from tenantzone_cli.table import render, shown
from tenantzone_contract.kube_names import API, ZONES, resource_path
from tenantzone_contract.zone_config.config import PURGE_ANNOTATION
from tenantzone_contract.zone_config.specs import Body

_LOOK_SECONDS = 0.2
_QUIET_SECONDS = 2.0
"""Seconds after which the wait for engines begins to show its progress."""


class PurgeError(Exception):
    """The purge is impossible, or was not complete within the timeout; the message says why."""


def new_id(now: float) -> str:
    """Returns a unique id for a purge, from the time and a random part."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{secrets.token_hex(4)}"


def ask(api: Api, namespace: str, name: str, purge: str) -> None:
    """Request a purge of an accepted zone, by setting the zone's annotation.

    Raises:
        ApiError: the zone does not exist, or the user may not patch it.
        Unreachable: the API server does not answer.
        PurgeError: the zone is not accepted, so no engine would get the purge.
    """
    zone = _read(api, namespace, name)
    accepted = zone.condition("Accepted")
    if accepted is None:
        raise PurgeError(f"no operator has handled zone {namespace}/{name} yet; run kubectl tenantzone doctor")
    if accepted.status != "True":
        raise PurgeError(f"zone {namespace}/{name} is not accepted, so it can't be purged: {accepted.message}")
    patch = json.dumps({"metadata": {"annotations": {PURGE_ANNOTATION: purge}}})
    headers = {"Content-Type": "application/merge-patch+json"}
    api.ask("PATCH", _path(namespace, name), body=patch, headers=headers)


def wait(api: Api, namespace: str, name: str, purge: str, timeout: float, show: Callable[[str], None]) -> Body:
    """Wait until every engine has acknowledged a purge, and return the purge's record from the zone's status.

    Args:
        api: a client of the API server.
        namespace: the zone's namespace.
        name: the zone's name.
        purge: the id of the requested purge.
        timeout: the maximum wait in seconds.
        show: called with a text whenever the progress changes, if the wait takes long.

    Raises:
        ApiError: the API server refuses a request.
        Unreachable: the API server does not answer.
        PurgeError: the purge was not complete within the timeout, or another purge has replaced it.
    """
    began, shown = time.monotonic(), ""
    while True:
        zone = _read(api, namespace, name)
        record = zone.status.get("purge") or {}
        if record.get("id") == purge and "completedAt" in record:
            return dict(record)
        if zone.annotations.get(PURGE_ANNOTATION) != purge:
            raise PurgeError(f"another purge of {namespace}/{name} has replaced {purge}; it has the same effect")
        passed, state = time.monotonic() - began, _state(zone, purge)
        if passed >= timeout:
            raise PurgeError(f"the purge is not complete after {timeout:g} s, but continues: {state}")
        if passed >= _QUIET_SECONDS and state != shown:
            shown = state
            show(state)
        time.sleep(_LOOK_SECONDS)


def table(record: Body) -> Iterator[str]:
    """Iterates over the lines of a table with the result of a purge in each engine."""
    rows = [_cells(row["pod"], row) for row in record.get("engines", ())]
    yield from render(("ENGINE", "EVICTED", "WITHDRAWN", "TO ZERO"), [*rows, _cells("in all", record)])


def _cells(engine: str, counts: Body) -> tuple[str, ...]:
    return engine, *(shown(counts.get(name)) for name in ("evicted", "withdrawn", "unscrubbed"))


def _state(zone: Zone, purge: str) -> str:
    """Returns the operator's message about the progress of a purge."""
    record, condition = zone.status.get("purge") or {}, zone.condition("Purged")
    if record.get("id") == purge and condition is not None:
        return condition.message
    return f"the operator has not handled purge {purge} yet; if this persists, upgrade the operator to this release"


def _read(api: Api, namespace: str, name: str) -> Zone:
    return read_zone(api.get(_path(namespace, name)))


def _path(namespace: str, name: str) -> str:
    return resource_path(API, namespace, ZONES, name)
