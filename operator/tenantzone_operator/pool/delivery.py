"""Publishes a pool's config snapshots in a ConfigMap, and makes kubelet sync the pods that mount the ConfigMap."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tenantzone_contract.kube_names import OPERATOR, config_map_name
from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION, MAX_GENERATION, RuntimeConfig
from tenantzone_contract.zone_config.config_signature import SignatureError, sign_config, verify_config
from tenantzone_contract.zone_config.packing import ConfigFiles, pack_config, unpack_config
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.config_map import MANAGED_BY_LABEL, ConfigMap
from tenantzone_operator.kube.resources import Pod, Pool
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.logs import About
from tenantzone_operator.planning.grants import (
    MAX_READ_GENERATION,
    generation_known_to_engines,
    is_confirmed,
    plausible_generation,
)
from tenantzone_operator.pool.annotating import Annotating
from tenantzone_operator.status.acknowledgement import History

_EXCEED_SECONDS: Final = 60.0
_MAX_EXCEED_SECONDS: Final = 3600.0
"""Maximum backoff in seconds between configs with a raised generation; `_EXCEED_SECONDS` is the first backoff."""
_MAX_STEP = 1_000_000
"""The operator ignores the generation of another client's config if it exceeds the operator's by more than this."""


class Delivery:
    """Publishes one pool's config in a ConfigMap, and undoes changes of the ConfigMap by other clients.

    Once this object has published a snapshot, that snapshot is the record of the grants, whatever the ConfigMap
    contains later. Before that, the ConfigMap's content is trusted as this record only if the pool's status contains
    the content's hash. Otherwise the planning compares the content with the zones' statuses.

    Args:
        api: reads and writes the ConfigMap.
        history: records each published snapshot.
        tokens: returns the pool's admin tokens, newest first, which sign configs; empty if the operator has no key.
        log: logs writes and repairs.
    """

    def __init__(
        self, api: Api, history: History, tokens: Callable[[], Sequence[str]], log: logging.Logger | About
    ) -> None:
        self._api = api
        self._tokens = tokens
        self._history = history
        self._log = log
        self._known: ConfigMap | None = None
        """The ConfigMap as last read or written; None if it does not exist."""
        self._unconfirmed: RuntimeConfig | None = None
        """Config in the ConfigMap before this object has published a snapshot; None if there is none."""
        self._attempted: RuntimeConfig | None = None
        """Config of the last write, recorded because the write may have succeeded even without an answer."""
        self._foreign_generation = 0
        """Generation of another client's config in the ConfigMap; 0 without such a config."""
        self._known_to_engines = 0
        """Newest generation among engines that refuse the current config as too old; 0 if there is no such engine."""
        self._exceeded_at = float("-inf")
        """Monotonic time of the last config whose generation was raised because engines refused lower generations."""
        self._exceed_pause = 0.0
        """Minimum number of seconds after `_exceeded_at` until the generation may be raised again."""
        self._is_delivered = False
        self._annotating = Annotating(CONFIG_HASH_ANNOTATION, lambda pod: pod.config_hash, api, log)
        self._foreign = ""
        self.must_recall = True
        """Whether the ConfigMap must be read again, because another client may have changed it."""
        self._refused = ""
        self._config_writes = 0
        self._signed: tuple[str, str, str, Sequence[str]] | None = None
        """For the last ConfigMap with the right signature: uid, version, the pool's creation time, and the tokens."""

    @property
    def writes(self) -> int:
        """Number of writes since the start."""
        return self._config_writes + self._annotating.writes

    @property
    def not_written(self) -> str:
        """Why the newest snapshot can't be published; empty if it can be published."""
        return self._foreign or self._refused

    @property
    def in_force(self) -> RuntimeConfig | None:
        """The last published snapshot; until this object publishes one, the ConfigMap's first content, or None."""
        return self._history.newest or self._unconfirmed

    @property
    def is_confirmed(self) -> bool:
        """Whether `in_force` is a trusted record of the grants."""
        return self._history.newest is not None

    async def has_changed(self, pool: Pool) -> bool:
        """Returns whether the ConfigMap's resource version differs from the last known one."""
        version = await self._api.config_version(pool.meta.namespace, pool.meta.name)
        return version != (self._known.version if self._known is not None else None)

    async def recall(self, pool: Pool) -> None:
        """Read the ConfigMap, and find out whether it contains the newest snapshot or must be repaired."""
        found = await self._api.read_config(pool.meta.namespace, pool.meta.name)
        # The operator still owns its ConfigMap after another client has removed the labels and owners.
        was_ours = found is not None and self._known is not None and found.uid == self._known.uid and not self._foreign
        if found is not None and not was_ours and not found.belongs_to(pool):
            self._know_foreign(found, pool)
            return
        self._annotating.look_again()
        self._known, self._foreign, self._foreign_generation = found, "", 0
        config = await self._read(found) if found is not None else None
        newest = self._history.newest
        # A config with a higher generation than the status is valid, because the operator writes the status later.
        least = plausible_generation(pool.status.get("configGeneration", 0)) if newest is None else 0
        most = MAX_GENERATION if newest is not None or await self._is_signed(found, pool) else MAX_READ_GENERATION
        is_sound = config is not None and least <= config.generation < most
        if config is not None and not is_sound:
            self._log.warning("repairing the pool's ConfigMap: another client wrote generation %d", config.generation)
            # The hash does not cover the generation, so the grants in the config are still valid.
            config = config.model_copy(update={"generation": least + 1}) if newest is None else None
        if newest is None:
            self._unconfirmed = config
        if found is not None and config is not None and self._is_own(config, pool):
            self._history.record(config, found.files.size)
        elif newest is not None and config is not None and config != newest:
            self._note_foreign(config, newest)
        self._is_delivered = is_sound and config == self.in_force
        self.must_recall = False

    def _is_own(self, config: RuntimeConfig, pool: Pool) -> bool:
        """Returns whether an operator wrote the config in the ConfigMap, and the config is newer than the known one.

        The newest content with a later generation also counts. Otherwise two operators that lead at the same time would
        raise the generation in turn forever.
        """
        newest = self._history.newest
        if newest is None:
            return is_confirmed(config, pool.status)
        step = config.generation - newest.generation
        return step > 0 and (config == self._attempted or (config.hash == newest.hash and step <= _MAX_STEP))

    def _note_foreign(self, config: RuntimeConfig, newest: RuntimeConfig) -> None:
        """Log that the ConfigMap contains another client's config or an outdated config, and note its generation."""
        self._log.warning(
            "repairing the pool's ConfigMap: its config, generation %d, differs from the newest config, generation %d",
            config.generation,
            newest.generation,
        )
        if newest.generation <= config.generation <= newest.generation + _MAX_STEP:
            self._foreign_generation = config.generation

    def _know_foreign(self, found: ConfigMap, pool: Pool) -> None:
        name = config_map_name(pool.meta.name)
        self._known, self._is_delivered, self.must_recall = found, False, False
        self._foreign = (
            f"the ConfigMap {name} does not belong to the operator: it has no label {MANAGED_BY_LABEL}: {OPERATOR}; "
            f"delete the ConfigMap, or choose another name for the pool"
        )

    async def _read(self, found: ConfigMap) -> RuntimeConfig | None:
        """Returns the snapshot in a ConfigMap; None if it can't be read."""
        try:
            return await asyncio.to_thread(unpack_config, found.files)
        except (ValueError, RecursionError) as error:
            self._log.warning("repairing the pool's ConfigMap: its config is invalid: %s", printable(str(error), 1000))
            return None

    async def _is_signed(self, found: ConfigMap | None, pool: Pool) -> bool:
        """Returns whether the config has a valid signature for this pool, made with a key that this process has."""
        if found is None:
            return False
        tokens = [token.encode() for token in self._tokens()]
        try:
            created = await asyncio.to_thread(verify_config, found.files.signed, found.files.signature, tokens)
        except SignatureError:
            return False
        return created == pool.meta.created

    async def _is_in_order(self, pool: Pool) -> bool:
        """Returns whether the ConfigMap has the right labels, owner and signature, and contains only the config."""
        known, tokens = self._known, self._tokens()
        if known is None or not known.is_in_order(pool):
            return False
        about = known.uid, known.version, pool.meta.created, tokens
        # Without tokens, the operator can neither verify nor create signatures.
        if tokens and about != self._signed:
            expected = await asyncio.to_thread(sign_config, known.files.signed, tokens, pool.meta.created)
            if known.files.signature != expected:
                return False
            self._signed = about
        return True

    def exceed_engines(self, pool: Pool, observations: Sequence[Observation]) -> None:
        """Raise the generation of the next config if engines refuse the current config as older than their own.

        Each raise makes all engines of the pool read a new config. To limit the configs that an engine can cause by
        false reports, the pause after a raise starts at one minute, and doubles each time.
        """
        now = time.monotonic()
        if now > self._exceeded_at + _MAX_EXCEED_SECONDS:
            self._exceed_pause = 0.0
        if self.in_force is not None and now >= self._exceeded_at + self._exceed_pause:
            self._known_to_engines = generation_known_to_engines(
                observations, self.in_force.generation, pool.meta.created, time.time()
            )

    async def deliver(self, pool: Pool, pods: Sequence[Pod], config: RuntimeConfig) -> bool:
        """Write the ConfigMap if its config or signature differs, then annotate the pods that lack this config's hash.

        Returns:
            Whether the ConfigMap was written.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: a write failed.
        """
        if self._foreign:
            return False
        too_low = max(self._foreign_generation, self._known_to_engines)
        if config.generation <= too_low:
            config = config.model_copy(update={"generation": too_low + 1})
        is_new = config != self.in_force or not (self._is_delivered and await self._is_in_order(pool))
        if is_new:
            files = await asyncio.to_thread(_pack, config, self._tokens(), pool.meta.created)
            self._attempted = config
            await self._write(pool, files)
            self._history.record(config, files.size)
            self._is_delivered, self._foreign_generation = True, 0
            if self._known_to_engines:
                self._log.warning("raised the generation: engines refuse configs older than %d", self._known_to_engines)
                self._exceeded_at, self._known_to_engines = time.monotonic(), 0
                self._exceed_pause = min(max(_EXCEED_SECONDS, 2 * self._exceed_pause), _MAX_EXCEED_SECONDS)
            values = pool.meta.namespace, pool.meta.name, config.generation, len(config.zones)
            self._log.info("pool %s/%s: config %d, %d zones", *values, extra={"generation": config.generation})
        elif self._known is not None and config is not self._history.newest:
            self._history.record(config, self._known.files.size)
        await self._annotating.annotate([(pod, config.hash) for pod in pods])
        return is_new

    @property
    def retry_seconds(self) -> float | None:
        """Seconds after which to retry a refused write; None if no write was refused."""
        return self._annotating.retry_seconds

    async def _write(self, pool: Pool, files: ConfigFiles) -> None:
        try:
            self._known = await self._api.write_config(pool, files, self._known)
        except RestError as error:
            if error.is_lasting:
                self._refused = explain(error)
            raise
        self._config_writes += 1
        self._refused = ""


def _pack(config: RuntimeConfig, tokens: Sequence[str], pool_created: str) -> ConfigFiles:
    files = pack_config(config)
    return replace(files, signature=sign_config(files.signed, tokens, pool_created)) if tokens else files
