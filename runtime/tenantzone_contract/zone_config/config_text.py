"""Makes, writes and reads config snapshots as JSON text, with a hash of the content.

The hash covers the JSON as written, so a reader that knows more fields than the writer still computes the same hash.
Long texts are read and hashed zone by zone, because one long call would hold the GIL and block all other threads.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.config import (
    MAX_ZONES,
    NEWEST_SCHEMA_VERSION,
    SCHEMA_VERSION,
    ConfigError,
    PoolConfig,
    RuntimeConfig,
    ZoneConfig,
)
from tenantzone_contract.zone_config.config_model import canonical

_MAX_MEMBERS = 100
"""Maximum number of members of a JSON object, because pydantic makes an error for each unknown field."""
_MAX_NAME_LENGTH = 100
_MAX_MESSAGE_LENGTH = 500


def content_hash(pool: PoolConfig, zones: Iterable[ZoneConfig]) -> str:
    """Returns the hash of a snapshot's content without its generation, as ``sha256:`` and hexadecimal digits."""
    digest = ContentDigest(pool.text)
    for zone in zones:
        digest.add(zone.text)
    return digest.result()


class ContentDigest:
    """Computes the digest of a snapshot's content, zone by zone.

    Args:
        pool: the pool's part of the snapshot, as canonical JSON.
    """

    def __init__(self, pool: str) -> None:
        self._digest = hashlib.sha256(f'{{"pool":{pool},"schemaVersion":{SCHEMA_VERSION},"zones":['.encode())
        self._separator = ""

    def add(self, zone: str) -> None:
        """Add the next zone, as canonical JSON."""
        self._digest.update(f"{self._separator}{zone}".encode())
        self._separator = ","

    def result(self) -> str:
        self._digest.update(b"]}")
        return f"sha256:{self._digest.hexdigest()}"


def make_config(generation: int, pool: PoolConfig, zones: tuple[ZoneConfig, ...]) -> RuntimeConfig:
    """Make a snapshot with its hash.

    Raises:
        ConfigError: two zones share a name or a tenant.
    """
    try:
        return RuntimeConfig(generation=generation, hash=content_hash(pool, zones), pool=pool, zones=zones)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def dump_config(config: RuntimeConfig) -> str:
    """Returns the snapshot as JSON, with one zone per line."""
    head = f'{{"schemaVersion":{SCHEMA_VERSION},"generation":{config.generation},"hash":"{config.hash}"'
    zones = ",\n".join(zone.text for zone in config.zones)
    return f'{head},\n"pool":{config.pool.text},\n"zones":[\n{zones}]}}'


def parse_config(text: str) -> RuntimeConfig:
    """Read a snapshot; an error in any part rejects the whole snapshot.

    Raises:
        ConfigError: the text is not JSON, its version is unknown, a field is invalid, or the content does not match
            the hash, for example because the file was truncated or edited by hand.
    """
    return read_snapshot(read_json(text))


def read_json(text: str) -> dict[str, Any]:
    """Parse the JSON of a config of any schema version that this code knows.

    Raises:
        ConfigError: the text is not JSON, is not an object, or has a newer schema version.
    """
    if not text.strip():
        raise ConfigError("the config is empty; the last good config stays in force")
    raw = read_value(text, "the config")
    if not isinstance(raw, dict):
        raise ConfigError("expected a JSON object")
    version = raw.get("schemaVersion")
    if isinstance(version, int) and version > NEWEST_SCHEMA_VERSION:
        raise ConfigError(
            f"schemaVersion: {version} is newer than {NEWEST_SCHEMA_VERSION}, the newest version that this runtime "
            f"reads; upgrade the runtime"
        )
    return raw


def read_value(text: str, where: str) -> Any:
    """Parse any JSON value, and reject objects with more than 100 members.

    Args:
        text: the JSON.
        where: name of the text, used as the subject of error messages, such as "the config".

    Raises:
        ConfigError: the text is not JSON, or an object has too many members.
    """

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > _MAX_MEMBERS:
            raise ConfigError(
                f"{where} contains an object with {len(pairs):,} members, more than the maximum of {_MAX_MEMBERS}"
            )
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=members)
    except ConfigError:
        raise
    # json.loads raises these errors for malformed JSON, numbers with too many digits and too deep nesting.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid JSON: {error}") from None


def read_snapshot(raw: dict[str, Any]) -> RuntimeConfig:
    """Make a snapshot from a config's parsed JSON.

    Raises:
        ConfigError: a field is invalid, or the content does not match the hash.
    """
    zones = raw.get("zones", [])
    if not isinstance(zones, list):
        raise ConfigError("zones: expected a list")
    check_number_of_zones(len(zones))
    digest = ContentDigest(canonical(raw.get("pool")))
    read = []
    for number, zone in enumerate(zones):
        read.append(read_zone_entry(number, zone))
        digest.add(canonical(zone))
    return check_snapshot({**raw, "zones": tuple(read)}, digest)


def check_number_of_zones(number: int) -> None:
    """Check that a config does not have too many zones.

    Raises:
        ConfigError: there are more than ``MAX_ZONES`` zones.
    """
    if number > MAX_ZONES:
        raise ConfigError(f"zones: there are more than {MAX_ZONES:,} zones; use more pools")


def read_zone_entry(number: int, raw: object) -> ZoneConfig:
    """Make a zone's config from parsed JSON. ``number`` is the zone's index in the list, for error messages.

    Raises:
        ConfigError: a field is invalid.
    """
    try:
        return ZoneConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(explain(error, f"zones[{number}]")) from None


def check_snapshot(raw: dict[str, Any], digest: ContentDigest) -> RuntimeConfig:
    """Make a snapshot from parsed JSON whose zones are already converted, and check its hash.

    Args:
        raw: the parsed JSON, with ``ZoneConfig`` objects as its zones.
        digest: the digest of the content.

    Raises:
        ConfigError: a field is invalid, or the content does not match the hash.
    """
    try:
        config = RuntimeConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None
    if config.hash != (expected := digest.result()):
        raise ConfigError(
            f"hash: the content's hash is {expected}, but the file states {config.hash}; the file was cut off or edited"
        )
    return config


def explain(error: ValidationError, path: str = "") -> str:
    """Returns the first of pydantic's errors as ``zones[2].limit: MESSAGE``.

    Args:
        error: pydantic's error.
        path: the path of the validated value in the config.
    """
    errors = error.errors(include_url=False, include_input=False)
    first = errors[0]
    for part in first["loc"]:
        # Skip the type names that pydantic adds for branches of a union. Such a name contains "-" or "[".
        if isinstance(part, int):
            path += f"[{part}]"
        elif "-" not in part and "[" not in part:
            part = printable(part, _MAX_NAME_LENGTH)
            path += f".{part}" if path else part
    message = printable(first["msg"].removeprefix("Value error, "), _MAX_MESSAGE_LENGTH)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{path}: {message}{more}" if path else f"{message}{more}"
