"""Applies the newest config from the config folder to the engine, and reports the outcome."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from tenantzone_contract.reports.report import ConfigStatus, Rejection
from tenantzone_contract.zone_config.config import ConfigError, RuntimeConfig
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.logs import describe_process
from tenantzone_runtime.metrics.figures import ReloadResult
from tenantzone_runtime.reload import ConfigSource

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Seconds until the first retry of a config that could not be applied, although its content is valid."""
MAX_RETRY_SECONDS = 300.0
"""Maximum seconds between two retries. Each failed retry doubles the time until the next."""
_NAMED_ZONES = 5


class Reloading:
    """Applies each new config in the config folder to an engine's zones.

    Args:
        engine: the engine of the zones.
        folder: the folder in which the pool's ConfigMap is mounted.
        refused: called once for each refused config, with its generation and the error.
        tokens: returns the pool's admin tokens. A config must be signed with one of them. None for unsigned configs.
    """

    def __init__(
        self,
        engine: ServedEngine,
        folder: Path,
        refused: Callable[[int | None, str], None],
        tokens: Callable[[], Sequence[bytes]] | None = None,
    ) -> None:
        self._engine = engine
        self._source = ConfigSource(folder, tokens=tokens)
        self._refused = refused
        self.status = ConfigStatus(demands_signature=tokens is not None)
        """The config that is completely in force, if any, and the newest config's rejection, if it was rejected."""
        self.in_force: RuntimeConfig | None = None
        """The last config that was completely enforced; None if there was none yet."""
        self.reloads: dict[ReloadResult, int] = {"applied": 0, "rejected": 0}
        self._pause = RETRY_SECONDS
        self._try_again_at: float | None = None

    def turn(self) -> bool:
        """Apply a new config, if there is one. Returns whether there was a new config."""
        if self._try_again_at is not None and time.monotonic() >= self._try_again_at:
            self._try_again_at = None
            self._source.read_again()
        has_news = self._source.poll()
        if has_news:
            self._take()
        return has_news

    def _take(self) -> None:
        config = self._source.config
        cause = self._apply(config) if config is not None and not self._is_in_force(config) else None
        rejected = self._source.rejection
        if rejected is not None:
            rejected = self._tell(rejected, cause)
        self.status = replace(self.status, rejected=rejected)

    def _is_in_force(self, config: RuntimeConfig) -> bool:
        return (config.generation, config.hash) == (self.status.applied_generation, self.status.applied_hash)

    def _apply(self, config: RuntimeConfig) -> Exception | None:
        """Apply a config. If that fails, restore the previous config. Returns the error if a retry may succeed."""
        cause = self._enforce(config)
        if cause is None:
            self.reloads["applied"] += 1
            self._pause, self._try_again_at = RETRY_SECONDS, None
            describe_process(pool=config.pool.name, pool_namespace=config.pool.namespace, generation=config.generation)
            logger.info("config %d is in force: %d zones", config.generation, len(config.zones))
            return None
        before = self._source.fallback
        not_put_back = self._enforce(before) if before is not None and not self._is_in_force(before) else None
        if isinstance(cause, ConfigError) and not_put_back is None:
            self._source.refuse(str(cause))
            return None
        self._source.refuse(_explain(cause, not_put_back))
        self._try_again_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, MAX_RETRY_SECONDS)
        return cause

    def _enforce(self, config: RuntimeConfig) -> Exception | None:
        """Enforce a config. Returns the error, if any. After a ConfigError, the previous config is still in force."""
        try:
            lacking = self._engine.apply_config(config)
        except ConfigError as error:
            return error
        except Exception as error:
            # The config may be in force in some zones only.
            self._set_applied(None, None, None)
            return error
        self._set_applied(config.generation, config.hash, time.time())
        self.in_force = config
        if lacking:
            _warn_of_too_few_blocks(config, lacking)
        return None

    def _set_applied(self, generation: int | None, hash: str | None, unix_time: float | None) -> None:
        self.status = replace(
            self.status, applied_generation=generation, applied_hash=hash, applied_unix_time=unix_time
        )

    def _tell(self, rejected: Rejection, cause: Exception | None) -> Rejection:
        """Count and log a rejection, and return it. If it repeats the last reported rejection, only return that one."""
        reported = self.status.rejected
        if reported is not None and (reported.generation, reported.error) == (rejected.generation, rejected.error):
            return reported
        self.reloads["rejected"] += 1
        refused = {"generation": rejected.generation} if rejected.generation is not None else {}
        logger.error(
            "rejected the config; the last good config stays in force: %s",
            rejected.error,
            extra=refused,
            exc_info=cause,
        )
        self._refused(rejected.generation, rejected.error)
        return rejected


def _warn_of_too_few_blocks(config: RuntimeConfig, lacking: Mapping[str, int]) -> None:
    named = ", ".join(f"{zone} ({blocks} blocks)" for zone, blocks in islice(lacking.items(), _NAMED_ZONES))
    more = f" and {len(lacking) - _NAMED_ZONES} more" if len(lacking) > _NAMED_ZONES else ""
    logger.warning(
        "this engine has too few blocks for config %d, so it reserves none for %s%s",
        *(config.generation, named, more),
        extra={"generation": config.generation},
    )


def _explain(cause: Exception, not_put_back: Exception | None) -> str:
    text = f"the config could not be applied, and is tried again: {_name(cause)}"
    if not_put_back is None:
        return text
    return f"{text}; the previous config could not be restored, so only a part of it is in force: {_name(not_put_back)}"


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
