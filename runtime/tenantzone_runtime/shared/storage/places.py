"""Parses the URI of a chunk's location, and checks that the engine may read and write there.

The URI comes from the manager, which must not be able to choose arbitrary paths. A path must have the form of paths in
a manager's storage. A file or object that contains only one chunk must also be named after the instance and the chunk.
So an impostor of the manager can't make the engine read or write other files.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from tenantzone_runtime.shared.manager.answers import Location

PART: Final = "chunk"
"""Name of a location's only part. One part is enough, because a chunk has the data of all workers of an engine."""
_NAME: Final = r"[A-Za-z0-9._-]+"
_OBJECT: Final = re.compile(rf"/objects/{_NAME}/(?P<instance>{_NAME})/(?P<first>[0-9a-f]{{2}})/(?P<name>{_NAME})")
_NAMED_OBJECT: Final = re.compile(rf"(?:.*/)?{_NAME}/(?P<instance>{_NAME})/(?P<name>{_NAME})")
_SLOTS: Final = re.compile(rf"/files/{_NAME}/{_NAME}/[0-9]+/[0-9]{{8,}}")

_LONGEST_OFFSET: Final = 18
"""Maximum number of digits of an offset. 18 digits always fit into 64 bits."""


class PlaceError(ValueError):
    """The engine can't or may not use a location."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file with one chunk, or a slot of a large file."""

    path: Path
    offset: int
    """Offset of the slot in bytes; negative if the file contains only one chunk."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object on an S3 server."""

    bucket: str
    name: str


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """An object in a Mooncake memory pool."""

    master: str
    """Host and port of the pool's master."""
    name: str


Place = FilePlace | ObjectPlace | PoolPlace


def place_of(location: Location, instance: str, key: bytes, size: int) -> Place:
    """Returns the file or object in which a location stores a chunk.

    Args:
        location: the location from the manager.
        instance: name of the instance to which the chunk belongs.
        key: key of the chunk.
        size: size that the location must have, in bytes.

    Raises:
        PlaceError: the storage has an unsupported type, or the URI is not valid for this chunk.
    """
    (part,) = location.specs if len(location.specs) == 1 else (None,)
    if part is None or part.name != PART or part.size != size:
        raise PlaceError(f"location {location.id} does not consist of one {PART} of {size} bytes")
    try:
        url = urlsplit(part.uri)
    except ValueError as error:
        raise PlaceError(f"{part.uri!r} is not a valid URI: {error}") from None
    path, name = unquote(url.path), f"{key.hex()}-{location.id}.{PART}"
    if url.scheme == "s3" and url.netloc:
        return ObjectPlace(url.netloc, _object(f"the bucket {url.netloc}", path.removeprefix("/"), name, instance))
    if url.scheme == "mooncake" and url.netloc:
        return PoolPlace(url.netloc, _object(f"the pool {url.netloc}", path.removeprefix("/"), name, instance))
    if url.scheme != "file" or url.netloc:
        raise PlaceError(
            f"storage {location.storage} is not of a type that this engine supports: files, S3 or Mooncake"
        )
    query = parse_qs(url.query)
    if "offset" in query:
        return FilePlace(_slots(path), _offset(query["offset"][0]))
    return FilePlace(_own_file(path, name, instance, key), -1)


def _own_file(path: str, name: str, instance: str, key: bytes) -> Path:
    root, found = _split(path, "/objects/", _OBJECT)
    if (found["instance"], found["first"], found["name"]) != (instance, key[:1].hex(), name):
        raise PlaceError(f"{path} is not the path of this chunk")
    return Path(root + found[0])


def _object(where: str, path: str, name: str, instance: str) -> str:
    found = _NAMED_OBJECT.fullmatch(path)
    if found is None or (found["instance"], found["name"]) != (instance, name):
        raise PlaceError(f"{path} in {where} is not the name of this chunk's object")
    return path


def _slots(path: str) -> Path:
    root, found = _split(path, "/files/", _SLOTS)
    return Path(root + found[0])


def _split(path: str, start: str, form: re.Pattern[str]) -> tuple[str, re.Match[str]]:
    at = path.rfind(start)
    found = form.fullmatch(path, at) if at > 0 else None
    if found is None or ".." in Path(path).parts:
        raise PlaceError(f"{path} is not a path in a manager's storage")
    return path[:at], found


def _offset(text: str) -> int:
    if not text.isdecimal() or len(text) > _LONGEST_OFFSET:
        raise PlaceError(f"{text!r} is not a valid offset")
    return int(text)
