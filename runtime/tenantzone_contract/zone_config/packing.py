"""Stores a snapshot in a ConfigMap, which engines mount as their config folder, and reads it from there.

Version 1 stores the whole snapshot as plain JSON in ``config.json``. Version 2 is for snapshots that are too large for
version 1. ``config.json`` then has only the generation and the hash, and ``config.jsonl.gz`` has the content as
compressed JSON Lines (jsonlines.org), with the pool's settings in the first line and one zone in each later line.

In both versions, ``config.signature`` is the signature (`tenantzone_contract.zone_config.config_signature`). Only
engines that demand signatures read this file.
"""

import base64
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from tenantzone_contract.zone_config.config import CONFIG_KEY, NEWEST_SCHEMA_VERSION, ConfigError, Hash, RuntimeConfig
from tenantzone_contract.zone_config.config_signature import MAX_SIGNATURE_BYTES, SIGNATURE_KEY
from tenantzone_contract.zone_config.config_text import (
    ContentDigest,
    check_number_of_zones,
    check_snapshot,
    dump_config,
    explain,
    read_json,
    read_snapshot,
    read_value,
    read_zone_entry,
)

PACKED_KEY: Final = "config.jsonl.gz"
"""Key of the compressed content in the ConfigMap, and name of the file in the mounted folder."""

MAX_PLAIN_BYTES: Final = 900_000
"""Maximum size of an uncompressed snapshot. A larger snapshot is compressed."""

MAX_TEXT_BYTES: Final = 32 * 2**20
"""Maximum size of the content before compression, because a few compressed bytes can expand to gigabytes."""

MAX_CONFIG_MAP_BYTES: Final = 2**20
"""The API server's limit on the total size of a ConfigMap (``MaxSecretSize`` in Kubernetes' validation)."""

