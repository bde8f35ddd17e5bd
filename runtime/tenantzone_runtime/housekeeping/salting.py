"""Follows the pool's salt key in an engine: blocks cached under the previous key can never be found again."""

import logging

from tenantzone_contract.report import SaltKeyStatus
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.salt import SaltKeySource
from tenantzone_runtime.settings import Settings

logger = logging.getLogger(__name__)


class Salting:
    """The salt key, read from the frontend's folder. The frontend makes the salts; this evicts the cache.

    Args:
        engine: the engine of the zones.
        settings: the settings, with the key's folder.
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
                "no salt key in %s: the engine uses one of its own, so after a restart nothing that is cached is found "
                "again, and no other engine or router computes the same block hashes",
                settings.salt_dir,
            )

    def turn(self) -> bool:
        """Look for a new key, and evict what was cached under the previous one. Returns whether the status has changed.

        A request that was salted with the previous key keeps its blocks; its cached blocks are later evicted like any
        that no request uses.
        """
        is_another = self._source.poll()
        if is_another:
            evicted = self._engine.evict_cache()
            logger.warning("the salt key %s is in force; %d blocks cached before it are free", self._source.id, evicted)
        before, self.status = self.status, self._read_status()
        return self.status != before

    def _read_status(self) -> SaltKeyStatus:
        return SaltKeyStatus(id=self._source.id, error=self._source.error)
