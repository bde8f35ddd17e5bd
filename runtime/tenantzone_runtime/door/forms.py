"""Finds in what a request wants of its answer's form what can be dear at any length: patterns and grammars.

What a schema or a list of choices costs grows with its size, which is bounded. By a regular expression or a grammar of
a few hundred bytes a processor can be kept busy for hours, with nobody able to stop it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tenantzone_runtime.door.answers import Refusal
from tenantzone_runtime.door.grammars import FIELDS

_PATTERNS: Final = ("regex", "grammar", "structural_tag", "pattern", "whitespace_pattern")
"""Names whose text is one. A schema may have properties of these names, whose values are no texts."""
_TYPES: Final = ("regex", "grammar", "structural_tag")
"""Of formats that are one."""
_OF_PATTERNS: Final = "patternProperties"
_AS_TEXT: Final = ("json", "guided_json", "schema", "json_schema")
"""Names of schemas that may be sent as a text."""
_WITH_OTHERS: Final = "structural_tag"
"""A text in JSON that has schemas and patterns in it."""


def check_pattern_sizes(body: Mapping[str, Any], limit: int) -> None:
    """Check that the patterns and grammars of each field are not too large together.

    What a schema costs grows with its size. What a pattern costs grows with its square, in memory, too: 64 KiB of
    ``a?`` take xgrammar gigabytes.

    Args:
        body: parsed.
        limit: characters.

    Raises:
        Refusal: they are; named is the field.
    """
    for field in FIELDS:
        if _pattern_size({field.removeprefix("guided_"): body.get(field)}) > limit:
            raise Refusal(
                400,
                "complex_grammar",
                f"'{field}' has patterns or grammars of more than {limit} characters; ask for a simpler form",
                param=field,
            )


def _pattern_size(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_pattern_size, value))
    return sum(_size_of(name, member) for name, member in value.items()) if isinstance(value, dict) else 0


def _size_of(name: str, member: object) -> int:
    """The characters of patterns in a member of an object."""
    if not isinstance(member, str):
        own = sum(map(len, member)) if name == _OF_PATTERNS and isinstance(member, dict) else 0
        return own + _pattern_size(member)
    if name == _WITH_OTHERS or name in _AS_TEXT:
        return _pattern_size(_parsed(member))
    return len(member) if name in _PATTERNS else 0


def check_without_patterns(body: Mapping[str, Any]) -> None:
    """Check that no field that says what the answer is to look like has a pattern or a grammar in it.

    Raises:
        Refusal: one has; named is where.
    """
    for field in FIELDS:
        for place in _patterns_in({field.removeprefix("guided_"): body.get(field)}):
            where = ".".join((field, *place.split(".")[1:]))
            raise Refusal(
                400,
                "request_limits",
                f"'{where}' is a regular expression or a grammar, which this tenant's requests may not have "
                "(requestLimits.structuredOutputs); ask for a schema without patterns, or a choice",
                param=where,
            )


def _patterns_in(value: object, place: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for number, member in enumerate(value):
            yield from _patterns_in(member, f"{place}.{number}")
    if not isinstance(value, dict):
        return
    for name, member in value.items():
        there = f"{place}.{name}".removeprefix(".")
        if isinstance(member, str):
            if name in _PATTERNS or (name == "type" and member in _TYPES):
                yield there
            elif name in _AS_TEXT:
                yield from _patterns_in(_parsed(member), there)
        elif name == _OF_PATTERNS and member:
            yield there
        else:
            yield from _patterns_in(member, there)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
