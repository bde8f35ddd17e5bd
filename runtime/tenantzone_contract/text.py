"""Makes untrusted text safe to print, by replacing characters that move the cursor, begin a line or reverse text."""

import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

# C0 with DEL, C1, line and paragraph separators, characters that change the direction of text, and surrogates.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SPACES = re.compile(r"[\t\n\r]+")


def printable(text: str, max_length: int | None = None) -> str:
    """Returns a text as one line. Tabs and line breaks become spaces. Other control characters become ``REPLACEMENT``.

    Args:
        text: a text from any source.
        max_length: maximum number of characters, after which the text is truncated. If None, nothing is truncated.
    """
    if max_length is not None:
        text = text[:max_length]
    return _UNFIT.sub(REPLACEMENT, _SPACES.sub(" ", text))
