"""The last good config: looks at a folder that kubelet projects, reads what changed, keeps what worked.

It polls: kubelet swaps a symbolic link, not every volume sends events for that, and a look costs microseconds.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from tenantzone_contract.config import CONFIG_KEY, MAX_GENERATION, RuntimeConfig
from tenantzone_contract.config_signature import MAX_SIGNATURE_BYTES, SIGNATURE_KEY, SignatureError, verify_config
from tenantzone_contract.packing import PACKED_KEY, ConfigFiles, unpack_config
from tenantzone_contract.report import Rejection
from tenantzone_contract.text import printable

_PROJECTION_LINK = "..data"
_MAX_ERROR_LENGTH = 1000
_CLOCK_TICK_NS = 100_000_000

T = TypeVar("T")


def projection_of(folder: Path) -> Path | None:
    """The folder that kubelet's link leads to now, with everything in it from one ConfigMap or Secret.

    None in a plain folder, or where there is none.
    """
    try:
        return folder / (folder / _PROJECTION_LINK).readlink()
    except FileNotFoundError:
        return None


def across_swaps(folder: Path, read: Callable[[], T]) -> T:
    """Read something in a projected folder, again if kubelet swapped the content meanwhile.

    A path is followed link by link, so even a single open can arrive in a projection that is just gone; and a listing
    can see one that is half deleted.

    Raises:
        FileNotFoundError: it is missing, not merely swapped.
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
    """The stamp of a file's state, which tells it from the next one without reading the file."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """The stamp of the file that the path leads to, through all links.

        Raises:
            OSError: there is none, or it is out of reach.
        """
        status = path.stat()
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_settled(self, before_ns: int) -> bool:
        """Whether any later write will show in the stamp.

        File systems tell the time in ticks, and one tick may see two writes.

        Args:
            before_ns: Unix time before the stamp was taken, in nanoseconds.
        """
        return before_ns - self.modified_ns > _CLOCK_TICK_NS


class WatchedFile:
    """One file of a projected folder, read again when it has changed.

    Args:
        folder: where a ConfigMap or Secret is projected. It need not exist yet.
        name: of the file in it.
        max_bytes: what is longer is read this far and one byte beyond.
    """

    def __init__(self, folder: Path, name: str, max_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._max_bytes = max_bytes
        self._stamp: FileStamp | None = None
        """None: it is read at the next look."""

    def read_if_changed(self) -> bytes | None:
        """What the file has, or None if it is as it was at the last look.

        Raises:
            FileNotFoundError: it is missing.
            OSError: it can't be read. After either it is read at the next look that finds it.
        """
        try:
            return across_swaps(self._folder, self._read_if_changed)
        except OSError:
            self._stamp = None
            raise

    def _read_if_changed(self) -> bytes | None:
        path = (projection_of(self._folder) or self._folder) / self._name
        # The stamp comes first: if the file changes in between, the next look sees another stamp and reads again.
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
"""What ``config.json``, ``config.jsonl.gz`` and ``config.signature`` have; None: there is no such file."""


class ConfigSource:
    """The newest config of a folder that could be read whole, and what is wrong with the file if it is another one.

    Args:
        folder: where the pool's ConfigMap is projected. It need not exist yet.
        tokens: reads the pool's admin tokens that are in force; given, a config counts only if it is signed with one of
            them, and is not older than the newest one that was so. None: signatures are not looked at.
        now: Unix time in seconds.
    """

    config: RuntimeConfig | None = None
    """The last good one; None until there was one."""
    rejection: Rejection | None = None
    """Why the file as it is now is not ``config``; None if it is, or if there never was a file."""

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
        """Those by which the signature was verified last."""
        self._newest: tuple[str, int] = "", 0
        """When the pool was created, and the generation, of the newest config whose signature held."""
        self._now = now
        self._stamps: _Stamps | None = None
        self._content: _Content | None = None
        self.fallback: RuntimeConfig | None = None
        """What ``config`` was before it is what it is; the last good one if ``config`` is refused."""

    def poll(self) -> bool:
        """Look at the config's file, and read it if it has changed; verify it again if the tokens have.

        Returns:
            Whether ``config`` or ``rejection`` is another one than before.
        """
        before = self.config, self.rejection
        tokens = self._read_tokens() if self._read_tokens is not None else ()
        try:
            new = across_swaps(self._folder, self._read_if_changed)
        except FileNotFoundError:
            if before != (None, None):
                self._forget_file(f"{self._path} is missing; the last good config stays")
        except OSError as error:
            self._forget_file(f"{self._path} can't be read: {error.strerror}; the last good config stays")
        else:
            is_new = new is not None and new != self._content
            self._content = new or self._content
            if self._content is not None and (is_new or tokens != self._tokens):
                self._tokens = tokens
                self._take(self._content)
        return self.config is not before[0] or self.rejection is not before[1]

    def refuse(self, error: str) -> None:
        """Note that ``config`` can't be applied here, so that the one before it is the last good one."""
        assert self.config is not None, "there is no config to refuse"
        self._reject(error, self.config.generation)
        self.config = self.fallback

    def read_again(self) -> None:
        """Have the next :meth:`poll` take the file for one that has never been read."""
        self._stamps = self._content = None

    def _read_if_changed(self) -> _Content | None:
        # Kubelet swaps the content first, and then makes links to files that are new in it.
        folder = projection_of(self._folder) or self._folder
        path, packed_path, signature_path = (folder / name for name in (CONFIG_KEY, PACKED_KEY, SIGNATURE_KEY))
        # The stamps come first: if a file changes in between, the next look sees another stamp and reads again.
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
            # Before anything of it is read: who wrote it is not known yet.
            files = {CONFIG_KEY: text} | ({} if packed is None else {PACKED_KEY: packed})
            try:
                pool_created = verify_config(files, signature, self._tokens)
            except SignatureError as error:
                self._reject(str(error), None, is_untrusted=True)
                return
        try:
            config = unpack_config(ConfigFiles(text.decode(), packed))
        # Besides ConfigError: bytes that are no text, numbers too long to convert, brackets nested too deep.
        except (ValueError, RecursionError) as error:
            self._reject(printable(str(error), _MAX_ERROR_LENGTH), _generation_in(text))
            return
        if config.generation >= MAX_GENERATION:
            self._reject(f"generation: {config.generation} was not written by the operator", None)
            return
        if self._read_tokens is not None and not self._is_newest(pool_created, config):
            return
        self.rejection = None
        if self.config is not None and _identity(config) == _identity(self.config):
            return
        self.fallback = self.config
        self.config = config

    def _is_newest(self, pool_created: str, config: RuntimeConfig) -> bool:
        """Whether no newer signed config was read since the start; rejects the config if one was.

        A pool that is deleted and created again counts its generations anew.
        """
        if (pool_created, config.generation) < self._newest:
            error = (
                f"it is older than the signed config {self._newest[1]} that came before it: the operator replaces it; "
                "if the API server was restored from a backup, restart the engine"
            )
            self._reject(error, config.generation, is_untrusted=True)
            return False
        self._newest = pool_created, config.generation
        return True

    def _forget_file(self, error: str) -> None:
        self.read_again()
        self._reject(error, None)

    def _reject(self, error: str, generation: int | None, *, is_untrusted: bool = False) -> None:
        # The same complaint about the same file keeps its time.
        if self.rejection is None or (self.rejection.error, self.rejection.generation) != (error, generation):
            self.rejection = Rejection(
                generation=generation, error=error, untrusted=is_untrusted, unix_time=self._now()
            )


def _read_start(path: Path) -> bytes:
    """What a signature's file has; what is longer than any signature is read one byte beyond."""
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
    """The generation of a file that is no valid config, if that much can be told."""
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError):
        return None
    generation = raw.get("generation") if isinstance(raw, dict) else None
    return generation if type(generation) is int and 0 <= generation < MAX_GENERATION else None
