"""Finds patterns (regular expressions) and grammars in the fields that define a request's answer format.

Compiling a pattern or grammar of a few hundred bytes can keep a CPU busy for hours, and can't be interrupted. Schemas
and lists of choices are different: their cost grows with their size, which other checks bound.

Callers must call :func:`check_grammars` first, which refuses JSON texts that nest too deep.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tenantzone_runtime.frontend.body.grammars import FIELDS
from tenantzone_runtime.frontend.body.values import Container, levels, read_text
from tenantzone_runtime.frontend.responses.answers import Refusal

_PATTERNS: Final = ("regex", "grammar", "structural_tag", "pattern", "whitespace_pattern")
"""Names of members whose value, if it is a string, is a pattern or grammar. In a schema, a property may have such a
name, but its value is then not a string."""
_TYPES: Final = ("regex", "grammar", "structural_tag")
"""Values of ``type`` in an answer format that is defined by a pattern or grammar."""
_OF_PATTERNS: Final = "patternProperties"
_AS_TEXT: Final = ("json", "guided_json", "schema", "json_schema")
"""Names of members whose schema may be sent as a JSON text instead of an object."""
_LONGEST_PLACE: Final = 200
"""Maximum number of characters of a field's path in an error message."""
_WITH_OTHERS: Final = "structural_tag"
"""Name of a member whose value may be a JSON text that contains schemas and patterns."""
_OF_SIZE: Final = frozenset({*_PATTERNS, *_AS_TEXT, _OF_PATTERNS})
_OF_PRESENCE: Final = _OF_SIZE | {"type"}


def check_pattern_sizes(body: Mapping[str, Any], limit: int) -> None:
    """Check that no field has patterns and grammars with too many characters in total.

    The time and memory for a pattern grow with the square of its size. For example, xgrammar needs gigabytes of memory
    for 64 KiB of ``a?``.

    Args:
        body: the parsed body.
        limit: maximum number of characters of all patterns and grammars of a field.

    Raises:
        Refusal: a field exceeds the limit. The message names the field.
    """
    for field in FIELDS:
        if _pattern_size({field.removeprefix("guided_"): body.get(field)}) > limit:
            raise Refusal(
                400,
                "complex_grammar",
                f"'{field}' has patterns or grammars of more than {limit} characters; send simpler ones",
                param=field,
            )


def _pattern_size(value: Container) -> int:
    """Returns the number of characters of all patterns and grammars in a parsed value and in its JSON texts."""
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
    """Returns whether a parsed value, or a schema that it contains as a JSON text, has a pattern or a grammar."""
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
    """Iterates over all members with one of the ``names``, in all objects of a parsed value, as (name, value)."""
    return (
        (name, member)
        for level in levels(value)
        for each in level
        if isinstance(each, dict)
        for name, member in each.items()
        if name in names
    )


def check_without_patterns(body: Mapping[str, Any]) -> None:
    """Check that no field that defines the answer's format contains a pattern or a grammar.

    Raises:
        Refusal: a field contains a pattern or a grammar. The message names its path.
    """
    for field in FIELDS:
        value = {field.removeprefix("guided_"): body.get(field)}
        if _has_pattern(value):
            path = _path_to_pattern(value)
            where = ".".join((field, *path[1:]))[:_LONGEST_PLACE]
            raise Refusal(
                400,
                "request_limits",
                f"'{where}' is a regular expression or a grammar, which this tenant's requests may not contain "
                "(requestLimits.structuredOutputs); send a schema without patterns, or a choice",
                param=where,
            )


def _path_to_pattern(value: Container) -> list[str]:
    """Returns the path to any pattern or grammar in a parsed value, as names and indices; empty if there is none."""
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
    """An object or a list within a value, linked to the object or list that contains it.

    Each step has only its own name. The full path is computed only for an error message, because a body may have
    thousands of values whose paths have thousands of characters.
    """

    name: str | int
    value: Container
    parent: "_Step | None"

    def path(self) -> list[str]:
        """Returns the names and indices on the way from the outermost value to this one."""
        names: list[str] = []
        step = self
        while step.parent is not None:
            names.append(str(step.name))
            step = step.parent
        return names[::-1]
