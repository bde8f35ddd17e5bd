"""Pools that the operator's rights do not reach, as where the chart lists the pools that are served."""

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
    """Read what the pool's ConfigMap holds.

    Raises:
        ConfigForbiddenError: the operator may not.
        RestError, aiohttp.ClientError, TimeoutError: the API server is in trouble; it may be over soon.
    """
    try:
        await delivery.recall(pool)
    except RestError as error:
        if error.status != _FORBIDDEN:
            raise
        raise ConfigForbiddenError(f"its ConfigMap can't be read: {explain(error)}") from None


def was_served(pool: Pool) -> bool:
    """Whether the pool ever had a config, by its status. Then what is missing may be an accident, and it is kept."""
    return bool(pool.status.get("configGeneration"))


def advice(error: PodsForbiddenError | ConfigForbiddenError) -> str:
    """What is missing, and what to do if the pool is to be served."""
    return f"{error}; if this operator is to serve the pool, add it to the value pools of its chart"


def not_served_outcome(
    view: View, pool: Pool, why: str, statuses: ZoneStatuses, history: History, *, before: Status, now: str
) -> Outcome:
    """The statuses of a pool that is not served, and of its zones.

    Args:
        view: of the pool.
        pool: as the API server has it.
        why: what is missing.
        statuses: makes those of the zones.
        history: the snapshots that were given out: none.
        before: the pool's status until now.
        now: RFC 3339.
    """
    decisions = {**not_served(view.zones, why), **leaving(view.leaving)}
    zones = statuses.make([*view.zones, *view.leaving], decisions, [], history, now=now)
    return Outcome(zones, not_served_status(pool, why, before=before, now=now), ())
