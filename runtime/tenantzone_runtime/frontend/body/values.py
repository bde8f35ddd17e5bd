"""Walks parsed JSON level by level, without recursion, and reads JSON texts inside it within limits.

Clients choose how deep their bodies nest. A recursive function fails at about a thousand levels. A recursive generator
passes each value through all levels above, so it takes half a second for a text of 60 kB. So every walk over client
data in this package is a loop.
"""

import json
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final, Literal

from tenantzone_runtime.frontend.responses.answers import Refusal

MAX_DEPTH: Final = 128
"""Maximum nesting of objects and lists in a request body, and in each JSON text in it."""

_CONTAINERS: Final = frozenset({dict, list})
_CHARACTERS_OF_CONTAINER: Final = 16
"""A `Reader` accepts as many objects and lists as its limit of characters divided by this number. Schemas and tools
have fewer."""

Container = dict[str, Any] | list[Any]


class TooDeep(Exception):
    """A JSON text nests deeper than `MAX_DEPTH` levels."""


class TooMuch(Exception):
    """Values and the JSON texts inside them exceed the limits of a `Reader`. The exception's text names the limit."""


def refuse_depth(reason: Literal["complex_body", "complex_grammar"], what: str, param: str | None = None) -> Refusal:
    """Returns the refusal of a value that nests too deep.

    Args:
        reason: the machine-readable reason, for the metric of refusals.
        what: a phrase that names the value and starts the message.
        param: name of the field that contains the value; None if it is unknown.
    """
    advice = "send flatter data; in a schema, move inner schemas to '$defs' and refer to them"
    return Refusal(400, reason, f"{what} nests deeper than {MAX_DEPTH} levels; {advice}", param=param)


def levels(value: object) -> Iterator[list[Container]]:
    """Iterates over the levels of a parsed value, outermost first. A level is a list of its objects and lists."""
    level: list[Any] = [value] if type(value) in _CONTAINERS else []
    while level:
        yield level
        level = [member for each in level for member in members(each) if type(member) in _CONTAINERS]


def members(container: Container) -> Collection[Any]:
    """Returns the values that an object or a list contains."""
    return container.values() if isinstance(container, dict) else container


def texts_in(value: object) -> Iterator[str]:
    """Iterates over all texts in the objects and lists of a parsed value, including the names of members."""
    for level in levels(value):
        for each in level:
            if isinstance(each, dict):
                yield from each
            yield from (member for member in members(each) if type(member) is str)


def nests_deeper(value: object, depth: int) -> bool:
    """Returns whether a parsed value has more than ``depth`` levels of objects and lists."""
    return next(islice(levels(value), depth, None), None) is not None


def read_text(text: str) -> Container | None:
    """Parse a text that is a JSON object or list; returns None for any other text.

    Raises:
        TooDeep: the text nests deeper than `MAX_DEPTH` levels.
    """
    if not _may_be_container(text):
        return None
    try:
        parsed: Container = json.loads(text)
    except ValueError:
        return None
    except RecursionError:
        raise TooDeep from None
    # Each level opens with a bracket. So a text with few brackets can't nest too deep, and needs no walk.
    if text.count("{") + text.count("[") > MAX_DEPTH and nests_deeper(parsed, MAX_DEPTH):
        raise TooDeep
    return parsed


class Reader:
    """Reads values of one request body and the JSON texts inside them, up to a total size.

    A JSON text can contain further JSON texts, which must be parsed again. The limit keeps the total work linear in the
    size of the body.

    Args:
        limit: maximum number of characters of all values, as JSON, plus those of all JSON texts inside them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._characters = 0
        self._containers = 0

    def texts_in(self, value: object, size: int) -> Iterator[str]:
        """Iterates over texts in a value and in its JSON texts: those with a bracket, and member names with a brace.

        Args:
            value: the parsed value.
            size: number of characters of the value as JSON.

        Raises:
            TooDeep: a JSON text nests too deep.
            TooMuch: this value and the values read before exceed the reader's limit.
        """
        self._count_characters(size)
        left: list[Container] = [[value]]
        while left:
            for level in levels(left.pop()):
                self._count_containers(len(level))
                for text in _texts_with_brackets(level):
                    yield text
                    if _may_be_container(text):
                        self._count_characters(len(text))
                        left.append(read_text(text) or [])
                yield from (name for each in level if isinstance(each, dict) for name in each if "{" in name)

    def _count_characters(self, more: int) -> None:
        self._characters += more
        if self._characters > self._limit:
            raise TooMuch(f"more than {self._limit} characters")

    def _count_containers(self, more: int) -> None:
        self._containers += more
        most = self._limit // _CHARACTERS_OF_CONTAINER
        if self._containers > most:
            raise TooMuch(f"more than {most} objects and lists")


def _texts_with_brackets(level: list[Container]) -> list[str]:
    return [
        member for each in level for member in members(each) if type(member) is str and ("{" in member or "[" in member)
    ]


def _may_be_container(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))
