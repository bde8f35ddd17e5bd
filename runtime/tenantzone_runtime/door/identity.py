"""Which tenant an API key belongs to, from a folder with one file per tenant, as a Secret is mounted.

The file's name is the tenant. Each line is a key, in clear or as ``sha256:`` and the digest; several lines let a key be
rotated. Only digests are kept in memory.
"""

import hashlib
import hmac
import logging
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from tenantzone_runtime.reload import FileStamp, across_swaps, projection_of

_log = logging.getLogger(__name__)

_HASHED = "sha256:"


class KeyFileError(ValueError):
    """A key file that can't be used; the message names the line and never shows a key."""


def parse_keys(content: bytes) -> frozenset[bytes]:
    """The SHA-256 digests of a key file's keys.

    Raises:
        KeyFileError: a line that is no key.
    """
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise KeyFileError("not UTF-8 text") from None
    digests = set()
    for number, line in enumerate(lines, start=1):
        if key := line.strip():
            digests.add(_digest_of_line(number, key))
    return frozenset(digests)


def _digest_of_line(number: int, key: str) -> bytes:
    if key.startswith(_HASHED):
        try:
            digest = bytes.fromhex(key.removeprefix(_HASHED))
        except ValueError:
            digest = b""
        if len(digest) != hashlib.sha256().digest_size:
            raise KeyFileError(f"line {number}: expected 64 hexadecimal digits after {_HASHED!r}")
        return digest
    if not key.isascii() or not key.isprintable() or " " in key:
        raise KeyFileError(f"line {number}: a key consists of printable ASCII characters without spaces")
    return hashlib.sha256(key.encode()).digest()


@dataclass(frozen=True, slots=True)
class _KeyFile:
    stamp: FileStamp | None
    """None: read it again at the next look."""
    digests: frozenset[bytes]
    """Of the last content that was good."""
    error: str | None = None


class KeyRing:
    """The API keys of all tenants, in digests, as the key files have them.

    A file that breaks keeps the keys that it had. A file that goes away revokes them. Once there was a key file, keys
    are required until the process ends, whatever becomes of the folder.

    Args:
        folder: may be missing: no keys then.
    """

    required: bool = False
    """Whether there is or was any key file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._projection: Path | None = None
        self._files: dict[str, _KeyFile] = {}
        self._folder_error: str | None = None
        # The table is looked up by a digest under a key of this process's own. Whoever measures the time of look-ups
        # can't choose or predict such digests, so he learns nothing from how far a comparison got; and thousands of
        # tenants cost no more than one.
        self._table_key = secrets.token_bytes(32)
        self._tenants: dict[bytes, str] = {}

    def tenant_of(self, key: bytes) -> str | None:
        """The tenant whose key this is; None if it is nobody's."""
        return self._tenants.get(self._table_digest(hashlib.sha256(key).digest()))

    def refresh(self) -> None:
        """Read what has changed in the folder; what goes wrong is logged once and leaves everything else in force."""
        try:
            files = across_swaps(self._folder, self._read_files)
        except FileNotFoundError:
            if self.required:
                self._complain("is gone; the keys stay as they were")
            return
        except OSError as error:
            self.required = True
            self._complain(f"can't be read: {error.strerror}; the keys stay as they were")
            return
        self._folder_error = None
        if files != self._files:
            self._files = files
            self.required = self.required or bool(files)
            self._tenants = self._index()

    def _read_files(self) -> dict[str, _KeyFile]:
        projection = projection_of(self._folder)
        if projection is not None and projection == self._projection and self._is_settled():
            return self._files
        # All from one projection, so that a swap meanwhile never mixes two.
        source = projection or self._folder
        files = {name: self._read(source / name, name) for name in _key_file_names(source)}
        self._projection = projection
        return files

    def _is_settled(self) -> bool:
        return all(file.stamp is not None for file in self._files.values())

    def _read(self, path: Path, tenant: str) -> _KeyFile:
        before = self._files.get(tenant)
        last_good = before.digests if before else frozenset()
        try:
            began_ns = time.time_ns()
            stamp = FileStamp.of(path)
            if before and stamp == before.stamp:
                return before
            settled = stamp if stamp.is_settled(began_ns) else None
            if not tenant.isprintable():
                raise KeyFileError("the file's name is no tenant's")
            return _KeyFile(settled, parse_keys(path.read_bytes()))
        except FileNotFoundError:
            raise
        except OSError as error:
            file = _KeyFile(None, last_good, f"can't be read: {error.strerror}")
        except KeyFileError as error:
            file = _KeyFile(settled, last_good, str(error))
        if before is None or file.error != before.error:
            _log.error(
                "key file of tenant %r: %s; the keys that it had stay in force",
                tenant,
                file.error,
                extra={"tenant": tenant},
            )
        return file

    def _index(self) -> dict[bytes, str]:
        owners: dict[bytes, list[str]] = {}
        for tenant, file in self._files.items():
            for digest in file.digests:
                owners.setdefault(digest, []).append(tenant)
        for digest, tenants in owners.items():
            if len(tenants) > 1:
                # Whichever tenant it was given to, the other one would be served its answers.
                _log.error(
                    "the key sha256:%s... stands in the files of several tenants (%s); it is accepted for none",
                    digest.hex()[:8],
                    ", ".join(sorted(tenants)),
                )
        return {self._table_digest(digest): tenants[0] for digest, tenants in owners.items() if len(tenants) == 1}

    def _table_digest(self, digest: bytes) -> bytes:
        return hmac.digest(self._table_key, digest, hashlib.sha256)

    def _complain(self, error: str) -> None:
        if error != self._folder_error:
            self._folder_error = error
            _log.error("the key folder %s %s", self._folder, error)


def _key_file_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file())
