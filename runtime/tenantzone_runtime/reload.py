"""Watches a mounted folder for a new config, and keeps the last valid config.

The folder is polled. kubelet replaces the folder's content by changing a symbolic link, and some volumes send no event
for that change. A check takes microseconds.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from tenantzone_contract.reports.report import Rejection
from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.config import CONFIG_KEY, MAX_GENERATION, RuntimeConfig
from tenantzone_contract.zone_config.config_signature import (
    MAX_SIGNATURE_BYTES,
    SIGNATURE_KEY,
    SignatureError,
    verify_config,
)
from tenantzone_contract.zone_config.packing import PACKED_KEY, ConfigFiles, unpack_config

_PROJECTION_LINK = "..data"
_MAX_ERROR_LENGTH = 1000
_CLOCK_TICK_NS = 100_000_000

T = TypeVar("T")


def projection_of(folder: Path) -> Path | None:
    """Returns the folder to which kubelet's link refers now. Its files belong to one version of the mounted object.

    Returns None for a missing folder, or for a folder without this link.
    """
    try:
        return folder / (folder / _PROJECTION_LINK).readlink()
    except FileNotFoundError:
        return None


def across_swaps(folder: Path, read: Callable[[], T]) -> T:
    """Call a function that reads a mounted folder, and call it again if kubelet replaced the content meanwhile.

    Without a second call, even a single ``open()`` can fail, because its path may lead to a version that kubelet has
    just removed. A listing can show a version that is partly deleted.

    Raises:
        FileNotFoundError: a file is missing, although kubelet did not replace the content.
    """
    while True:
        before = projection_of(folder)
        try:
            found = read()
        except FileNotFoundError:
            if projection_of(folder) == before:
                raise
        else:
            if projection_of(folder) == before:
                return found


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file's metadata. If two stamps differ, the file has changed."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Returns the stamp of the file to which the path leads. Symbolic links are followed.

        Raises:
            OSError: the file does not exist or is inaccessible.
        """
        status = path.stat()
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_settled(self, before_ns: int) -> bool:
        """Returns whether any later write to the file will change the stamp.

        A recent stamp may stay the same, because file systems record times in ticks, and a tick may have two writes.

        Args:
            before_ns: Unix time just before the stamp was taken, in nanoseconds.
        """
        return before_ns - self.modified_ns > _CLOCK_TICK_NS


