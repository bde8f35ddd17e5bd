"""Reads the pool's admin tokens from a mounted Secret, and checks the tokens of requests to the admin port."""

import hmac
import logging
import threading
from pathlib import Path

from tenantzone_contract.keys.admin_token import ACCEPTED_FILE, ADMIN_TOKEN_HEADER, parse_accepted
from tenantzone_contract.reports.report import AdminPortStatus
from tenantzone_runtime.mounted_file import MountedFile

_log = logging.getLogger(__name__)

_SCHEME = "bearer "


class AdminTokens:
    """The admin tokens in a mounted folder.

    If the file becomes invalid or is removed, the previous tokens stay valid until the file has valid tokens again.

    Args:
        folder: the folder in which the pool's Secret is mounted. It need not exist yet.
    """

    accepted: tuple[bytes, ...] = ()
    """The valid tokens, newest first; empty until the file has contained valid tokens."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ACCEPTED_FILE
        self._file = MountedFile(folder, ACCEPTED_FILE, parse_accepted, about="the admin port's tokens")
        self.poll()

    @property
    def problem(self) -> str:
        """Why the tokens of the current file are not used; empty if they are used."""
        return self._file.problem

    def poll(self) -> None:
        """Read the file of tokens if it has changed."""
        self._file.refresh()
        if self._file.value is not None:
            self.accepted = self._file.value

    def read(self) -> tuple[bytes, ...]:
        """Read the file of tokens if it has changed, and return the valid tokens."""
        self.poll()
        return self.accepted


class AdminAccess:
    """Decides which requests to the admin port are permitted. While there are no tokens, all requests are refused.

    Args:
        folder: the folder in which the pool's Secret is mounted; None to permit all requests.
    """

    def __init__(self, folder: Path | None) -> None:
        self.tokens = None if folder is None else AdminTokens(folder)
        """The valid tokens; None if requests need no token."""
        self._refused = 0
        self._counting = threading.Lock()
        if folder is None:
            _log.warning("the admin port is open, so any client can read the usage of all tenants")

    @property
    def refused(self) -> int:
        """Number of requests that were refused since the start."""
        return self._refused

    @property
    def status(self) -> AdminPortStatus:
        """The admin port's status in the report."""
        if self.tokens is None:
            return AdminPortStatus(open=True)
        return AdminPortStatus(error=self.tokens.problem)

    def poll(self) -> None:
        """Read the file of tokens if it has changed."""
        if self.tokens is not None:
            self.tokens.poll()

    def refusal(self, authorization: str, token: str) -> str:
        """Returns why a request is refused, and what the client must send; empty for a permitted request. Thread-safe.

        Args:
            authorization: the request's ``Authorization`` header; empty if missing.
            token: the request's ``TenantZone-Admin-Token`` header; empty if missing.
        """
        why = "" if self.tokens is None else self._refusal(self.tokens, authorization, token)
        if why:
            with self._counting:
                self._refused += 1
        return why

    def _refusal(self, tokens: AdminTokens, authorization: str, token: str) -> str:
        if not tokens.accepted:
            return (
                f"the admin port refuses all requests, because {tokens.path} contains no token; mount the pool's "
                "Secret tenantzone-admin-POOL there, or start the engine with --admin-open"
            )
        if authorization[: len(_SCHEME)].lower() == _SCHEME:
            token = token or authorization[len(_SCHEME) :].strip()
        if not token:
            return (
                "the request has no token; send 'Authorization: Bearer TOKEN' or "
                f"'{ADMIN_TOKEN_HEADER}: TOKEN' with the token in the pool's Secret tenantzone-admin-POOL"
            )
        shown = token.encode("utf-8", "surrogateescape")
        # Compare with all tokens, so that the duration does not reveal which token matches.
        if not sum(hmac.compare_digest(shown, accepted) for accepted in tokens.accepted):
            return "this token is not valid; send the token in the pool's Secret tenantzone-admin-POOL"
        return ""