_LEVEL: Final = 6
_PART_BYTES: Final = 2**16
_MAX_LINE_BYTES: Final = 2 * 2**20
"""Maximum size of a line in bytes, slightly more than a pool's settings can have. A zone's line is far smaller."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class PackedHead(BaseModel):
    """The content of ``config.json`` if the snapshot itself is compressed in ``config.jsonl.gz``."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    schema_version: Literal[2] = 2
    generation: Annotated[int, Field(ge=1)]
    hash: Hash
    """The hash of the compressed snapshot."""
    content: Literal["config.jsonl.gz"] = PACKED_KEY


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The files of a stored snapshot."""

    text: str
    """The content of ``config.json``."""
    packed: bytes | None = None
    """The content of ``config.jsonl.gz``; None if the text is the whole snapshot."""
    signature: bytes | None = None
    """The content of ``config.signature``; None if the snapshot is not signed."""

    @property
    def size(self) -> int:
        """Total size of the files in bytes, as the API server counts it."""
        return len(self.text.encode()) + len(self.packed or b"") + len(self.signature or b"")

    @property
    def most_size(self) -> int:
        """Total size of the files in bytes if the signature had its maximum size."""
        return self.size - len(self.signature or b"") + MAX_SIGNATURE_BYTES

    @property
    def signed(self) -> dict[str, bytes]:
        """Content of each file that the signature covers, by name."""
        return {CONFIG_KEY: self.text.encode()} | ({} if self.packed is None else {PACKED_KEY: self.packed})

    @property
    def binary(self) -> dict[str, bytes]:
        """Content of each binary file, by name."""
        found = {PACKED_KEY: self.packed, SIGNATURE_KEY: self.signature}
        return {name: content for name, content in found.items() if content is not None}


def pack_config(config: RuntimeConfig) -> ConfigFiles:
    """Returns the stored form of a snapshot, in version 1 if the snapshot is small enough.

    The result may still be too large for a ConfigMap.

    Raises:
        ConfigError: the snapshot is larger than readers accept.
    """
    text = dump_config(config)
    if len(text) <= MAX_PLAIN_BYTES:
        return ConfigFiles(text)
    lines = "\n".join([config.pool.text, *(zone.text for zone in config.zones)])
    check_number_of_zones(len(config.zones))
    if len(lines) > MAX_TEXT_BYTES:
        raise ConfigError(f"the config has {len(lines):,} bytes, more than {MAX_TEXT_BYTES:,}; use more pools")
    head = PackedHead(generation=config.generation, hash=config.hash)
    # Omit gzip's timestamp, so that the same snapshot always makes the same file.
    packed = gzip.compress(lines.encode(), _LEVEL, mtime=0)
    return ConfigFiles(head.model_dump_json(by_alias=True, indent=1) + "\n", packed)


def unpack_config(files: ConfigFiles) -> RuntimeConfig:
    """Read a snapshot from its stored form; an error in any part rejects the whole snapshot.

    Compressed content is read in small parts, because one long call would hold the GIL and block all other threads.

    Raises:
        ConfigError: the same cases as in `parse_config`; or the compressed content is missing, is damaged, or belongs
            to another snapshot.
    """
    raw = read_json(files.text)
    if raw.get("schemaVersion") != NEWEST_SCHEMA_VERSION:
        return read_snapshot(raw)
    try:
        head = PackedHead.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None
    if files.packed is None:
        raise ConfigError(f"content: the file {head.content} is missing")
    lines = _lines(files.packed)
    pool = next(lines)
    digest, zones = ContentDigest(pool), []
    for number, line in enumerate(lines):
        check_number_of_zones(number + 1)
        digest.add(line)
        zones.append(read_zone_entry(number, _read_line(line)))
    shared = {"generation": head.generation, "hash": head.hash, "pool": _read_line(pool)}
    return check_snapshot({**shared, "zones": tuple(zones)}, digest)


def _lines(packed: bytes) -> Iterator[str]:
    """Iterate over the lines of the compressed content; there is at least one line.

    Raises:
        ConfigError: the content is damaged, or longer than readers accept.
    """
    reader, rest, read = zlib.decompressobj(_GZIP), bytearray(), 0
    while not reader.eof:
        try:
            part = reader.decompress(packed, _PART_BYTES)
        except zlib.error as error:
            raise ConfigError(f"{PACKED_KEY}: not in gzip format, or damaged: {error}") from None
        packed = reader.unconsumed_tail
        if not part and not packed and not reader.eof:
            raise ConfigError(f"{PACKED_KEY}: the file was cut off")
        read += len(part)
        if read > MAX_TEXT_BYTES:
            raise ConfigError(f"{PACKED_KEY}: the content is longer than {MAX_TEXT_BYTES:,} bytes")
        rest += part
        if len(rest) > _MAX_LINE_BYTES + _PART_BYTES:
            raise ConfigError(f"{PACKED_KEY}: a line is longer than {_MAX_LINE_BYTES:,} bytes")
        if b"\n" in part:
            *whole, rest = rest.split(b"\n")
            yield from map(_decode, whole)
    yield _decode(rest)


def _decode(line: bytearray) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{PACKED_KEY}: not UTF-8 text: {error}") from None


def _read_line(line: str) -> object:
    return read_value(line, f"{PACKED_KEY}: a line")


def config_map_data(files: ConfigFiles) -> dict[str, dict[str, str]]:
    """Returns the ``data`` and ``binaryData`` of a ConfigMap with these files."""
    binary = {name: base64.b64encode(content).decode() for name, content in files.binary.items()}
    return {"data": {CONFIG_KEY: files.text}, "binaryData": binary}


def config_map_keys(files: ConfigFiles) -> dict[str, frozenset[str]]:
    """Returns the keys of ``data`` and ``binaryData`` of a ConfigMap with these files."""
    return {"data": frozenset({CONFIG_KEY}), "binaryData": frozenset(files.binary)}


def files_of(config_map: Mapping[str, Any]) -> ConfigFiles:
    """Returns the files in a ConfigMap from the API server; the text is empty if ``config.json`` is missing."""
    text, binary = (config_map.get("data") or {}).get(CONFIG_KEY, ""), config_map.get("binaryData") or {}
    packed, signature = (
        base64.b64decode(binary[name]) if name in binary else None for name in (PACKED_KEY, SIGNATURE_KEY)
    )
    return ConfigFiles(text, packed, signature)
