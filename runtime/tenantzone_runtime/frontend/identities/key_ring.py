"""Maps API keys to tenants, from a folder with one file per tenant, such as a mounted Secret.

The file's name is the tenant's name. Each line is a key, in clear text or as ``sha256:`` and its digest; several lines
allow rotating a key. Only digests are kept in memory.

kubelet replaces all files of a mounted Secret (a projection) atomically. In any other folder (a plain folder), a file
may be incomplete, and the beginning of a key would be accepted as a key, so a file's content is only used once it has
not changed for a second.

A refresh has a bounded cost for any number of tenants. A new projection is read in parts over several refreshes, and
takes effect when all of it has been read.
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

from tenantzone_runtime.reload import FileStamp, across_swaps, projection_of

_log = logging.getLogger(__name__)

_HASHED = "sha256:"
MIN_KEY_LENGTH = 8
"""Minimum length of a key in clear text, because a shorter key could be guessed, or be the beginning of another key."""
REST_SECONDS = 1.0
"""Time for which a file of a plain folder must not have changed before it is used."""
FILES_PER_LOOK = 500
"""Maximum number of files that one refresh of a large folder reads or examines, unless `STALE_SECONDS` have passed."""
STALE_SECONDS = 5.0
"""Time after which an incomplete check of the folder is finished by one refresh, because refreshes may be rare."""
_TENANT = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")
"""Pattern of the names that a TenantZone's tenant may have."""
_COPY = re.compile(r".*\.(bak|backup|old|orig|rej|save|sw[a-z]|tmp|dpkg-\w+|rpm\w+)", re.IGNORECASE)
"""Pattern of the names of backup copies that editors, package managers and administrators leave next to a file."""


class KeyFileError(ValueError):
    """A key file can't be used; the message names the line and never shows a key."""


def parse_keys(content: bytes) -> frozenset[bytes]:
    """Returns the SHA-256 digests of the keys in a key file's content.

    Raises:
        KeyFileError: a line is not a key.
    """
    try:
        # Do not use splitlines(), because it would also split keys at Unicode's other line separators.
        lines = content.decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise KeyFileError("not UTF-8 text") from None
    digests = set()
    for number, line in enumerate(lines, start=1):
        if key := line.strip(" \t"):
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
        raise KeyFileError(f"line {number}: a key must consist of printable ASCII characters without spaces")
    if len(key) < MIN_KEY_LENGTH:
        raise KeyFileError(f"line {number}: a key must have at least {MIN_KEY_LENGTH} characters")
    return hashlib.sha256(key.encode()).digest()


@dataclass(frozen=True, slots=True)
class _KeyFile:
    stamp: FileStamp | None
    """The file's stamp when it was read; None if the next refresh must read the file again."""
    digests: frozenset[bytes]
    """Digests of the keys in the file's last valid content."""
    error: str | None = None


@dataclass(slots=True)
class _Part:
    """A new projection that has been read only in part."""

    projection: Path
    remaining: list[str]
    files: dict[str, _KeyFile] = field(default_factory=dict)


