"""Bounds a request's answer format: schemas, regular expressions, grammars, lists of choices.

Each is compiled before the first token, and its size alone does not bound that: a repetition in a schema's pattern
costs the square of its count, so that a kilobyte can take half a minute.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from tenantzone_runtime.frontend.body.values import Reader, TooDeep, TooMuch, refuse_depth
from tenantzone_runtime.frontend.responses.answers import Refusal

MAX_REPETITIONS_SQUARED = 10**6
"""Maximum sum of the squares of all repetition counts in a field, such as ``{3,1000}``."""
MAX_REPETITIONS_TOGETHER = 5 * 10**7
"""The most for that sum times the number of repetitions of one text: if the repeated part is optional, xgrammar keeps a
state for each pair of them, so that one mask for 8 KiB took 1.5 GiB."""

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
"""The fields of all routes that contain an answer format."""
_TOGETHER = 4
"""All fields, and the JSON texts in them and in these texts, may have this many times the characters of one field."""
_REPETITION = re.compile(r"\{\s*(?:(\d+)\s*)?(?:,\s*(?:(\d+)\s*)?)?\}")
"""Blanks match in exactly one way, because with several ways a text of a few kilobytes would take hours."""
_LONGEST_COUNT = 6
"""Maximum number of digits of a count; a longer count is too large in any case."""


def check_grammars(body: Mapping[str, Any], limit: int) -> None:
    """Check that a request's answer format is not too expensive.

    The other checks of its fields read some of the same JSON texts, and so stay within the bounds checked here.

    Args:
        body: parsed.
        limit: bytes of each field.

    Raises:
        Refusal: a field is too large, repeats too often, or contains JSON texts that are too deep or too large; the
            message names it.
    """
    reader = Reader(limit * _TOGETHER)
    for field in FIELDS:
        value = body.get(field)
        if not isinstance(value, dict | list | str):
            continue
        size = len(json.dumps(value))
        if size > limit:
            raise _refused(field, f"is larger than {limit} bytes")
        try:
            repetitions = [_repetitions(text) for text in reader.texts_in(value, size)]
        except TooDeep:
            raise refuse_depth("complex_grammar", f"A JSON text in '{field}'", field) from None
        except TooMuch as error:
            problem = f"and the other fields that describe the answer's form have, with the JSON texts in them, {error}"
            raise _refused(
                field, problem, "ask for a simpler form, and send schemas as objects, not as texts"
            ) from None
        if sum(squared for _, squared in repetitions) > MAX_REPETITIONS_SQUARED:
            raise _refused(
                field,
                f"repeats too often: the squares of its counts ({{1,1000}} and such) may add up to "
                f"{MAX_REPETITIONS_SQUARED}",
            )
        if max((number * squared for number, squared in repetitions), default=0) > MAX_REPETITIONS_TOGETHER:
            raise _refused(field, "has a pattern with too many repetitions in it ({1,30} and such)")


def _refused(field: str, problem: str, advice: str = "ask for a simpler form") -> Refusal:
    return Refusal(400, "complex_grammar", f"'{field}' {problem}; {advice}", param=field)


def _repetitions(text: str) -> tuple[int, int]:
    """Returns the number of repetitions in a text, and the sum of the squares of their counts."""
    squares = [_count(*match.groups()) ** 2 for match in _REPETITION.finditer(text)]
    return len(squares), sum(squares)


def _count(least: str | None, most: str | None) -> int:
    longest = max(least or "", most or "", key=len)
    return 10**_LONGEST_COUNT if len(longest) > _LONGEST_COUNT else max(int(least or 0), int(most or 0))
