"""The Secret with a pool's admin token, which its engines mount, and whoever scrapes them."""

from collections.abc import Sequence

from tenantzone_contract.admin_token import admin_secret_data, admin_secret_name
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.pool.pool_secret import PoolSecret


async def ensure_admin_secret(
    secret: PoolSecret, pool: Pool, observations: Sequence[Observation], tokens: Sequence[str]
) -> None:
    """Make the Secret with the pool's tokens if it may be missing, and if there are any.

    Raises:
        RestError, aiohttp.ClientError, TimeoutError: it could not be made, and may be when it is tried again.
    """
    if tokens:
        name, data = admin_secret_name(pool.meta.name), admin_secret_data(tokens)
        await secret.ensure(pool, name, data, is_wanted=tokens_may_be_missing(observations))


def tokens_may_be_missing(observations: Sequence[Observation]) -> bool:
    """Whether anything says that the Secret is not there: no engine, or one whose port is open or knows no token."""
    reports = [seen.report for seen in observations]
    return not reports or any(report is None or report.admin_is_open or report.admin_error for report in reports)
