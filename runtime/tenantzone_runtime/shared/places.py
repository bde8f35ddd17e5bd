"""Parses a chunk's location from the manager's URI, and checks that an engine may read and write there.

The manager is trusted only this far: a path must be one that only a manager's storage has, with the instance and the
block in it. So an impostor can't make the engine read or write its other files.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from tenantzone_runtime.shared.answers import Location

PART: Final = "chunk"
"""The name of the only part of a location: a chunk has the data of all workers of an engine."""
_NAME: Final = r"[A-Za-z0-9._-]+"
_OBJECT: Final = re.compile(rf"/objects/{_NAME}/(?P<instance>{_NAME})/(?P<first>[0-9a-f]{{2}})/(?P<name>{_NAME})")
_NAMED_OBJECT: Final = re.compile(rf"(?:.*/)?{_NAME}/(?P<instance>{_NAME})/(?P<name>{_NAME})")
_SLOTS: Final = re.compile(rf"/files/{_NAME}/{_NAME}/[0-9]+/[0-9]{{8,}}")


class PlaceError(ValueError):
    """A location that this engine can't or may not use; the message states why."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file, or a slot of a large file."""

    path: Path
    offset: int
    """The offset in bytes; negative if the file holds only the chunk."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object on an S3 server."""

    bucket: str
    name: str


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """An object in a memory pool of several nodes."""

    master: str
    """The host and port of the pool's master."""
    name: str


Place = FilePlace | ObjectPlace | PoolPlace


def place_of(location: Location, instance: str, key: bytes, size: int) -> Place:
    """Returns the place of a chunk.

    Args:
        location: the manager's location.
        instance: the instance that was queried.
        key: the key of the chunk.
        size: the required size in bytes.

    Raises:
        PlaceError: the location is in an unknown kind of storage, or is not a place of this chunk.
    """
    (part,) = location.specs if len(location.specs) == 1 else (None,)
    if part is None or part.name != PART or part.size != size:
        raise PlaceError(f"location {location.id} has other parts than one {PART} of {size} bytes")
    try:
        url = urlsplit(part.uri)
    except ValueError as error:
        raise PlaceError(f"{part.uri!r} is no URI: {error}") from None
    path, name = unquote(url.path), f"{key.hex()}-{location.id}.{PART}"
    if url.scheme == "s3" and url.netloc:
        return ObjectPlace(url.netloc, _object(f"the bucket {url.netloc}", path.removeprefix("/"), name, instance))
    if url.scheme == "mooncake" and url.netloc:
        return PoolPlace(url.netloc, _object(f"the pool {url.netloc}", path.removeprefix("/"), name, instance))
    if url.scheme != "file" or url.netloc:
        raise PlaceError(
            f"storage {location.storage} is neither of files nor S3 nor Mooncake, and this engine knows no other"
        )
    query = parse_qs(url.query)
    if "offset" in query:
        return FilePlace(_slots(path), _offset(query["offset"][0]))
    return FilePlace(_own_file(path, name, instance, key), -1)


def _own_file(path: str, name: str, instance: str, key: bytes) -> Path:
    root, found = _split(path, "/objects/", _OBJECT)
    if (found["instance"], found["first"], found["name"]) != (instance, key[:1].hex(), name):
        raise PlaceError(f"{path} is the place of something else")
    return Path(root + found[0])


def _object(where: str, path: str, name: str, instance: str) -> str:
    found = _NAMED_OBJECT.fullmatch(path)
    if found is None or (found["instance"], found["name"]) != (instance, name):
        raise PlaceError(f"{path} of {where} is the place of something else")
    return path


def _slots(path: str) -> Path:
    root, found = _split(path, "/files/", _SLOTS)
    return Path(root + found[0])


def _split(path: str, start: str, form: re.Pattern[str]) -> tuple[str, re.Match[str]]:
    at = path.rfind(start)
    found = form.fullmatch(path, at) if at > 0 else None
    if found is None or ".." in Path(path).parts:
        raise PlaceError(f"{path} is no place of a manager's storage")
    return path[:at], found


def _offset(text: str) -> int:
    if not text.isdecimal():
        raise PlaceError(f"{text!r} is no offset")
    return int(text)
