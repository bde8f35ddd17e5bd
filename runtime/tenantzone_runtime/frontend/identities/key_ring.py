"""Maps API keys to tenants, from a folder with one file per tenant, such as a mounted Secret.

The file's name is the tenant's name. Each line is one key, as clear text or as ``sha256:`` followed by the key's
digest. A file may have several keys, so that keys can be rotated. Only digests are kept in memory.

kubelet replaces all files of a mounted Secret (a projection) atomically. In any other folder (a plain folder), a file
may be incomplete, and the beginning of a key could be taken for a key. So a file in a plain folder is used only when it
has not changed for a second.

The cost of a refresh is limited for any number of tenants. A new projection is read over several refreshes, and takes
effect when all its files have been read.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tenantzone_runtime.frontend.identities.key_file import KeyFileError, parse_keys
from tenantzone_runtime.reload import FileStamp, across_swaps, projection_of

_log = logging.getLogger(__name__)

REST_SECONDS = 1.0
"""Seconds for which a file of a plain folder must not have changed before the file is used."""
FILES_PER_LOOK = 500
"""Maximum number of files that one refresh of a large folder reads or checks, unless `STALE_SECONDS` have passed."""
STALE_SECONDS = 5.0
"""If the last complete check is older than this number of seconds, the next refresh checks all files."""
_TENANT = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")
"""The names that a TenantZone's tenant may have."""
_COPY = re.compile(r".*\.(bak|backup|old|orig|rej|save|sw[a-z]|tmp|dpkg-\w+|rpm\w+)", re.IGNORECASE)
"""The names of backup copies that editors, package managers and administrators leave next to a file."""


@dataclass(frozen=True, slots=True)
class _KeyFile:
    stamp: FileStamp | None
    """The file's stamp when it was read; None if the next refresh must read the file again."""
    digests: frozenset[bytes]
    """Digests of the keys in the file's last valid content."""
    error: str | None = None


@dataclass(slots=True)
class _Part:
    """A new projection, some of whose files have not been read yet."""

    projection: Path
    remaining: list[str]
    files: dict[str, _KeyFile] = field(default_factory=dict)


