"""Reads the pool's salt key from a mounted Secret, reads it again when it changes, and keeps the last valid key."""

import hashlib
import hmac
import logging
from pathlib import Path

from tenantzone_contract.keys.salt import SALT_KEY_FILE, SaltKeyError, parse_salt_key, salt_key_id
from tenantzone_runtime.reload import WatchedFile

_log = logging.getLogger(__name__)

_MAX_BYTES = 2**20
"""Maximum size of a Secret in bytes."""


class SaltKeySource:
    """The newest valid salt key of a folder, and the reason why the current file is not used.

    Until the folder has a valid key, the engine uses its own key. Blocks that are cached with this key can't be found
    after the engine has ended.

    Args:
        folder: the folder in which the pool's Secret is mounted. It need not exist yet.
        seal_key: the engine's seal key, the same in all its processes. The engine's own salt key is derived from it.
    """

    key: bytes
    id: str = ""
    """Id of the pool's key; empty while the engine uses its own key."""
    error: str = ""
    """Why the key in the current file is not used; empty if it is used, or if no file was ever found."""

    def __init__(self, folder: Path, seal_key: bytes) -> None:
        self._path = folder / SALT_KEY_FILE
        self._file = WatchedFile(folder, SALT_KEY_FILE, _MAX_BYTES)
        self.key = hmac.digest(seal_key, b"salt key of this process's own", hashlib.sha256)

    def poll(self) -> bool:
        """Read the file with the key if it has changed. Returns whether the key has changed."""
        before = self.id
        try:
            content = self._file.read_if_changed()
            if content is not None:
                self.key = parse_salt_key(content)
                self.id = salt_key_id(self.key)
                self._complain("")
        except FileNotFoundError:
            self._complain("the file is missing" if self.id else "")
        except OSError as error:
            self._complain(f"the file can't be read: {error.strerror}")
        except SaltKeyError as error:
            self._complain(str(error))
        return self.id != before

    def _complain(self, error: str) -> None:
        if error and error != self.error:
            kept = "the previous key" if self.id else "this engine's own key"
            _log.error("the salt key %s: %s; %s stays in force", self._path, error, kept)
        self.error = error
