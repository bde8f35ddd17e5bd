"""Creates the Secret with a pool's salt key, which engines mount."""

from collections.abc import Sequence

from tenantzone_contract.keys.salt import SALT_KEY_FILE, new_salt_key, salt_secret_name
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.pool.pool_secret import PoolSecret


async def ensure_salt_secret(secret: PoolSecret, pool: Pool, observations: Sequence[Observation]) -> None:
    """Create the Secret with the pool's salt key if it may be missing.

    Raises:
        RestError, aiohttp.ClientError, TimeoutError: the Secret could not be created, but retrying may help.
    """
    data = {SALT_KEY_FILE: new_salt_key().hex().encode()}
    await secret.ensure(pool, salt_secret_name(pool.meta.name), data, is_wanted=may_be_missing(observations))


def may_be_missing(observations: Sequence[Observation]) -> bool:
    """Returns whether the Secret may be missing: no engine is ready, or an engine lacks the pool's key."""
    reports = [seen.report for seen in observations]
    return not reports or any(report is None or not report.salt_key_id or report.salt_key_error for report in reports)
