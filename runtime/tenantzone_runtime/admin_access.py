"""Access to the admin port, by a valid token."""

import hmac
import logging
import threading
from pathlib import Path

from tenantzone_contract.admin_token import ACCEPTED_FILE, ADMIN_TOKEN_HEADER, parse_accepted
from tenantzone_contract.report import AdminPortStatus
from tenantzone_runtime.mounted_file import MountedFile

_log = logging.getLogger(__name__)

_SCHEME = "bearer "


class AdminAccess:
    """The tokens of a folder, and the check of requests against them.

    If the file becomes invalid or disappears, the previous tokens stay valid until there are new ones. Until there are
    any tokens, no request is permitted.

    Args:
        folder: the folder into which the pool's Secret is mounted. It need not exist yet. None permits every request.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / ACCEPTED_FILE if folder is not None else None
        self._file: MountedFile[tuple[bytes, ...]] | None = None
        self._accepted: tuple[bytes, ...] = ()
        self._refused = 0
        self._counting = threading.Lock()
        if folder is not None:
            self._file = MountedFile(folder, ACCEPTED_FILE, parse_accepted, about="the admin port's tokens")
        else:
            _log.warning("the admin port is open: whoever reaches it reads what all tenants hold")
        self.poll()

    @property
    def refused(self) -> int:
        """The number of refused requests since the start."""
        return self._refused

    @property
    def status(self) -> AdminPortStatus:
        """The admin port's status in the report."""
        if self._file is None:
            return AdminPortStatus(open=True)
        return AdminPortStatus(error=self._file.problem)

    def poll(self) -> None:
        """Check the file, and read it if it has changed."""
        if self._file is None:
            return
        self._file.refresh()
        if self._file.value is not None:
            self._accepted = self._file.value

    def refusal(self, authorization: str, token: str) -> str:
        """Returns why a request is refused, and what it needs; empty if it is permitted. Thread-safe.

        Args:
            authorization: the request's ``Authorization`` header; empty if missing.
            token: the request's ``TenantZone-Admin-Token`` header; empty if missing.
        """
        why = "" if self._file is None else self._refusal(authorization, token)
        if why:
            with self._counting:
                self._refused += 1
        return why

    def _refusal(self, authorization: str, token: str) -> str:
        if not self._accepted:
            return (
                f"the admin port is closed: there is no token in {self._path}; mount the pool's "
                "Secret tenantzone-admin-POOL there, or start the engine with --admin-open"
            )
        if authorization[: len(_SCHEME)].lower() == _SCHEME:
            token = token or authorization[len(_SCHEME) :].strip()
        if not token:
            return (
                "no token: send 'Authorization: Bearer TOKEN' or "
                f"'{ADMIN_TOKEN_HEADER}: TOKEN'; it is in the pool's Secret tenantzone-admin-POOL"
            )
        shown = token.encode("utf-8", "surrogateescape")
        # All tokens are compared, so that the time does not reveal which one matches.
        if not sum(hmac.compare_digest(shown, accepted) for accepted in self._accepted):
            return "this token is not in force; the one that is, is in the pool's Secret tenantzone-admin-POOL"
        return ""
