"""Encodes and decodes the journal's records. Each record is a line with a JSON object and the previous record's hash.

This module only converts events to lines, and lines to records. It does no I/O.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NoReturn, get_args

from pydantic.alias_generators import to_camel

from tenantzone_runtime.zones.audit import events as audit

FIRST_PREVIOUS: Final = "0" * 64
"""The value of ``previous`` in record 0, which has no previous record."""

FORMAT: Final = 2
"""The format of the written records."""

_LONGEST_TEXT: Final = 1_000
_RENAMED: Final = {"hash": "configHash"}
_TIMES: Final = {"counting_since"}
_LARGEST_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One run of an engine process, with the values that its first journal record reports."""

    pod: str
    started_unix_time: float
    version: str
    """vLLM's version."""
    capacity_blocks: int
    block_size_tokens: int

    @property
    def name(self) -> str:
        """The name of this run, which is unique among all runs of all pods."""
        return f"{self.pod}@{format_time(self.started_unix_time)}"


@dataclass(frozen=True, slots=True)
class Started:
    """An event: an engine has started to write the journal.

    The last events of the previous run may be missing, because the engine may have crashed.
    """

    kind: ClassVar = "started"
    engine_version: str
    capacity_blocks: int
    block_size_tokens: int
    format: int = FORMAT
    """The format of the records of this run."""


@dataclass(frozen=True, slots=True)
class CutOff:
    """An event: a crash truncated the lines directly before this record. The lines stay in the file."""

    kind: ClassVar = "cut_off"
    bytes: int
    """Total length of the truncated lines in bytes, with their newlines."""
    digest: str
    """SHA-256 of the truncated lines, so that verification detects later changes to the lines."""


JournalEvent = audit.Event | Started | CutOff


@dataclass(frozen=True, slots=True)
class Link:
    """A record's sequence number and hash, which identify its position in the chain."""

    seq: int
    hash: str


BEFORE_FIRST: Final = Link(-1, FIRST_PREVIOUS)


def names_of(event: type) -> list[tuple[str, str]]:
    """Returns a pair for each field of an event class: the attribute's name, and the field's name in the record."""
    return [(field.name, _RENAMED.get(field.name, to_camel(field.name))) for field in dataclasses.fields(event)]


_NAMES: Final = {event: names_of(event) for event in get_args(JournalEvent)}


def encode(event: JournalEvent, after: Link, *, engine: str, at: float, offset: float) -> tuple[bytes, Link]:
    """Encode an event as the next record of the chain.

    Args:
        event: the event.
        after: the link of the previous record.
        engine: the name of the engine run.
        at: the event's time in seconds on the engine's monotonic clock.
        offset: Unix time minus the time of this clock, in seconds.

    Returns:
        The line with its newline, and the link of the new record.
    """
    record: dict[str, Any] = {
        "seq": after.seq + 1,
        "time": format_time(at + offset),
        "engine": _plain(engine),
        "kind": event.kind,
    }
    for name, written in _NAMES[type(event)]:
        value = getattr(event, name)
        record[written] = format_time(value + offset) if name in _TIMES else _plain(value)
    record["previous"] = after.hash
    link = Link(after.seq + 1, digest(record))
    record["hash"] = link.hash
    line = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    return line.encode(), link


def digest(record: dict[str, Any]) -> str:
    """Returns the SHA-256 of a record without its ``hash``.

    The record is hashed in canonical form (RFC 8785: sorted keys, no spaces, UTF-8). So the result does not depend on
    the formatting of the JSON.

    Raises:
        ValueError: the record has a value that JSON can't represent.
    """
    content = {name: _number(value) for name, value in record.items() if name != "hash"}
    canonical = json.dumps(content, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def parse(line: bytes) -> dict[str, Any]:
    """Parse a journal line into a record.

    Raises:
        ValueError: the line is not a JSON object, or has a repeated key or a constant such as NaN, which JSON parsers
            treat differently.
    """
    try:
        record = json.loads(line, object_pairs_hook=_without_doubles, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def link_of(record: dict[str, Any]) -> Link:
    """Check that a record's hash matches its content, and return the record's link.

    Raises:
        ValueError: the hash does not match the content, or ``seq`` or ``hash`` is missing.
    """
    seq, written = record.get("seq"), record.get("hash")
    if type(seq) is not int or not isinstance(written, str):
        raise ValueError("the record has no seq or no hash")
    try:
        fits = digest(record) == written
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not fits:
        raise ValueError("the record's content does not match its hash, so the record was changed")
    return Link(seq, written)


def format_time(unix_time: float) -> str:
    """Returns a Unix time as RFC 3339 in UTC, with milliseconds."""
    # Round to milliseconds first, because isoformat would truncate.
    moment = datetime.fromtimestamp(round(unix_time * 1000) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    """Returns a value as it is written: floats rounded to thousandths, texts truncated and converted to valid UTF-8."""
    if isinstance(value, float):
        return _number(round(value, 3))
    if isinstance(value, str):
        return value[:_LONGEST_TEXT].encode("utf-8", "replace").decode()
    return value


def _number(value: object) -> object:
    """Returns a whole float as an int, because RFC 8785 writes it without a fraction. Other values stay unchanged."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_EXACT:
        return int(value)
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a field occurs twice")
    return record


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")
