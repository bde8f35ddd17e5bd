"""False reports that an engine may send, derived from an honest report. Pure.

Any pod whose labels match a pool's selector is an engine, whatever runs in it.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any

Report = dict[str, Any]
"""An honest one, as JSON."""

HOSTILE_TEXT = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\rfirst\nsecond\x9b31m\u202e"
"""Sets a terminal's title and its clipboard, clears it, goes back to the line's start, and begins another line."""

_NEVER_SECONDS = 3600.0
_PIECE = b" " * 2**16
_INTERIM = 1000 * b"HTTP/1.1 100 Continue\r\n\r\n"
_GZIP_BOMB = gzip.compress(bytes(2**24))


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer."""

    pieces: Iterable[bytes]
    status: int = 200
    length: int | None = None
    """The length of the body in the head."""
    headers: tuple[tuple[str, str], ...] = ()
    delay_seconds: float = 0.0
    """Before the first byte, ..."""
    pause_seconds: float = 0.0
    """... and before each piece of the body."""


@dataclass(frozen=True, slots=True)
class Lie:
    """A false report that an engine sends in place of its own, and the effect."""

    tell: Callable[[Report], Answer]
    programmed: str
    """Reason of the condition ``Programmed`` of the pool's zones meanwhile, if its other engines are honest."""


def truth(report: Report) -> Answer:
    """The report itself, as an honest engine sends it."""
    return _whole(json.dumps(report).encode())


def _whole(body: bytes, **parts: Any) -> Answer:
    return Answer([body], length=len(body), **parts)


def _lie(change: Callable[[Report], Report], programmed: str) -> Lie:
    """A report that is changed, and sent as any other."""
    return Lie(lambda report: truth(change(report)), programmed)


def _with(**fields: Any) -> Callable[[Report], Report]:
    return lambda report: report | fields


def _config_with(**fields: Any) -> Callable[[Report], Report]:
    return lambda report: report | {"config": report["config"] | fields}


def _zones_with(**fields: Any) -> Callable[[Report], Report]:
    return lambda report: report | {"zones": [zone | fields for zone in report["zones"]]}


def _zones_by(change: Callable[[Report], Report]) -> Callable[[Report], Report]:
    return lambda report: report | {"zones": [zone | change(zone) for zone in report["zones"]]}


def _twice(report: Report) -> Report:
    others = [zone | {"reserved": zone["reserved"] + 1} for zone in report["zones"]]
    return report | {"zones": [*report["zones"], *others]}


def _strangers(count: int, report: Report) -> Report:
    zone = {"generation": 1, "state": "Evicted", "reserved": 0, "limit": 1, "inUse": 0, "cached": 0}
    strangers = [zone | {"name": f"stranger-{number}", "tenant": f"stranger-{number}"} for number in range(count)]
    return report | {"zones": [*report["zones"], *strangers]}


def _endless_loan(report: Report) -> Report:
    loan = {"borrower": "unknown", "blocks": 1, "sinceUnixTime": float("-inf"), "dueUnixTime": float("inf")}
    return report | {"loans": [loan | {"lender": zone["tenant"]} for zone in report["zones"]]}


def _newer(report: Report) -> Report:
    """A thousand generations above the one in force, as if the operator had gone back."""
    known = (report["config"]["appliedGeneration"] or 0) + 1000
    rejected = {"error": "it is older", "untrusted": True, "newestGeneration": known, "unixTime": 0.0}
    return report | {"config": report["config"] | {"rejected": rejected}}


def _clock_that_jumps(report: Report) -> Report:
    """A thousand years ahead, or back, with each tenth of a second."""
    time = report["publishedUnixTime"]
    return report | {"publishedUnixTime": time + 3e10 * (-1) ** int(10 * time)}


def _drip(report: Report) -> Answer:
    whole = json.dumps(report).encode()
    return Answer((whole[index : index + 1] for index in range(len(whole))), length=len(whole), pause_seconds=0.1)


def _padded(report: Report) -> Answer:
    whole, count = json.dumps(report).encode(), 241
    return Answer(chain([whole], repeat(_PIECE, count)), length=len(whole) + count * len(_PIECE))


def _bytes(body: bytes) -> Callable[[Report], Answer]:
    return lambda _: _whole(body)