class KeyRing:
    """The API keys of all tenants, as digests, from the key files.

    If a file becomes invalid, its last valid keys stay accepted. Removing a file revokes its keys. Once a key file has
    existed, keys are required until the process ends, even if the folder disappears.

    Args:
        folder: the folder of the key files; if it is missing, there are no keys.
        digest_key: the HMAC key for :attr:`digest`, the same in all of the engine's processes; empty for no digest.
        clock: the monotonic time in seconds.
    """

    required: bool = False
    """Whether a key file exists or has existed."""

    digest: str = ""
    """A digest of all keys in the files, to compare the engine's processes; empty if there are no files.

    It is an HMAC whose key is only known to the engine, so that a reader can't use the digest to test guessed API keys.
    """

    def __init__(self, folder: Path, digest_key: bytes = b"", clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._digest_key = digest_key
        self._clock = clock
        self._current_at = clock()
        """Time at which all active files were last known to match the folder."""
        self._round_began = self._current_at
        """Time at which the current pass over the files of the plain folder began."""
        self._projection: Path | None = None
        """The projection from which all active files were read; None if they were read from a plain folder."""
        self._part: _Part | None = None
        self._listed: FileStamp | None = None
        """The plain folder's stamp when ``_names`` was listed; None if the next refresh must list the folder again."""
        self._names: list[str] = []
        """The sorted names of the tenants' files in the plain folder."""
        self._next = 0
        """The index in ``_names`` at which the next refresh of a plain folder continues."""
        self._unsettled: dict[str, tuple[FileStamp, float]] = {}
        """Recently changed files of a plain folder: each one's stamp, and the time at which it was first seen."""
        self._left_out: frozenset[str] = frozenset()
        self._files: dict[str, _KeyFile] = {}
        self._folder_error: str | None = None
        # Index the table by HMACs with a random key, which clients can't choose or predict. So the time of a lookup
        # reveals nothing about keys, and does not depend on the number of tenants.
        self._table_key = secrets.token_bytes(32)
        self._tenants: dict[bytes, str] = {}

    @property
    def is_partly_read(self) -> bool:
        """Whether only a part of a new projection has been read."""
        return self._part is not None

    @property
    def problem(self) -> str:
        """The reason why the ring has no keys; empty if it has keys."""
        if self._tenants:
            return ""
        return f"the key folder {self._folder} {self._folder_error or 'contains no valid key'}"

    def tenant_of(self, key: bytes) -> str | None:
        """Returns the tenant of a key; None if the key is unknown."""
        return self._tenants.get(self._table_digest(hashlib.sha256(key).digest()))

    def refresh(self) -> None:
        """Read changes in the folder; an error is logged once, and does not affect the keys of other files."""
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
        # A file with an invalid name also makes keys required, because it was probably meant to be a key file.
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
        """Read the next part of a projection; returns its files if all have been read, and else the active files."""
        # Start over with a new projection, so that files of two projections are never mixed.
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
        """Read the new and recently changed files of a plain folder, and check the next part of the others."""
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
            # A removed file revokes its keys. If the whole folder is gone, this raises, so that no keys are revoked.
            FileStamp.of(self._folder)
        return {name: file for name, file in files.items() if file is not None}

    def _read_if_there(self, tenant: str) -> _KeyFile | None:
        """Read a file of a plain folder; returns None if it does not exist, or is a broken link."""
        try:
            return self._read(self._folder / tenant, tenant, is_plain=True)
        except FileNotFoundError:
            return None

    @property
    def _limit(self) -> int:
        """Maximum number of files that a refresh may read.

        It is unlimited for the first refresh, before which no key is accepted, and if the last complete check was
        longer ago than `STALE_SECONDS`, because a revoked key might still be accepted.
        """
        is_stale = self._clock() - self._current_at > STALE_SECONDS
        return sys.maxsize if is_stale or not self._files else FILES_PER_LOOK

    def _list(self, source: Path) -> list[str]:
        """Returns the names of the tenants' files in a folder; files with other names are logged once."""
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
        """Returns whether a plain folder's file has not changed for a while, by its mtime or by previous refreshes."""
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
                "key file of tenant %r: %s; its previous keys stay in force",
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
                # If the key identified one of the tenants, the other tenants would act in its name.
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
    """Returns whether a file's name is a valid tenant's name, and not the name of a backup copy."""
    return bool(_TENANT.fullmatch(name)) and not _COPY.fullmatch(name)


def _key_file_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and _is_meant_as_file(entry))


def _is_meant_as_file(entry: os.DirEntry[str]) -> bool:
    """Returns whether an entry is a file, a link to a file, or a broken link, whose target may be created later."""
    try:
        return entry.is_file() or (entry.is_symlink() and not Path(entry).exists())
    except OSError:
        # For example a circle of links. Reading the entry reports the error, without affecting other files.
        return True
