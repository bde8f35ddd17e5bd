"""Limits the cost of a request's answer format: its schemas, regular expressions, grammars and lists of choices.

The engine compiles the format before the first token. A limit on the size is not enough, because the cost of a
repetition in a pattern grows with the square of its count. So a format of 1 kB can take half a minute.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from tenantzone_runtime.frontend.body.values import Reader, TooDeep, TooMuch, refuse_depth
from tenantzone_runtime.frontend.responses.answers import Refusal

MAX_REPETITIONS_SQUARED = 10**6
"""Maximum sum, for each field, of the squared counts of its repetitions. The count of ``{3,1000}`` is 1000."""
MAX_REPETITIONS_TOGETHER = 5 * 10**7
"""Maximum product, for each text, of its sum of squared counts and its number of repetitions. xgrammar keeps a state
for each pair of repetitions whose repeated part is optional. For a text of 8 KiB, a token mask took 1.5 GiB."""

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
"""The fields, on any route, that may define the format of the answer."""
_TOGETHER = 4
"""Limit for all fields and the JSON texts in them together, in multiples of the limit for one field."""
_REPETITION = re.compile(r"\{\s*(?:(\d+)\s*)?(?:,\s*(?:(\d+)\s*)?)?\}")
"""A repetition such as ``{3,1000}``. The expression can match each blank in only one way. Otherwise, a search in a text
of a few kilobytes could take hours."""
_LONGEST_COUNT = 6
"""Maximum number of digits of a count that is converted to a number. A longer count exceeds the limits in any case."""


def check_grammars(body: Mapping[str, Any], limit: int) -> None:
    """Check that a request's answer format is not too expensive to compile.

    Call this function before other checks of the same fields. They need no bounds of their own, because this function
    bounds the JSON texts that they read.

    Args:
        body: the parsed body.
        limit: maximum number of bytes of each field.

    Raises:
        Refusal: a field is too large, repeats too often, or contains JSON texts that nest too deep or are too large.
            The message names the field.
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
            problem = f"and the other fields that define the answer's format, with their JSON texts, contain {error}"
            raise _refused(field, problem, "send simpler ones, and send schemas as objects, not as texts") from None
        if sum(squared for _, squared in repetitions) > MAX_REPETITIONS_SQUARED:
            raise _refused(
                field,
                f"has too many repetitions; the squares of the counts in repetitions such as {{1,1000}} may add up "
                f"to at most {MAX_REPETITIONS_SQUARED}",
            )
        if max((number * squared for number, squared in repetitions), default=0) > MAX_REPETITIONS_TOGETHER:
            raise _refused(field, "has a pattern with too many repetitions such as {1,30}")


def _refused(field: str, problem: str, advice: str = "send a simpler one") -> Refusal:
    return Refusal(400, "complex_grammar", f"'{field}' {problem}; {advice}", param=field)


def _repetitions(text: str) -> tuple[int, int]:
    """Returns the number of repetitions in a text, and the sum of the squares of their counts."""
    squares = [_count(*match.groups()) ** 2 for match in _REPETITION.finditer(text)]
    return len(squares), sum(squares)


def _count(least: str | None, most: str | None) -> int:
    longest = max(least or "", most or "", key=len)
    return 10**_LONGEST_COUNT if len(longest) > _LONGEST_COUNT else max(int(least or 0), int(most or 0))
