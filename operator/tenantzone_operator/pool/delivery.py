"""Delivers a pool's snapshots: into its ConfigMap, and to the pods whose kubelet must learn of them."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tenantzone_contract.config import CONFIG_HASH_ANNOTATION, MAX_GENERATION, RuntimeConfig
from tenantzone_contract.config_signature import SignatureError, sign_config, verify_config
from tenantzone_contract.packing import ConfigFiles, pack_config, unpack_config
from tenantzone_contract.text import printable
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.config_map import ConfigMap
from tenantzone_operator.kube.names import FIELD_MANAGER, MANAGED_BY_LABEL, config_map_name
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
"""The least time between two configs that are written because engines refuse the current one as older, and the most."""
_MAX_STEP = 1_000_000
"""Generations that others write are gone on with if they are at most this far above the newest one."""


class Delivery:
    """The ConfigMap of one pool; what anybody else writes into it is undone.

    What was given out here is what was granted, whatever the ConfigMap holds later. What it holds at first is what was
    granted only if the pool's status names its hash; else the planning compares it with the zones' statuses.

    Args:
        api: for reading and writing it.
        history: records each snapshot that was given out.
        tokens: returns the pool's admin tokens, the newest first, by which configs are signed; none without a key.
        log: where it says so.
    """

    def __init__(
        self, api: Api, history: History, tokens: Callable[[], Sequence[str]], log: logging.Logger | About
    ) -> None:
        self._api = api
        self._tokens = tokens
        self._history = history
        self._log = log
        self._known: ConfigMap | None = None
        """As it was read or written last."""
        self._unconfirmed: RuntimeConfig | None = None
        """What it held at first, as long as nothing was given out here."""
        self._attempted: RuntimeConfig | None = None
        """What was last sent to the API server, which may have taken it although no answer came."""
        self._foreign_generation = 0
        """The generation of a config that others wrote over the newest one; 0: there is none."""
        self._known_to_engines = 0
        """A generation that engines know, and refuse the current config because it is older; 0: there is none."""
        self._exceeded_at = float("-inf")
        """When a config was last written because of that, by the monotonic clock."""
        self._exceed_pause = 0.0
        """Seconds from then until the next one."""
        self._is_delivered = False
        self._annotating = Annotating(CONFIG_HASH_ANNOTATION, lambda pod: pod.config_hash, api, log)
        self._foreign = ""
        self.must_recall = True
        """Whether another client may have changed it."""
        self._refused = ""
        self._config_writes = 0
        self._signed: tuple[str, str, str, Sequence[str]] | None = None
        """Uid and version of the ConfigMap whose signature was good when it was last verified, with what it was for."""

    @property
    def writes(self) -> int:
        """How many were made since the start."""
        return self._config_writes + self._annotating.writes

    @property
    def not_written(self) -> str:
        """Why the newest snapshot can't be given out; empty if it can."""
        return self._foreign or self._refused

    @property
    def in_force(self) -> RuntimeConfig | None:
        """What engines were given last, as far as is known."""
        return self._history.newest or self._unconfirmed

    @property
    def is_confirmed(self) -> bool:
        """Whether that is what was granted."""
        return self._history.newest is not None

    async def has_changed(self, pool: Pool) -> bool:
        """Whether the ConfigMap has another version than the one that is known."""
        version = await self._api.config_version(pool.meta.namespace, pool.meta.name)
        return version != (self._known.version if self._known is not None else None)

    async def recall(self, pool: Pool) -> None:
        """Read what the ConfigMap holds, and compare it with what was given out."""
        found = await self._api.read_config(pool.meta.namespace, pool.meta.name)
        # A ConfigMap of ours stays ours if another client removes its labels and owners.
        was_ours = found is not None and self._known is not None and found.uid == self._known.uid and not self._foreign
        if found is not None and not was_ours and not found.belongs_to(pool):
            self._know_foreign(found, pool)
            return
        self._annotating.look_again()
        self._known, self._foreign, self._foreign_generation = found, "", 0
        config = await self._read(found) if found is not None else None
        newest = self._history.newest
        # Of the newest config the status need not be there yet.
        least = plausible_generation(pool.status.get("configGeneration", 0)) if newest is None else 0
        most = MAX_GENERATION if newest is not None or await self._is_signed(found, pool) else MAX_READ_GENERATION
        is_sound = config is not None and least <= config.generation < most
        if config is not None and not is_sound:
            self._log.warning("the pool's ConfigMap is repaired: another client wrote generation %d", config.generation)
            # The generation is not in the hash: what was granted is as it was.
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
        """Whether a config that was read is newer than what is known, and what an operator gave out.

        The newest content in a later generation is that, too: two operators that lead at once would else go on for ever
        to write it in a generation above each other's.
        """
        newest = self._history.newest
        if newest is None:
            return is_confirmed(config, pool.status)
        step = config.generation - newest.generation
        return step > 0 and (config == self._attempted or (config.hash == newest.hash and step <= _MAX_STEP))

    def _note_foreign(self, config: RuntimeConfig, newest: RuntimeConfig) -> None:
        """Note that the ConfigMap holds what the operator did not give out, or what it gave out before the newest."""
        self._log.warning(
            "the pool's ConfigMap is repaired: it holds another config %d than the newest one, %d",
            config.generation,
            newest.generation,
        )
        if newest.generation <= config.generation <= newest.generation + _MAX_STEP:
            self._foreign_generation = config.generation

    def _know_foreign(self, found: ConfigMap, pool: Pool) -> None:
        name = config_map_name(pool.meta.name)
        self._known, self._is_delivered, self.must_recall = found, False, False
        self._foreign = (
            f"the ConfigMap {name} is not the operator's: it has no label {MANAGED_BY_LABEL}: {FIELD_MANAGER}; "
            f"delete it, or name the pool otherwise"
        )

    async def _read(self, found: ConfigMap) -> RuntimeConfig | None:
        """The snapshot in a ConfigMap; None if it can't be read."""
        try:
            return await asyncio.to_thread(unpack_config, found.files)
        except (ValueError, RecursionError) as error:
            self._log.warning("the pool's ConfigMap is repaired, it can't be read: %s", printable(str(error), 1000))
            return None

    async def _is_signed(self, found: ConfigMap | None, pool: Pool) -> bool:
        """Returns whether an operator signed the config for this pool with a key that is known here."""
        if found is None:
            return False
        tokens = [token.encode() for token in self._tokens()]
        try:
            created = await asyncio.to_thread(verify_config, found.files.signed, found.files.signature, tokens)
        except SignatureError:
            return False
        return created == pool.meta.created

    async def _is_in_order(self, pool: Pool) -> bool:
        """Whether the known ConfigMap has the pool's labels, owner and signature, and nothing but the config."""
        known, tokens = self._known, self._tokens()
        if known is None or not known.is_in_order(pool):
            return False
        about = known.uid, known.version, pool.meta.created, tokens
        # Without a key no signature can be verified, nor made.
        if tokens and about != self._signed:
            expected = await asyncio.to_thread(sign_config, known.files.signed, tokens, pool.meta.created)
            if known.files.signature != expected:
                return False
            self._signed = about
        return True

    def exceed_engines(self, pool: Pool, observations: Sequence[Observation]) -> None:
        """Make the next config newer than what engines know, if they refuse the current one because it is older.

        Each such config is read by all engines of the pool. After one, the next takes at least a minute, and twice as
        long each time, so that an engine that lies causes few.
        """
        now = time.monotonic()
        if now > self._exceeded_at + _MAX_EXCEED_SECONDS:
            self._exceed_pause = 0.0
        if self.in_force is not None and now >= self._exceeded_at + self._exceed_pause:
            self._known_to_engines = generation_known_to_engines(
                observations, self.in_force.generation, pool.meta.created, time.time()
            )

    async def deliver(self, pool: Pool, pods: Sequence[Pod], config: RuntimeConfig) -> bool:
        """Write the ConfigMap if it or its signature differs, then annotate pods whose kubelet does not know it yet.

        Returns:
            Whether it was written.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: something could not be written.
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
                self._log.warning("engines refused configs older than %d: the new one is newer", self._known_to_engines)
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
        """Seconds after which to try again a write that was refused; None if none was."""
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
