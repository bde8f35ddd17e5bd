"""Evicts an engine's cache when the pool's salt key changes, because then no request can hit the cached blocks."""

import logging

from tenantzone_contract.reports.report import SaltKeyStatus
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.salt import SaltKeySource
from tenantzone_runtime.settings import Settings

logger = logging.getLogger(__name__)


class Salting:
    """Watches the file with the salt key, from which the frontend derives the tenants' cache salts.

    Args:
        engine: the engine of the zones.
        settings: the settings with the folder of the salt key.
    """

    def __init__(self, engine: ServedEngine, settings: Settings) -> None:
        self._engine = engine
        self._source = SaltKeySource(settings.salt_dir, settings.seal_key)
        self._source.poll()
        self.status = self._read_status()
        if self._source.id:
            logger.info("the salt key %s is in force", self._source.id)
        else:
            logger.warning(
                "there is no salt key in %s, so the engine uses its own key: cached chunks are lost on a restart, and "
                "no other engine or router computes the same block hashes; mount the pool's salt key to avoid this",
                settings.salt_dir,
            )

    def turn(self) -> bool:
        """Look for a new salt key, and evict the cache if there is one. Returns whether the status has changed.

        Requests that were salted with the previous key keep their blocks. When such a request has ended, its blocks are
        evicted like other unused blocks.
        """
        is_another = self._source.poll()
        if is_another:
            evicted = self._engine.evict_cache()
            logger.warning(
                "the salt key %s is in force; %d blocks that were cached with the previous key are free",
                self._source.id,
                evicted,
            )
        before, self.status = self.status, self._read_status()
        return self.status != before

    def _read_status(self) -> SaltKeyStatus:
        return SaltKeyStatus(id=self._source.id, error=self._source.error)