_UNHEARD, _DIFFERS, _MISSING = "EngineUnreachable", "ZoneDiffers", "ZoneMissing"
_REDIRECT = _whole(b"", status=302, headers=(("Location", "/report"),))

LIES: Mapping[str, Lie] = MappingProxyType(
    {
        # What is no report, and costs who reads it.
        "15.8 MB": Lie(_padded, _UNHEARD),
        "an endless body": Lie(lambda _: Answer(repeat(_PIECE)), _UNHEARD),
        "more than it says": Lie(lambda _: Answer(repeat(_PIECE), length=60_000), _UNHEARD),
        "a body whose length it does not say": Lie(lambda report: Answer(truth(report).pieces), _UNHEARD),
        "interim answers without end": Lie(lambda _: Answer(repeat(_INTERIM), status=100), _UNHEARD),
        "a head that is too long": Lie(lambda _: Answer([], headers=(("X", "x" * 100),) * 100), _UNHEARD),
        "a slow drip": Lie(_drip, _UNHEARD),
        "a gzip bomb": Lie(lambda _: _whole(_GZIP_BOMB, headers=(("Content-Encoding", "gzip"),)), _UNHEARD),
        "another server's page": Lie(_bytes(b"<html>"), _UNHEARD),
        "a report that is cut off": Lie(_bytes(b'{"version": 1, "zones": ['), _UNHEARD),
        "nested lists": Lie(_bytes(b"[" * 60_000), _UNHEARD),
        "nested objects": Lie(_bytes(b'{"a":' * 12_000), _UNHEARD),
        "an error of the server": Lie(lambda report: Answer(truth(report).pieces, status=500), _UNHEARD),
        "a redirect to itself": Lie(lambda _: _REDIRECT, _UNHEARD),
        "nothing": Lie(lambda _: Answer([], delay_seconds=_NEVER_SECONDS), _UNHEARD),
        # Numbers.
        "a size of 10^30": _lie(_with(capacityBlocks=10**30), _UNHEARD),
        "a negative size": _lie(_with(capacityBlocks=-1), _UNHEARD),
        "a size of 1": _lie(_with(capacityBlocks=1), "Acknowledged"),
        "a size of 2^31": _lie(_with(capacityBlocks=2**31 - 1), _DIFFERS),
        "10^25 evicted blocks": _lie(_zones_with(evictions={"own": 10**25}), _UNHEARD),
        "not a number": _lie(_with(publishedUnixTime=float("nan")), _UNHEARD),
        "infinity": _lie(_zones_with(cached=float("inf")), _UNHEARD),
        "a loan from eternity to eternity": _lie(_endless_loan, _UNHEARD),
        "a config generation of 2^63": _lie(_config_with(appliedGeneration=2**63), _UNHEARD),
        # Text.
        "an error with control characters": _lie(
            _config_with(rejected={"error": HOSTILE_TEXT, "unixTime": 0.0}), "ConfigRejected"
        ),
        "a pod name with control characters": _lie(_with(pod=HOSTILE_TEXT), _UNHEARD),
        "zone names with control characters": _lie(_zones_with(name=HOSTILE_TEXT, tenant=HOSTILE_TEXT), _MISSING),
        # A report like any other that is not true.
        "zones of an older generation": _lie(_zones_by(lambda zone: {"generation": zone["generation"] - 1}), _DIFFERS),
        "other amounts": _lie(_zones_by(lambda zone: {"reserved": zone["reserved"] + 1}), _DIFFERS),
        "missing zones": _lie(_with(zones=[]), _MISSING),
        "each zone twice": _lie(_twice, _DIFFERS),
        "undeclared zones": _lie(partial(_strangers, 200), "Acknowledged"),
        "thousands of undeclared zones": _lie(partial(_strangers, 9000), _UNHEARD),
        "another pod's name": _lie(_with(pod="another-pod"), _UNHEARD),
        "a config that was never given out": _lie(_config_with(appliedHash="sha256:0"), "Pending"),
        "a newer signed config": _lie(_newer, "ConfigUntrusted"),
        "the same report over and over": _lie(_with(publishedUnixTime=1e9), _UNHEARD),
        "a clock that jumps": _lie(_clock_that_jumps, "Acknowledged"),
    }
)
"""All false reports, by description."""
