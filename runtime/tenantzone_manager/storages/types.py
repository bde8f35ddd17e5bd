"""The storage types. Each type is a subclass of ``DataStorageBackend`` in its own module, with an entry here."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tenantzone_contract.cache.mooncake import check_master
from tenantzone_manager.core.settings import NAME, Storage
from tenantzone_manager.storages.backend import Claim, DataStorageBackend
from tenantzone_manager.storages.file_system import FileSystemStorage
from tenantzone_manager.storages.mooncake import MooncakeStorage


def _file_system(storage: Storage, owner: str, _: Path | None) -> DataStorageBackend:
    options = _Options(storage)
    root = Path(options.text("root"))
    if not root.is_absolute():
        raise ValueError(
            f"storage {storage.name}: root must be an absolute path, and engines must mount the folder at that path"
        )
    slots = options.number("slots_per_file", 0)
    made = FileSystemStorage(root, slots, Claim(owner, storage.name, options.flag("takeover")))
    options.end()
    return made


def _s3(storage: Storage, owner: str, folder: Path | None) -> DataStorageBackend:
    # Import late, because importing the S3 client takes a second.
    from tenantzone_manager.storages.s3 import S3Storage

    options = _Options(storage)
    made = S3Storage(
        options.text("bucket"),
        options.text("prefix", ""),
        options.text("endpoint", ""),
        options.text("region", ""),
        Claim(owner, storage.name, options.flag("takeover")),
        _credentials(storage, options.text("credentials", ""), folder),
    )
    options.end()
    return made


def _mooncake(storage: Storage, owner: str, _: Path | None) -> DataStorageBackend:
    options = _Options(storage)
    master = options.text("master")
    try:
        check_master(master)
    except ValueError as error:
        raise ValueError(f"storage {storage.name}: {error}") from None
    prefix, http = options.text("prefix", ""), options.text("http", "")
    if not prefix.isprintable():
        raise ValueError(f"storage {storage.name}: option prefix must be one line of text, not {prefix!r}")
    if http and not re.fullmatch(r"http://[^\s/@?#]+/?", http):
        raise ValueError(
            f"storage {storage.name}: option http must be the URL of the master's HTTP port, such as http://HOST:9003"
        )
    made = MooncakeStorage(master, prefix, http, Claim(owner, storage.name, options.flag("takeover")))
    options.end()
    return made


def _credentials(storage: Storage, name: str, folder: Path | None) -> Path | None:
    """Returns the path of a storage's credentials file, or None if the storage has no such option."""
    if not name:
        return None
    if not re.fullmatch(NAME, name):
        raise ValueError(
            f"storage {storage.name}: the option credentials must be the name of a file in the folder --credentials, "
            f"not {name!r}"
        )
    if folder is None:
        raise ValueError(
            f"storage {storage.name}: the option credentials requires that the manager was started with "
            "--credentials; start it with this argument, or remove the option"
        )
    return folder / name


STORAGE_TYPES: Final[Mapping[str, Callable[[Storage, str, Path | None], DataStorageBackend]]] = {
    "FileSystem": _file_system,
    "S3": _s3,
    "Mooncake": _mooncake,
}
"""Functions that create the backend of a storage, by storage type. They raise ``ValueError`` for invalid options."""


def make(storage: Storage, owner: str, credentials: Path | None = None) -> DataStorageBackend:
    """Returns the backend of a storage for an index.

    Args:
        storage: the registered storage.
        owner: name of the index.
        credentials: folder with the credentials files of storages. If None, storages can't use credentials files.

    Raises:
        ValueError: the type does not exist, or an option is unknown or invalid.
    """
    if storage.type not in STORAGE_TYPES:
        raise ValueError(f"storage {storage.name}: type must be one of {', '.join(STORAGE_TYPES)}, not {storage.type}")
    return STORAGE_TYPES[storage.type](storage, owner, credentials)


class _Options:
    """The options of a storage. Reading an option removes the option, so the options left at the end are unknown."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._left = dict(storage.options)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str):
            raise ValueError(f"storage {self._storage.name}: option {name} must be set to text")
        return value

    def number(self, name: str, default: int) -> int:
        value = self._left.pop(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"storage {self._storage.name}: option {name} must be a whole number of at least 0")
        return value

    def flag(self, name: str) -> bool:
        value = self._left.pop(name, False)
        if not isinstance(value, bool):
            raise ValueError(f"storage {self._storage.name}: option {name} must be true or false")
        return value

    def end(self) -> None:
        if self._left:
            unknown = ", ".join(sorted(self._left))
            raise ValueError(f"storage {self._storage.name}: {self._storage.type} has no option {unknown}; remove it")
