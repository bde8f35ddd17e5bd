"""Finds patterns and grammars in a request's answer format, which can be expensive at any length.

The cost of a schema or a list of choices grows with its size, which is bounded. A regular expression or a grammar of a
few hundred bytes can keep a CPU busy for hours, and can't be interrupted.

Texts that nest too deep are refused by :func:`check_grammars`, which comes first.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tenantzone_runtime.frontend.body.grammars import FIELDS
from tenantzone_runtime.frontend.body.values import Container, levels, read_text
from tenantzone_runtime.frontend.responses.answers import Refusal

_PATTERNS: Final = ("regex", "grammar", "structural_tag", "pattern", "whitespace_pattern")
"""Names of members that are a pattern or grammar if they are strings. A schema may also have such properties."""
_TYPES: Final = ("regex", "grammar", "structural_tag")
"""Format types that are a pattern or grammar."""
_OF_PATTERNS: Final = "patternProperties"
_AS_TEXT: Final = ("json", "guided_json", "schema", "json_schema")
"""Names of schemas that may be sent as a text."""
_LONGEST_PLACE: Final = 200
"""Maximum number of characters of a path in an error message."""
_WITH_OTHERS: Final = "structural_tag"
"""A JSON text that contains schemas and patterns."""
_OF_SIZE: Final = frozenset({*_PATTERNS, *_AS_TEXT, _OF_PATTERNS})
_OF_PRESENCE: Final = _OF_SIZE | {"type"}


def check_pattern_sizes(body: Mapping[str, Any], limit: int) -> None:
    """Check that the patterns and grammars of each field together are not too large.

    The cost of a schema grows with its size; that of a pattern grows with its square, in memory, too: 64 KiB of
    ``a?`` take xgrammar gigabytes.

    Args:
        body: parsed.
        limit: characters.

    Raises:
        Refusal: the patterns and grammars of a field are too large; the message names the field.
    """
    for field in FIELDS:
        if _pattern_size({field.removeprefix("guided_"): body.get(field)}) > limit:
            raise Refusal(
                400,
                "complex_grammar",
                f"'{field}' has patterns or grammars of more than {limit} characters; ask for a simpler form",
                param=field,
            )


def _pattern_size(value: Container) -> int:
    """Returns the characters of all patterns and grammars in a parsed value and in its schemas that are texts."""
    size = 0
    left = [value]
    while left:
        for name, member in _members_named(_OF_SIZE, left.pop()):
            if isinstance(member, str):
                if name == _WITH_OTHERS or name in _AS_TEXT:
                    left.append(read_text(member) or [])
                elif name in _PATTERNS:
                    size += len(member)
            elif name == _OF_PATTERNS and isinstance(member, dict):
                size += sum(map(len, member))
    return size


def _has_pattern(value: Container) -> bool:
    """Whether a parsed value, or a schema in it that is a text, contains a pattern or a grammar."""
    left = [value]
    while left:
        for name, member in _members_named(_OF_PRESENCE, left.pop()):
            if _is_pattern(name, member):
                return True
            if name in _AS_TEXT and isinstance(member, str):
                left.append(read_text(member) or [])
    return False


def _is_pattern(name: str | int, member: object) -> bool:
    if isinstance(member, str):
        return name in _PATTERNS or (name == "type" and member in _TYPES)
    return name == _OF_PATTERNS and bool(member)


def _members_named(names: frozenset[str], value: Container) -> Iterator[tuple[str, Any]]:
    """Yields the members with these names of all objects in a parsed value."""
    return (
        (name, member)
        for level in levels(value)
        for each in level
        if isinstance(each, dict)
        for name, member in each.items()
        if name in names
    )


def check_without_patterns(body: Mapping[str, Any]) -> None:
    """Check that no field for the answer's format contains a pattern or a grammar.

    Raises:
        Refusal: a field contains one; the message names the place.
    """
    for field in FIELDS:
        value = {field.removeprefix("guided_"): body.get(field)}
        if _has_pattern(value):
            path = _path_to_pattern(value)
            where = ".".join((field, *path[1:]))[:_LONGEST_PLACE]
            raise Refusal(
                400,
                "request_limits",
                f"'{where}' is a regular expression or a grammar, which this tenant's requests may not have "
                "(requestLimits.structuredOutputs); ask for a schema without patterns, or a choice",
                param=where,
            )


def _path_to_pattern(value: Container) -> list[str]:
    """Returns the names and indices that lead to one of the patterns and grammars in a parsed value; empty if none."""
    left = [_Step("", value, None)]
    while left:
        step = left.pop()
        inner = step.value
        for name, member in inner.items() if isinstance(inner, dict) else enumerate(inner):
            if _is_pattern(name, member):
                return [*step.path(), str(name)]
            if isinstance(member, str) and name in _AS_TEXT:
                member = read_text(member)
            if isinstance(member, dict | list):
                left.append(_Step(name, member, step))
    return []


class _Step(NamedTuple):
    """An object or a list within a value, and the way to it.

    The path is built only for error messages: thousands of values may share one of thousands of characters.
    """

    name: str | int
    value: Container
    parent: "_Step | None"

    def path(self) -> list[str]:
        """The names and indices that lead here, without the outermost value's."""
        names: list[str] = []
        step = self
        while step.parent is not None:
            names.append(str(step.name))
            step = step.parent
        return names[::-1]
