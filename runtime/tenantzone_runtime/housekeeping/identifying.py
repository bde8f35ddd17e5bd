"""Reports how the frontend identifies tenants, by running the frontend's code on the same folders."""

from tenantzone_contract.reports.report import IdentityReport
from tenantzone_contract.zone_config.identity import IdentityConfig, identity_digest
from tenantzone_runtime.frontend.identities.choice import make_identity
from tenantzone_runtime.frontend.identities.key_ring import KeyRing
from tenantzone_runtime.settings import Settings


class Identifying:
    """Reads the sources of the identity in force."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.identity_dir
        self._keys = KeyRing(settings.keys_dir, settings.seal_key)
        self._declared: IdentityConfig | None = None
        self._identity = make_identity(None, self._keys, self._folder)

    def read_on(self) -> None:
        """Read the next part of the key files, if some of them have not been read yet."""
        if self._keys.is_partly_read:
            self._keys.refresh()

    @property
    def keys_digest(self) -> str:
        """Digest of the API keys at the last read."""
        return self._keys.digest

    def look(self, declared: IdentityConfig | None) -> IdentityReport:
        """Returns the current report of an identity.

        Args:
            declared: the identity in the config in force.
        """
        if declared != self._declared:
            self._declared = declared
            self._identity = make_identity(declared, self._keys, self._folder)
        if declared is None or declared.api_keys is not None:
            self._keys.refresh()
        self._identity.refresh()
        kind = declared.kind if declared is not None else "APIKeys"
        return IdentityReport(
            kind=kind, digest=identity_digest(declared), problem=self._identity.problem, keys=self._keys.digest
        )
