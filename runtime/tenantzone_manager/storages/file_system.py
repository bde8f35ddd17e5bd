"""Storage in a folder that engines and manager mount (NFS, 3FS, a node's disk). A part is a file or a slot of a file.

ROOT/owner                                        the index and the storage to which the folder belongs
ROOT/objects/GROUP/INSTANCE/KK/KEY-LOCATION.SPEC  a part; KK is the first two digits of the block's key
ROOT/files/GROUP/INDEX/SLOT_BYTES/NUMBER          a large file, divided into slots of SLOT_BYTES
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, Final, TypeVar
from urllib.parse import quote

from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.storages.backend import (
    MAX_OWNER_BYTES,
    Claim,
    DataStorageBackend,
    Place,
    StorageError,
    StoredObject,
    parsed_part,
    part_name,
    slot_bytes,
)

_T = TypeVar("_T")
_LISTED: Final = 1000
"""Maximum number of files to list at a time."""
_UNFINISHED_SECONDS: Final = 1.0
"""Age in seconds from which an empty owner file counts as abandoned."""
_CLAIM_ATTEMPTS: Final = 5
_CLAIM_RETRY_SECONDS: Final = 0.05
"""Seconds between two attempts to claim a folder whose owner file is being written."""


class FileSystemStorage(DataStorageBackend):
    """Stores parts in a folder. Each storage has its own threads, so a storage that hangs does not block others.

    Args:
        root: the folder, which engines mount at the same path.
        slots_per_file: number of slots in a large file, or 0 to store each part in a separate file.
        claim: claim to the folder.
    """

    def __init__(self, root: Path, slots_per_file: int, claim: Claim) -> None:
        super().__init__(claim)
        self.slots_per_file = slots_per_file
        self._root = root
        # Only the root is quoted, because all other components of a path are names that need no quoting.
        self._quoted_root = quote(str(root))
        self._plain_root = str(root)
        # The threads end when this object is no longer referenced.
        self._threads = ThreadPoolExecutor(thread_name_prefix="storage")
        self._made: set[str] = set()
        """Paths of folders and large files that are known to exist."""

    def uri(self, place: Place, spec: LocationSpec) -> str:
        where = ""
        if spec.slot >= 0:
            where = f"&blkid={spec.slot}&offset={_offset(spec)}"
        return f"file://{self._path(place, spec, self._quoted_root)}?size={spec.size}{where}"

    async def create(self, places: Sequence[Place]) -> None:
        paths = {self._path(place, spec): spec for place in places for spec in place.location.specs}
        folders = {path.rpartition("/")[0] for path in paths} - self._made
        files = {path: spec for path, spec in paths.items() if spec.slot >= 0 and path not in self._made}
        if folders or files:
            await self._in_thread(self._make, folders, files)
            self._made |= folders | set(files)

    async def delete(self, places: Sequence[Place]) -> None:
        parts = [(self._path(place, spec), spec) for place in places for spec in place.location.specs]
        await self._in_thread(_remove, [Path(path) for path, spec in parts if spec.slot < 0])

    async def exist(self, places: Sequence[Place]) -> list[bool]:
        def look() -> list[bool]:
            return [all(self._is_there(place, spec) for spec in place.location.specs) for place in places]

        return await self._in_thread(look)

    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        return await self._in_thread(_read, self._path(place, spec), spec, _offset(spec))

    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        await self._in_thread(_write, self._path(place, spec), spec, _offset(spec), content)

    async def check_health(self) -> None:
        await self._in_thread(self._try)

    async def objects(self) -> AsyncIterator[list[StoredObject]]:
        listing = chain(_parts(self._root / "objects"), _foreign_files(self._root / "files", self.claim.index))
        while some := await self._in_thread(_next, listing):
            yield some

    async def remove(self, objects: Sequence[StoredObject]) -> None:
        await self._in_thread(_remove, [Path(each.name) for each in objects])

    async def _in_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except OSError as error:
            raise StorageError(str(error)) from error

    def _path(self, place: Place, spec: LocationSpec, root: str = "") -> str:
        root = root or self._plain_root
        # Paths are strings, because a write needs a path for each block, and pathlib would take ten times as long.
        if spec.slot >= 0:
            return f"{root}/files/{place.group}/{self.claim.index}/{slot_bytes(spec.size)}/{spec.file:08}"
        folder = f"{root}/objects/{place.group}/{place.instance}/{place.key[:1].hex()}"
        return f"{folder}/{part_name(place, spec)}"

    def _is_there(self, place: Place, spec: LocationSpec) -> bool:
        path = Path(self._path(place, spec))
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        return size == spec.size if spec.slot < 0 else size >= (spec.slot + 1) * slot_bytes(spec.size)

    def _make(self, folders: set[str], files: dict[str, LocationSpec]) -> None:
        for folder in folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
        for path, spec in files.items():
            with Path(path).open("ab") as file:
                file.truncate(self.slots_per_file * slot_bytes(spec.size))

    def _try(self) -> None:
        if not self._root.is_dir():
            raise StorageError(f"there is no folder {self._root}; create it, or mount the file system")
        self._take_place()
        # The file has a random name, because several managers or threads may check the storage at the same time.
        with NamedTemporaryFile(dir=self._root, prefix="probe-") as probe:
            probe.write(b"probe")
            probe.flush()
            if Path(probe.name).read_bytes() != b"probe":
                raise StorageError(f"{self._root} returned other bytes than were written; check the file system")

    def _take_place(self) -> None:
        for attempt in range(_CLAIM_ATTEMPTS):
            if attempt:
                time.sleep(_CLAIM_RETRY_SECONDS)
            with contextlib.suppress(FileExistsError):
                self._claim_place()
                return
        self._claim_place()

    def _claim_place(self) -> None:
        """Write the owner file if the place is free.

        Raises:
            FileExistsError: a concurrent check, by this or another storage, is writing the owner file.
        """
        owner = self._root / "owner"
        found = ""
        with contextlib.suppress(FileNotFoundError), owner.open("rb") as file:
            found = file.read(MAX_OWNER_BYTES).decode(errors="replace")
        if self.claim.has_to_write(found, str(self._root)):
            # The folder may have been replaced or emptied, so known folders and files may no longer exist.
            self._made.clear()
            if not found:
                _remove_unfinished(owner)
            with owner.open("w" if found else "x") as file:
                file.write(self.claim.text)
        self.claim.is_made()


def _remove_unfinished(owner: Path) -> None:
    """Remove an empty owner file that was abandoned, for example because the disk was full or the power failed."""
    with contextlib.suppress(FileNotFoundError):
        written_at = owner.stat().st_mtime
        # Compare the time with that of a new file, because a file server's clock may differ from this machine's clock.
        with NamedTemporaryFile(dir=owner.parent, prefix="probe-") as probe:
            now = os.fstat(probe.fileno()).st_mtime
        if written_at < now - _UNFINISHED_SECONDS:
            owner.unlink()


def _offset(spec: LocationSpec) -> int:
    """Returns the offset in bytes of a part in its file."""
    return max(0, spec.slot) * slot_bytes(spec.size)


def _read(path: str, spec: LocationSpec, offset: int) -> bytes:
    with _opened(path, os.O_RDONLY) as file:
        if spec.slot < 0 and os.fstat(file.fileno()).st_size != spec.size:
            raise StorageError(f"the size of {path} is not {spec.size} bytes")
        file.seek(offset)
        content = file.read(spec.size)
    if len(content) < spec.size:
        raise StorageError(f"{path} is too short for a part of {spec.size} bytes at offset {offset}")
    return content


def _write(path: str, spec: LocationSpec, offset: int, content: bytes) -> None:
    # The file of a single part must not exist yet, but a large file must exist.
    with _opened(path, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if spec.slot < 0 else 0)) as file:
        file.seek(offset)
        file.write(content)


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Iterator[BinaryIO]:
    # The umask decides the access rights of engines, which may run as other users. An engine may have replaced the file
    # by a pipe or a symbolic link, so opening must not block and must not follow links.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "wb") as file:
        yield file


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _next(listing: Iterator[StoredObject]) -> list[StoredObject]:
    return list(islice(listing, _LISTED))


def _parts(root: Path) -> Iterator[StoredObject]:
    for path in root.glob("*/*/*/*"):
        parsed = parsed_part(path.name)
        with contextlib.suppress(FileNotFoundError):
            if parsed is not None:
                group, instance = path.parts[-4:-2]
                yield StoredObject(group, instance, *parsed, str(path), path.stat().st_mtime)


def _foreign_files(root: Path, owner: str) -> Iterator[StoredObject]:
    """Generates the large files of other indices. This index has no records of blocks in these files."""
    for path in root.glob("*/*/*/*"):
        group, of = path.parts[-4:-2]
        with contextlib.suppress(FileNotFoundError):
            if of != owner:
                yield StoredObject(group, "", b"", "", str(path), path.stat().st_mtime)