class WatchedFile:
    """A file of a mounted folder that is read again when it has changed.

    Args:
        folder: the folder in which a ConfigMap or Secret is mounted. It need not exist yet.
        name: the name of the file.
        max_bytes: maximum size in bytes. Only the first ``max_bytes + 1`` bytes of a larger file are read.
    """

    def __init__(self, folder: Path, name: str, max_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._max_bytes = max_bytes
        self._stamp: FileStamp | None = None
        """The file's stamp when it was last read; None if the next check must read the file in any case."""

    def read_if_changed(self) -> bytes | None:
        """Returns the file's content; None if the file has not changed since the last check.

        After an error, the next check that finds the file returns its content.

        Raises:
            FileNotFoundError: the file is missing.
            OSError: the file can't be read.
        """
        try:
            return across_swaps(self._folder, self._read_if_changed)
        except OSError:
            self._stamp = None
            raise

    def _read_if_changed(self) -> bytes | None:
        path = (projection_of(self._folder) or self._folder) / self._name
        # Take the stamp before reading. If the file changes in between, the next check finds another stamp.
        began_ns = time.time_ns()
        stamp = FileStamp.of(path)
        if stamp == self._stamp:
            return None
        with path.open("rb") as file:
            content = file.read(self._max_bytes + 1)
        self._stamp = stamp if stamp.is_settled(began_ns) else None
        return content


_Stamps = tuple[FileStamp, FileStamp | None, FileStamp | None]
_Content = tuple[bytes, bytes | None, bytes | None]
"""The contents of ``config.json``, ``config.jsonl.gz`` and ``config.signature``. None stands for a missing file."""


class ConfigSource:
    """The newest valid config of a folder, and the reason why a newer file was not accepted.

    Args:
        folder: the folder in which the pool's ConfigMap is mounted. It need not exist yet.
        tokens: returns the pool's valid admin tokens; None to ignore signatures. If given, a config must be signed with
            a valid token, and must not be older than the newest signed config that was read before.
        now: returns Unix time in seconds.
    """

    config: RuntimeConfig | None = None
    """The last good config; None until a config was accepted."""
    rejection: Rejection | None = None
    """Why the current file was not accepted as ``config``; None if it was accepted, or no file was ever found."""

    def __init__(
        self,
        folder: Path,
        *,
        tokens: Callable[[], Sequence[bytes]] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._path = folder / CONFIG_KEY
        self._read_tokens = tokens
        self._tokens: Sequence[bytes] = ()
        """The tokens with which the signature was last verified."""
        self._newest: tuple[str, int] = "", 0
        """The pool's creation time and the generation of the newest config with a valid signature."""
        self._now = now
        self._stamps: _Stamps | None = None
        self._content: _Content | None = None
        self.fallback: RuntimeConfig | None = None
        """The previous value of ``config``, which becomes ``config`` again if the current config is refused."""

    def poll(self) -> bool:
        """Read the config's files if they have changed, and verify the signature again if the tokens have changed.

        Returns:
            Whether ``config`` or ``rejection`` has changed.
        """
        before = self.config, self.rejection
        tokens = self._read_tokens() if self._read_tokens is not None else ()
        try:
            new = across_swaps(self._folder, self._read_if_changed)
        except FileNotFoundError:
            if before != (None, None):
                self._forget_file(f"{self._path} is missing; the last good config stays in force")
        except OSError as error:
            self._forget_file(f"{self._path} can't be read: {error.strerror}; the last good config stays in force")
        else:
            is_new = new is not None and new != self._content
            self._content = new or self._content
            if self._content is not None and (is_new or tokens != self._tokens):
                self._tokens = tokens
                self._take(self._content)
        return self.config is not before[0] or self.rejection is not before[1]

    def refuse(self, error: str) -> None:
        """Record that this engine can't apply ``config``, and return to the previous config."""
        assert self.config is not None, "there is no config to refuse"
        self._reject(error, self.config.generation)
        self.config = self.fallback

    def read_again(self) -> None:
        """Make the next :meth:`poll` read the files even if they have not changed."""
        self._stamps = self._content = None

    def _read_if_changed(self) -> _Content | None:
        # Read from the projection. kubelet first replaces the projection, and then creates the folder's new links.
        folder = projection_of(self._folder) or self._folder
        path, packed_path, signature_path = (folder / name for name in (CONFIG_KEY, PACKED_KEY, SIGNATURE_KEY))
        # Take the stamps before reading. If a file changes in between, the next check finds another stamp.
        began_ns = time.time_ns()
        stamps = FileStamp.of(path), _stamp_if_there(packed_path), _stamp_if_there(signature_path)
        if stamps == self._stamps:
            return None
        content = (
            path.read_bytes(),
            packed_path.read_bytes() if stamps[1] is not None else None,
            _read_start(signature_path) if stamps[2] is not None else None,
        )
        self._stamps = stamps if all(stamp is None or stamp.is_settled(began_ns) for stamp in stamps) else None
        return content

    def _take(self, content: _Content) -> None:
        text, packed, signature = content
        pool_created = ""
        if self._read_tokens is not None:
            # Verify the signature before parsing, because until then any author could have written the file.
            files = {CONFIG_KEY: text} | ({} if packed is None else {PACKED_KEY: packed})
            try:
                pool_created = verify_config(files, signature, self._tokens)
            except SignatureError as error:
                self._reject(str(error), None, is_untrusted=True)
                return
        try:
            config = unpack_config(ConfigFiles(text.decode(), packed))
        # Besides ConfigError, catch the errors for bytes that are not text, too long numbers, and too deep nesting.
        except (ValueError, RecursionError) as error:
            self._reject(printable(str(error), _MAX_ERROR_LENGTH), _generation_in(text))
            return
        if config.generation >= MAX_GENERATION:
            problem = f"generation: {config.generation} is too large, so the operator did not write this config"
            self._reject(problem, None)
            return
        if self._read_tokens is not None and not self._is_newest(pool_created, config):
            return
        self.rejection = None
        if self.config is not None and _identity(config) == _identity(self.config):
            return
        self.fallback = self.config
        self.config = config

    def _is_newest(self, pool_created: str, config: RuntimeConfig) -> bool:
        """Returns whether a signed config is the newest that was read since the start. Rejects an older config.

        Generations of two configs are compared only if their pools have the same creation time. The generations of a
        pool that was created again start at 1.
        """
        newest_pool, newest = self._newest
        if pool_created < newest_pool:
            error = (
                "the config was signed for an earlier pool of this name, and the operator will replace it; if that "
                "pool was restored from a backup, restart the engine"
            )
            self._reject(error, config.generation, is_untrusted=True)
            return False
        if pool_created == newest_pool and config.generation < newest:
            error = (
                f"the config is older than the signed config {newest} that was read before, and the operator will "
                "replace it"
            )
            self._reject(error, config.generation, is_untrusted=True, newest_generation=newest)
            return False
        self._newest = pool_created, config.generation
        return True

    def _forget_file(self, error: str) -> None:
        self.read_again()
        self._reject(error, None)

    def _reject(
        self, error: str, generation: int | None, *, is_untrusted: bool = False, newest_generation: int | None = None
    ) -> None:
        # Keep the time of the first rejection if the error is the same.
        if self.rejection is None or (self.rejection.error, self.rejection.generation) != (error, generation):
            self.rejection = Rejection(
                generation=generation,
                error=error,
                untrusted=is_untrusted,
                newest_generation=newest_generation,
                unix_time=self._now(),
            )


def _read_start(path: Path) -> bytes:
    """Returns a signature file's first bytes: at most one more than a valid signature has, to detect larger files."""
    with path.open("rb") as file:
        return file.read(MAX_SIGNATURE_BYTES + 1)


def _stamp_if_there(path: Path) -> FileStamp | None:
    try:
        return FileStamp.of(path)
    except FileNotFoundError:
        return None


def _identity(config: RuntimeConfig) -> tuple[int, str]:
    # Include the generation, because the engine's report names the generation in force.
    return config.generation, config.hash


def _generation_in(content: bytes) -> int | None:
    """Returns the generation in a file that is not a valid config; None if it can't be determined."""
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError):
        return None
    generation = raw.get("generation") if isinstance(raw, dict) else None
    return generation if type(generation) is int and 0 <= generation < MAX_GENERATION else None