class KeyRing:
    """The API keys of all tenants, as digests, from the key files.

    If a file becomes invalid, its last valid keys stay accepted. Removing a file revokes its keys. Once a key file has
    existed, requests need a key until the process ends, even if the folder is removed.

    Args:
        folder: the folder of the key files. If it is missing from the start, there are no keys.
        digest_key: the HMAC key for :attr:`digest`, the same in all of the engine's processes; empty for no digest.
        clock: returns the monotonic time in seconds.
    """

    required: bool = False
    """Whether requests need a key, because a key file exists or has existed, or the folder could not be read."""

    digest: str = ""
    """An HMAC of all keys, which shows whether the engine's processes have the same keys; empty if there are no files.

    Only the engine has the HMAC's key, so that a reader can't use the digest to test guessed API keys.
    """

    def __init__(self, folder: Path, digest_key: bytes = b"", clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._digest_key = digest_key
        self._clock = clock
        self._current_at = clock()
        """Time of the last check at which all active files matched the folder."""
        self._round_began = self._current_at
        """Time at which the current pass over the files of the plain folder began."""
        self._projection: Path | None = None
        """The projection from which the active files were read; None if they were read from a plain folder."""
        self._part: _Part | None = None
        self._listed: FileStamp | None = None
        """The plain folder's stamp when its files were listed; None if the next refresh must list them again."""
        self._names: list[str] = []
        """The sorted names of the tenants' files in the plain folder."""
        self._next = 0
        """The index in ``_names`` at which the next refresh of a plain folder continues."""
        self._unsettled: dict[str, tuple[FileStamp, float]] = {}
        """Recently changed files of a plain folder. Each has its stamp, and the time when that stamp was first seen."""
        self._left_out: frozenset[str] = frozenset()
        self._files: dict[str, _KeyFile] = {}
        self._folder_error: str | None = None
        # The table's keys are HMACs with a random key, which clients can't choose or predict. So the time of a lookup
        # reveals nothing about API keys, and does not depend on the number of tenants.
        self._table_key = secrets.token_bytes(32)
        self._tenants: dict[bytes, str] = {}

    @property
    def is_partly_read(self) -> bool:
        """Whether some files of a new projection have not been read yet."""
        return self._part is not None

    @property
    def problem(self) -> str:
        """The reason why no key is accepted; empty if there are keys."""
        if self._tenants:
            return ""
        return f"the key folder {self._folder} {self._folder_error or 'contains no valid key'}"

    def tenant_of(self, key: bytes) -> str | None:
        """Returns the tenant of an API key; None if the key is unknown."""
        return self._tenants.get(self._table_digest(hashlib.sha256(key).digest()))

    def refresh(self) -> None:
        """Read what has changed in the folder. An error is logged once, and does not affect the keys of other files."""
        try:
            files = across_swaps(self._folder, self._read_files)
        except FileNotFoundError:
            if self.required:
                self._complain("is missing; the keys stay unchanged")
            return
        except OSError as error:
            self.required = True
            self._complain(f"can't be read: {error.strerror}; the keys stay unchanged")
            return
        self._folder_error = None
        # Require keys even if all names are invalid, because the files were probably meant to be key files.
        self.required = self.required or bool(files) or bool(self._names) or bool(self._left_out)
        if files != self._files:
            self._files = files
            self._tenants = self._index()
            self.digest = self._digest()

    def _read_files(self) -> dict[str, _KeyFile]:
        projection = projection_of(self._folder)
        if projection is None:
            return self._read_plain()
        if projection == self._projection and self._is_settled():
            self._current_at = self._clock()
            return self._files
        return self._read_projection(projection)

    def _read_projection(self, projection: Path) -> dict[str, _KeyFile]:
        """Read the next files of a projection. Returns its files once all are read, and the active files until then."""
        # If the projection was replaced, start over, so that files of two projections are never mixed.
        if self._part is None or self._part.projection != projection:
            self._part = _Part(projection, self._list(projection)[::-1])
        part, began = self._part, self._clock()
        for _ in range(min(self._limit, len(part.remaining))):
            name = part.remaining.pop()
            part.files[name] = self._read(projection / name, name, is_plain=False)
        if part.remaining:
            return self._files
        self._part = None
        self._projection = projection
        self._listed = None
        self._current_at = began
        return part.files

    def _read_plain(self) -> dict[str, _KeyFile]:
        """Read new and recently changed files of a plain folder, and check some of the other files for changes."""
        self._part = self._projection = None
        began_ns = time.time_ns()
        stamp = FileStamp.of(self._folder)
        if stamp != self._listed:
            self._names = self._list(self._folder)
            self._listed = stamp if stamp.is_settled(began_ns) else None
            self._unsettled = {name: self._unsettled[name] for name in self._names if name in self._unsettled}
        names, known, limit = self._names, self._files, min(self._limit, len(self._names))
        rotated = names[self._next :] + names[: self._next]
        urgent = (name for name in rotated if name not in known or known[name].stamp is None)
        due = {*islice(urgent, limit), *rotated[:limit]}
        if self._next + limit < len(names):
            self._next += limit
        else:
            now = self._clock()
            self._current_at = now if limit == len(names) else self._round_began
            self._round_began, self._next = now, 0
        files = {
            name: self._read_if_there(name) if name in due else known[name]
            for name in names
            if name in due or name in known
        }
        if None in files.values():
            # A removed file revokes its keys. If the whole folder is missing, this call raises, so no key is revoked.
            FileStamp.of(self._folder)
        return {name: file for name, file in files.items() if file is not None}

    def _read_if_there(self, tenant: str) -> _KeyFile | None:
        """Read a file of a plain folder. Returns None if the file does not exist, or is a broken link."""
        try:
            return self._read(self._folder / tenant, tenant, is_plain=True)
        except FileNotFoundError:
            return None

    @property
    def _limit(self) -> int:
        """Maximum number of files that the next refresh may read.

        The first refresh has no limit, because no key is accepted until it has ended. If the last complete check is
        older than `STALE_SECONDS`, there is no limit either, because a revoked key might still be accepted.
        """
        is_stale = self._clock() - self._current_at > STALE_SECONDS
        return sys.maxsize if is_stale or not self._files else FILES_PER_LOOK

    def _list(self, source: Path) -> list[str]:
        """Returns the names of the key files in a folder. Files whose name is no valid tenant name are logged once."""
        names = _key_file_names(source)
        tenants = [name for name in names if is_tenants_name(name)]
        left_out = frozenset(names) - frozenset(tenants)
        for name in sorted(left_out - self._left_out):
            _log.warning("the file %r in the key folder is ignored, because its name is not a valid tenant name", name)
        self._left_out = left_out
        return tenants

    def _is_settled(self) -> bool:
        return all(file.stamp is not None for file in self._files.values())

    def _is_at_rest(self, tenant: str, stamp: FileStamp) -> bool:
        """Returns whether a file was unchanged for `REST_SECONDS`, by its modification time or by earlier refreshes."""
        if time.time_ns() - stamp.modified_ns < REST_SECONDS * 1e9:
            before, since = self._unsettled.get(tenant, (None, 0.0))
            if before != stamp:
                self._unsettled[tenant] = stamp, time.monotonic()
                return False
            if time.monotonic() - since < REST_SECONDS:
                return False
        self._unsettled.pop(tenant, None)
        return True

    def _read(self, path: Path, tenant: str, *, is_plain: bool) -> _KeyFile:
        before = self._files.get(tenant)
        last_good = before.digests if before else frozenset()
        try:
            began_ns = time.time_ns()
            stamp = FileStamp.of(path)
            if before and stamp == before.stamp:
                return before
            settled = stamp if stamp.is_settled(began_ns) else None
            if is_plain and not self._is_at_rest(tenant, stamp):
                return _KeyFile(None, last_good)
            return _KeyFile(settled, parse_keys(path.read_bytes()))
        except FileNotFoundError:
            raise
        except OSError as error:
            file = _KeyFile(None, last_good, f"can't be read: {error.strerror}")
        except KeyFileError as error:
            file = _KeyFile(settled, last_good, str(error))
        if before is None or file.error != before.error:
            _log.error(
                "key file of tenant %r: %s; the tenant's previous keys stay valid",
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
                # Refuse a key that several tenants share, because each of them could act in the name of the others.
                _log.error(
                    "the key sha256:%s... is refused, because it is in the key files of several tenants (%s); give "
                    "each tenant its own key",
                    digest.hex()[:8],
                    ", ".join(sorted(tenants)),
                )
        return {self._table_digest(digest): tenants[0] for digest, tenants in owners.items() if len(tenants) == 1}

    def _digest(self) -> str:
        if not self._files or not self._digest_key:
            return ""
        digest = hmac.new(self._digest_key, digestmod=hashlib.sha256)
        for tenant, file in sorted(self._files.items()):
            digest.update(b"".join([f"{tenant}:{len(file.digests)}:".encode(), *sorted(file.digests)]))
        return digest.hexdigest()

    def _table_digest(self, digest: bytes) -> bytes:
        return hmac.digest(self._table_key, digest, hashlib.sha256)

    def _complain(self, error: str) -> None:
        if error != self._folder_error:
            self._folder_error = error
            _log.error("the key folder %s %s", self._folder, error)


def is_tenants_name(name: str) -> bool:
    """Returns whether a file's name is a valid tenant name, and not the name of a backup copy."""
    return bool(_TENANT.fullmatch(name)) and not _COPY.fullmatch(name)


def _key_file_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and _is_meant_as_file(entry))


def _is_meant_as_file(entry: os.DirEntry[str]) -> bool:
    """Returns whether an entry is a file, a link to a file, or a broken link whose target may be created later."""
    try:
        return entry.is_file() or (entry.is_symlink() and not Path(entry).exists())
    except OSError:
        # The entry may be a circular link. Reading the entry later reports the error, without affecting other files.
        return True
