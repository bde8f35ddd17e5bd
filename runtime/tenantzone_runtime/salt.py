"""The salt key of a pool, from the folder of its mounted Secret: it reads changes, and keeps the last valid key."""

import hashlib
import hmac
import logging
from pathlib import Path

from tenantzone_contract.keys.salt import SALT_KEY_FILE, SaltKeyError, parse_salt_key, salt_key_id
from tenantzone_runtime.reload import WatchedFile

_log = logging.getLogger(__name__)

_MAX_BYTES = 2**20
"""The maximum size of a Secret."""


class SaltKeySource:
    """The newest valid salt key of a folder, and the error of a newer file that is invalid.

    Until the folder has a valid key, the engine uses its own key, and blocks that are cached with it can't be found
    after the engine has ended.

    Args:
        folder: the folder into which the pool's Secret is mounted. It need not exist yet.
        seal_key: this engine's seal key, from which its own salt key is derived, the same in all of its processes.
    """

    key: bytes
    id: str = ""
    """The id of the pool's key; empty if the key is the engine's own."""
    error: str = ""
    """Why the current file is not in force; empty if it is, or if there never was a file."""

    def __init__(self, folder: Path, seal_key: bytes) -> None:
        self._path = folder / SALT_KEY_FILE
        self._file = WatchedFile(folder, SALT_KEY_FILE, _MAX_BYTES)
        self.key = hmac.digest(seal_key, b"salt key of this process's own", hashlib.sha256)

    def poll(self) -> bool:
        """Check the key's file, and read it if it has changed. Returns whether the key has changed."""
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
