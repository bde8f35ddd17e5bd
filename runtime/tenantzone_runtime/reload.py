"""The last good config: watches a folder that kubelet projects, reads changes, and keeps the last valid config.

The folder is polled, because kubelet swaps a symbolic link, for which not every volume sends events. A check takes
microseconds.
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
    """Returns the folder that kubelet's link currently refers to, whose files belong to one version of its source.

    Returns None for a plain or missing folder.
    """
    try:
        return folder / (folder / _PROJECTION_LINK).readlink()
    except FileNotFoundError:
        return None


def across_swaps(folder: Path, read: Callable[[], T]) -> T:
    """Read something in a projected folder, and repeat it if kubelet swapped the content meanwhile.

    A path is resolved link by link, so even a single open can end in a projection that has just been removed, and a
    listing can see a projection that is partly deleted.

    Raises:
        FileNotFoundError: the file is missing even without a swap.
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
    """A file's metadata, by which a change is detected without reading the file."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Returns the stamp of the file at the end of the path's links.

        Raises:
            OSError: the file does not exist or is inaccessible.
        """
        status = path.stat()
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_settled(self, before_ns: int) -> bool:
        """Returns whether any later write will change the stamp.

        File systems record time in ticks, and one tick may contain two writes.

        Args:
            before_ns: Unix time before the stamp was taken, in nanoseconds.
        """
        return before_ns - self.modified_ns > _CLOCK_TICK_NS


class WatchedFile:
    """A file of a projected folder that is read again when it has changed.

    Args:
        folder: the folder into which a ConfigMap or Secret is projected. It need not exist yet.
        name: the name of the file.
        max_bytes: a longer file is read up to one byte beyond this.
    """

    def __init__(self, folder: Path, name: str, max_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._max_bytes = max_bytes
        self._stamp: FileStamp | None = None
        """The stamp at the last read; None makes the next check read the file."""

    def read_if_changed(self) -> bytes | None:
        """Returns the file's content, or None if it has not changed since the last check.

        Raises:
            FileNotFoundError: the file is missing.
            OSError: the file can't be read. After either error, the next check that finds the file reads it.
        """
        try:
            return across_swaps(self._folder, self._read_if_changed)
        except OSError:
            self._stamp = None
            raise

    def _read_if_changed(self) -> bytes | None:
        path = (projection_of(self._folder) or self._folder) / self._name
        # The stamp comes first: if the file changes in between, the next check sees another stamp and reads again.
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
"""The contents of ``config.json``, ``config.jsonl.gz`` and ``config.signature``; None for a missing file."""


class ConfigSource:
    """The newest valid config of a folder, and the error of a newer file that is invalid.

    Args:
        folder: the folder into which the pool's ConfigMap is projected. It need not exist yet.
        tokens: reads the pool's valid admin tokens; then a config is accepted only if it is signed with one of them and
            not older than the newest config that was. None to ignore signatures.
        now: returns Unix time in seconds.
    """

    config: RuntimeConfig | None = None
    """The last good config; None until a config was accepted."""
    rejection: Rejection | None = None
    """Why the current file was not accepted as ``config``; None if it was, or if there never was a file."""

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
        """The previous value of ``config``: the last good one if ``config`` is refused."""

    def poll(self) -> bool:
        """Check the config's file, read it if it has changed, and verify it again if the tokens have changed.

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
        """Record that ``config`` can't be applied here, so that the previous one is the last good one."""
        assert self.config is not None, "there is no config to refuse"
        self._reject(error, self.config.generation)
        self.config = self.fallback

    def read_again(self) -> None:
        """Make the next :meth:`poll` treat the file as never read."""
        self._stamps = self._content = None

    def _read_if_changed(self) -> _Content | None:
        # Kubelet swaps the content first, and then creates links to files that are new in it.
        folder = projection_of(self._folder) or self._folder
        path, packed_path, signature_path = (folder / name for name in (CONFIG_KEY, PACKED_KEY, SIGNATURE_KEY))
        # The stamps come first: if a file changes in between, the next check sees another stamp and reads again.
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
            # Verify before parsing, because the author of the file is not known yet.
            files = {CONFIG_KEY: text} | ({} if packed is None else {PACKED_KEY: packed})
            try:
                pool_created = verify_config(files, signature, self._tokens)
            except SignatureError as error:
                self._reject(str(error), None, is_untrusted=True)
                return
        try:
            config = unpack_config(ConfigFiles(text.decode(), packed))
        # In addition to ConfigError: bytes that are not text, numbers too long to convert, brackets nested too deep.
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
        """Returns whether no newer signed config was read since the start; rejects the config otherwise.

        A pool that is deleted and created again restarts its generations.
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
        # Keep the time of the first rejection if the same file has the same error.
        if self.rejection is None or (self.rejection.error, self.rejection.generation) != (error, generation):
            self.rejection = Rejection(
                generation=generation,
                error=error,
                untrusted=is_untrusted,
                newest_generation=newest_generation,
                unix_time=self._now(),
            )


def _read_start(path: Path) -> bytes:
    """Returns the content of a signature file, at most one byte beyond the maximum length, which shows an excess."""
    with path.open("rb") as file:
        return file.read(MAX_SIGNATURE_BYTES + 1)


def _stamp_if_there(path: Path) -> FileStamp | None:
    try:
        return FileStamp.of(path)
    except FileNotFoundError:
        return None


def _identity(config: RuntimeConfig) -> tuple[int, str]:
    # The generation counts too: the engine's acknowledgement names it.
    return config.generation, config.hash


def _generation_in(content: bytes) -> int | None:
    """Returns the generation of a file that is not a valid config, if it can be determined."""
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError):
        return None
    generation = raw.get("generation") if isinstance(raw, dict) else None
    return generation if type(generation) is int and 0 <= generation < MAX_GENERATION else None
