"""The salt key of a pool, from the folder where its Secret is mounted: it reads what changed, and keeps what worked."""

import hashlib
import hmac
import logging
from pathlib import Path

from tenantzone_contract.salt import SALT_KEY_FILE, SaltKeyError, parse_salt_key, salt_key_id
from tenantzone_runtime.reload import WatchedFile

_log = logging.getLogger(__name__)

_MAX_BYTES = 2**20
"""As much as a Secret can hold."""


class SaltKeySource:
    """The newest salt key of a folder that could be read, and what is wrong with the file if it is another one.

    Until there was one it is a key of this process's own: what is cached under it is found again by nobody once the
    process has ended.

    Args:
        folder: where the pool's Secret is mounted. It need not exist yet.
        seal_key: of this engine, from which its own key is derived, the same in all of its processes.
    """

    key: bytes
    id: str = ""
    """Of the pool's key; empty: it is this process's own."""
    error: str = ""
    """Why the file as it is now is not in force; empty if it is, or if there never was one."""

    def __init__(self, folder: Path, seal_key: bytes) -> None:
        self._path = folder / SALT_KEY_FILE
        self._file = WatchedFile(folder, SALT_KEY_FILE, _MAX_BYTES)
        self.key = hmac.digest(seal_key, b"salt key of this process's own", hashlib.sha256)

    def poll(self) -> bool:
        """Look at the key's file, and read it if it has changed; returns whether the key is another one than before."""
        before = self.id
        try:
            content = self._file.read_if_changed()
            if content is not None:
                self.key = parse_salt_key(content)
                self.id = salt_key_id(self.key)
                self._complain("")
        except FileNotFoundError:
            self._complain("is missing" if self.id else "")
        except OSError as error:
            self._complain(f"can't be read: {error.strerror}")
        except SaltKeyError as error:
            self._complain(str(error))
        return self.id != before

    def _complain(self, error: str) -> None:
        if error and error != self.error:
            kept = "the key before it" if self.id else "a key of this process's own"
            _log.error("the salt key %s: %s; %s stays in force", self._path, error, kept)
        self.error = error
