"""The active config of the frontend: how tenants are identified, which keys are valid, which tenants have a zone."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tenantzone_contract.zone_config.config import RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.identity import IdentityConfig
from tenantzone_runtime.frontend.identities.asking import Identity, unusable
from tenantzone_runtime.frontend.identities.choice import has_identity_files, make_identity
from tenantzone_runtime.frontend.identities.key_ring import KeyRing
from tenantzone_runtime.frontend.responses.answers import Refusal, Scope
from tenantzone_runtime.logs import describe_process
from tenantzone_runtime.reload import ConfigSource
from tenantzone_runtime.salt import SaltKeySource
from tenantzone_runtime.settings import Settings
from tenantzone_runtime.state_folder import UnsafeFolder, check_state_folder

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""Age in seconds above which a request starts to read the config again in the background."""
MAX_AGE_SECONDS = 0.2
"""Age in seconds above which a request waits until the config has been read again."""


class ActiveConfig:
    """The active config. It is read from the pod's mounted folders, and from the folder to which the engine writes.

    Args:
        settings: the process's settings, with the paths of the mounted folders.
        state_dir: the folder in which the engine publishes the config that it enforces.
        has_changed: called, on any thread, when another config becomes active.
    """

    def __init__(self, settings: Settings, state_dir: Path, has_changed: Callable[[], None]) -> None:
        self._identity_dir = settings.identity_dir
        self._has_changed = has_changed
        self._keys = KeyRing(settings.keys_dir, settings.seal_key)
        # Read the engine's folder, not the operator's, because the engine may have refused the operator's config.
        self._source = ConfigSource(state_dir)
        self._state_dir = state_dir
        self._unsafe = ""
        """Reason why the engine's folder is unsafe and so is not read; empty if the folder is safe."""
        self._salt = SaltKeySource(settings.salt_dir, settings.seal_key)
        self._declared: IdentityConfig | None = None
        self._has_identity_files = False
        """Whether a secret, CAs or token keys are or were mounted. They identify tenants in pools without API keys."""
        self._registers_unknown = False
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = 0.0
        self.identity: Identity = make_identity(None, self._keys, self._identity_dir)
        self.zones: Mapping[str, ZoneConfig] = {}
        """The declared zones, by tenant."""
        self.look()

    @property
    def config(self) -> RuntimeConfig | None:
        """The active config; None until the engine has published a config."""
        return self._source.config

    @property
    def salt_key(self) -> bytes:
        return self._salt.key

    @property
    def salt_key_id(self) -> str:
        """The id of the pool's salt key; empty if this engine uses its own key."""
        return self._salt.id

    @property
    def keys_digest(self) -> str:
        """An HMAC of the valid API keys, which only this engine's processes can compute."""
        return self._keys.digest

    @property
    def is_required(self) -> bool:
        """Whether each request must be identified with a tenant; if False, requests pass unchanged."""
        return self._keys.required or self._has_identity_files or self.config is not None

    def tenant_of(self, scope: Scope, identity: Identity) -> str:
        """Returns the tenant of a request.

        Args:
            scope: the request's ASGI scope.
            identity: the identity that was active when the request arrived.

        Raises:
            Refusal: no tenant can be identified, or the tenant has no zone and the pool registers no unknown tenants.
        """
        if self.config is None and self._has_identity_files:
            raise unusable()
        tenant = identity.tenant_of(scope)
        if self.config is not None and tenant not in self.zones and not self._registers_unknown:
            raise Refusal(
                403,
                "no_zone",
                f"Tenant {tenant!r} has no zone on this engine; ask the administrator for a "
                "TenantZone in the engine's pool",
            )
        return tenant

    async def look_if_due(self) -> None:
        """Read the folders again if the last read began more than `LOOK_SECONDS` ago."""
        age = time.monotonic() - self._looked_at
        if age <= LOOK_SECONDS:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(asyncio.to_thread(self.look))
        if age > MAX_AGE_SECONDS:
            # Wait only if the config is this old. All waiting requests continue at once, and so delay later requests.
            await asyncio.shield(self._looking)

    def look(self) -> None:
        """Read what has changed in the folders, and activate a new config, new keys and a new identity."""
        began = time.monotonic()
        self._keys.refresh()
        self._salt.poll()
        self._has_identity_files = self._has_identity_files or has_identity_files(self._identity_dir)
        if self._is_safe() and self._source.poll():
            self._has_changed()
            if (config := self.config) is not None:
                self._take(config)
            if rejection := self._source.rejection:
                _log.error("the frontend keeps its last good config: %s", rejection.error)
        declared = self.config.pool.identity if self.config is not None else None
        if declared != self._declared:
            # Set `_declared` last. If making the identity fails, the next call then retries it.
            self.identity = make_identity(declared, self._keys, self._identity_dir)
            self._declared = declared
        self.identity.refresh()
        self._looked_at = began

    def _is_safe(self) -> bool:
        """Returns False, and logs each new reason, if the engine's folder is unsafe. Returns True if a check fails."""
        unsafe = ""
        try:
            check_state_folder(self._state_dir)
        except UnsafeFolder as error:
            unsafe = str(error)
        except OSError:  # `self._source.poll` reports this error
            pass
        if unsafe and unsafe != self._unsafe:
            _log.error("the frontend keeps its last good config: %s", unsafe)
        self._unsafe = unsafe
        return not unsafe

    def _take(self, config: RuntimeConfig) -> None:
        self.zones = {zone.tenant: zone for zone in config.zones}
        self._registers_unknown = config.pool.unknown_tenants.mode == "AutoRegister"
        describe_process(pool=config.pool.name, pool_namespace=config.pool.namespace, generation=config.generation)
