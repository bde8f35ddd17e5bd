"""Creates the Secret with a pool's admin token, which engines and metric scrapers mount."""

from collections.abc import Sequence

from tenantzone_contract.keys.admin_token import admin_secret_data, admin_secret_name
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.pool.pool_secret import PoolSecret


async def ensure_admin_secret(
    secret: PoolSecret, pool: Pool, observations: Sequence[Observation], tokens: Sequence[str]
) -> None:
    """Create the Secret with the pool's admin tokens if it may be missing. Without tokens, do nothing.

    Raises:
        RestError, aiohttp.ClientError, TimeoutError: the Secret could not be created, but retrying may help.
    """
    if tokens:
        name, data = admin_secret_name(pool.meta.name), admin_secret_data(tokens)
        await secret.ensure(pool, name, data, is_wanted=tokens_may_be_missing(observations))


def tokens_may_be_missing(observations: Sequence[Observation]) -> bool:
    """Returns whether the Secret may be missing: no engine is ready, or an engine's admin port has no valid token."""
    reports = [seen.report for seen in observations]
    return not reports or any(report is None or report.admin_is_open or report.admin_error for report in reports)
