"""Bounds what a request wants its answer to look like: schemas, regular expressions, grammars, lists of choices.

Each is compiled before the first token, and its size alone does not bound that: a repetition in a schema's pattern
costs the square of its count, so that a kilobyte can take half a minute.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tenantzone_runtime.door.answers import Refusal

MAX_REPETITIONS_SQUARED = 10**6
"""Of all repetitions in a field, ``{3,1000}`` and such, the sum of their squares."""

FIELDS = (
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "tools",
    "text",
    "output_format",
    "output_config",
)
"""Of all routes: what has such a thing in it."""
_REPETITION = re.compile(r"\{\s*(?:(\d+)\s*)?(?:,\s*(?:(\d+)\s*)?)?\}")
"""Blanks can be divided in one way only: where there are several, a text of a few kilobytes takes hours."""
_LONGEST_COUNT = 6
"""Digits; a longer one is too large, whatever it says."""


def check_grammars(body: Mapping[str, Any], limit: int) -> None:
    """Check that what a request wants of its answer's form is no dearer than it may be.

    Args:
        body: parsed.
        limit: bytes of each field.

    Raises:
        Refusal: a field that is too large, or repeats too often, named.
    """
    for field in FIELDS:
        value = body.get(field)
        if not isinstance(value, dict | list | str):
            continue
        if len(json.dumps(value)) > limit:
            raise _refused(field, f"is larger than {limit} bytes")
        if sum(map(_repetitions_squared, _texts(value))) > MAX_REPETITIONS_SQUARED:
            raise _refused(
                field,
                f"repeats too often: the squares of its counts ({{1,1000}} and such) may add up to "
                f"{MAX_REPETITIONS_SQUARED}",
            )


def _refused(field: str, problem: str) -> Refusal:
    return Refusal(400, "complex_grammar", f"'{field}' {problem}; ask for a simpler form", param=field)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield from _texts(_parsed(value))
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


def _parsed(text: str) -> object:
    """What a text holds that is JSON itself, as a schema may be sent; None if it is not."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _repetitions_squared(text: str) -> int:
    return sum(_count(*match.groups()) ** 2 for match in _REPETITION.finditer(text))


def _count(least: str | None, most: str | None) -> int:
    longest = max(least or "", most or "", key=len)
    return 10**_LONGEST_COUNT if len(longest) > _LONGEST_COUNT else max(int(least or 0), int(most or 0))
