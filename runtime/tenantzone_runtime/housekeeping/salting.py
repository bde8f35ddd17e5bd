"""Follows the pool's salt key in an engine: what is cached under the key before it can never be found again."""

import logging

from tenantzone_contract.report import SaltKeyStatus
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.salt import SaltKeySource
from tenantzone_runtime.settings import Settings

logger = logging.getLogger(__name__)


class Salting:
    """The key as the front door has it, from the same folder. The salts are the door's; this looks after the cache.

    Args:
        engine: whose zones.
        settings: the key's folder.
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
        """Look for a new key, and free what was cached under the one before; returns whether there was something new.

        A request that was salted under the one before keeps its blocks; what it leaves cached goes like anything else
        that nobody asks for.
        """
        is_another = self._source.poll()
        if is_another:
            evicted = self._engine.evict_cache()
            logger.warning("the salt key %s is in force; %d blocks cached before it are free", self._source.id, evicted)
        before, self.status = self.status, self._read_status()
        return self.status != before

    def _read_status(self) -> SaltKeyStatus:
        return SaltKeyStatus(id=self._source.id, error=self._source.error)
