"""Text from elsewhere, made fit to be shown: nothing in it moves a cursor, begins a line or turns the text around."""

import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

# C0 with DEL, C1, line and paragraph separators, what changes the direction of text, and halves of surrogate pairs.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SPACES = re.compile(r"[\t\n\r]+")


def printable(text: str, max_length: int | None = None) -> str:
    """A text as one line without control characters; those that are not mere white space show as ``REPLACEMENT``.

    Args:
        text: whoever it is from.
        max_length: what is longer is cut off.
    """
    if max_length is not None:
        text = text[:max_length]
    return _UNFIT.sub(REPLACEMENT, _SPACES.sub(" ", text))
