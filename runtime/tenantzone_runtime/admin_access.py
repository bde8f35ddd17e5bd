"""The pool's admin tokens as an engine mounts them, and the requests that they admit to the admin port."""

import hmac
import logging
import threading
from pathlib import Path

from tenantzone_contract.admin_token import ACCEPTED_FILE, ADMIN_TOKEN_HEADER, parse_accepted
from tenantzone_contract.report import AdminPortStatus
from tenantzone_runtime.mounted_file import MountedFile

_log = logging.getLogger(__name__)

_SCHEME = "bearer "


class AdminTokens:
    """The tokens of a folder.

    A file that breaks, or that is gone, takes nothing away: the tokens before it stay in force until there are others.

    Args:
        folder: where the pool's Secret is mounted. It need not exist yet.
    """

    accepted: tuple[bytes, ...] = ()
    """Those in force, the newest first; none as long as there never were any."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ACCEPTED_FILE
        self._file = MountedFile(folder, ACCEPTED_FILE, parse_accepted, about="the admin port's tokens")
        self.poll()

    @property
    def problem(self) -> str:
        """Why the file as it is now is not in force; empty if it is."""
        return self._file.problem

    def poll(self) -> None:
        """Look at the file, and read it if it has changed."""
        self._file.refresh()
        if self._file.value is not None:
            self.accepted = self._file.value

    def read(self) -> tuple[bytes, ...]:
        """Look at the file, and return the tokens in force."""
        self.poll()
        return self.accepted


class AdminAccess:
    """Admits requests to the admin port. As long as there never were any tokens, it refuses all of them.

    Args:
        folder: where the pool's Secret is mounted; None: all requests are admitted.
    """

    def __init__(self, folder: Path | None) -> None:
        self.tokens = None if folder is None else AdminTokens(folder)
        """Those that admit a request; None: none is needed."""
        self._refused = 0
        self._counting = threading.Lock()
        if folder is None:
            _log.warning("the admin port is open: whoever reaches it reads what all tenants hold")

    @property
    def refused(self) -> int:
        """Requests that were refused since the start."""
        return self._refused

    @property
    def status(self) -> AdminPortStatus:
        """What the report says of it."""
        if self.tokens is None:
            return AdminPortStatus(open=True)
        return AdminPortStatus(error=self.tokens.problem)

    def poll(self) -> None:
        """Look at the file of tokens, and read it if it has changed."""
        if self.tokens is not None:
            self.tokens.poll()

    def refusal(self, authorization: str, token: str) -> str:
        """Why a request is refused, and how it would not be; empty if it is let in. Any thread may ask.

        Args:
            authorization: the request's header of this name; empty: it has none.
            token: the header ``TenantZone-Admin-Token``, likewise.
        """
        why = "" if self.tokens is None else self._refusal(self.tokens, authorization, token)
        if why:
            with self._counting:
                self._refused += 1
        return why

    def _refusal(self, tokens: AdminTokens, authorization: str, token: str) -> str:
        if not tokens.accepted:
            return (
                f"the admin port is closed: there is no token in {tokens.path}; mount the pool's "
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
        # All are compared, so that the time does not say which.
        if not sum(hmac.compare_digest(shown, accepted) for accepted in tokens.accepted):
            return "this token is not in force; the one that is, is in the pool's Secret tenantzone-admin-POOL"
        return ""
