"""Handles pools that the operator lacks rights for, for example because the chart does not list them."""

from tenantzone_operator.kube.api import explain
from tenantzone_operator.kube.pod_watch import PodsForbiddenError
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.kube.store import View
from tenantzone_operator.planning.plan import leaving, not_served
from tenantzone_operator.pool.delivery import Delivery
from tenantzone_operator.pool.outcome import Outcome
from tenantzone_operator.status.acknowledgement import History
from tenantzone_operator.status.notices import Status
from tenantzone_operator.status.statuses import ZoneStatuses, not_served_status

_FORBIDDEN = 403


class ConfigForbiddenError(Exception):
    """The operator may not read the pool's ConfigMap; the message says why."""


async def recall(delivery: Delivery, pool: Pool) -> None:
    """Read the pool's ConfigMap.

    Raises:
        ConfigForbiddenError: the operator may not read the ConfigMap.
        RestError, aiohttp.ClientError, TimeoutError: the request to the API server failed.
    """
    try:
        await delivery.recall(pool)
    except RestError as error:
        if error.status != _FORBIDDEN:
            raise
        raise ConfigForbiddenError(f"the pool's ConfigMap can't be read: {explain(error)}") from None


def was_served(pool: Pool) -> bool:
    """Returns whether the pool ever had a config, according to its status. If so, missing rights may be a mistake."""
    return bool(pool.status.get("configGeneration"))


def advice(error: PodsForbiddenError | ConfigForbiddenError) -> str:
    """Returns a text that names the missing right and says how to grant it."""
    return f"{error}; if this operator should serve the pool, add the pool to the value pools of its chart"


def not_served_outcome(
    view: View, pool: Pool, why: str, statuses: ZoneStatuses, history: History, *, before: Status, now: str
) -> Outcome:
    """Returns the statuses of a pool that the operator lacks rights for, and of the pool's zones.

    Args:
        view: the pool's objects.
        pool: the pool as stored in the API server.
        why: which rights are missing.
        statuses: computes the zones' statuses.
        history: the published snapshots, which is empty because the pool never had a config.
        before: the pool's previous status.
        now: the time as RFC 3339.
    """
    decisions = {**not_served(view.zones, why), **leaving(view.leaving)}
    zones = statuses.make([*view.zones, *view.leaving], decisions, [], history, now=now)
    return Outcome(zones, not_served_status(pool, why, before=before, now=now), ())
