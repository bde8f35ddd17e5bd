"""Warnings about what can be read in a trace, and was probably meant otherwise. Each is given once, with the line."""

import sys
from typing import Final, Literal

from tenantzone_contract.text import printable
from tenantzone_replay.readers.seen import Seen

_FIRST_UNIX_SECONDS: Final = 1e9
_FIRST_UNIX_MILLISECONDS: Final = 1e11
"""What is between the two is a time of this century in seconds, what is above is one in milliseconds."""
_LOOKED_AT: Final = 100
"""Requests. Traces do not have this number within a second, unless seconds are taken for milliseconds."""


class Doubts:
    """The warnings about one trace.

    Args:
        seen: the trace, which is read several times; None: it is read once.
        unit: of its times.
    """

    def __init__(self, seen: Seen | None, unit: Literal["seconds", "milliseconds"]) -> None:
        self._warned = set[str]() if seen is None else seen.warned
        self._unit = unit
        self._requests = 0

    def look_at_ids(self, place: str, ids: int, tokens: int, answer_tokens: int, part: int) -> None:
        """Warn if a prompt has another number of ids than parts; with no ids at all nothing is known of it.

        The last part, if the prompt does not fill it, may be without an id.

        Args:
            place: the file and the line's number.
            ids: how many there are.
            tokens: of the prompt.
            answer_tokens: of the answer, which ids may go on for.
            part: tokens for each id.
        """
        parts, most = -(-tokens // part), -(-(tokens + answer_tokens) // part)
        if ids and not tokens // part <= ids <= most:
            self._warn(
                "ids",
                f"{place}: hash_ids has {ids:,} ids for a prompt of {tokens:,} tokens, which has {parts:,} parts of "
                f"{part:,}; see whether the trace is of another format (format=) or has other parts",
            )

    def look_at_time(self, place: str, time: float, arrival: float) -> None:
        """Warn if times seem to have another unit.

        Args:
            place: the file and the line's number.
            time: as the line has it.
            arrival: in seconds since the trace's first request.
        """
        self._requests += 1
        if self._unit == "milliseconds" and self._requests == 1:
            if _FIRST_UNIX_SECONDS <= time < _FIRST_UNIX_MILLISECONDS:
                self._warn("unit", f"{place}: the time {time:.0f} seems to be Unix time in seconds; {self._expected()}")
        elif self._unit == "milliseconds" and self._requests == _LOOKED_AT and 0 < arrival < 1:
            self._warn(
                "unit",
                f"{place}: {_LOOKED_AT} requests came within {arrival:.3f} seconds, so times seem to be in seconds; "
                f"{self._expected()}",
            )
        elif self._unit == "seconds" and self._requests == 1 and time >= _FIRST_UNIX_MILLISECONDS:
            self._warn("unit", f"{place}: the time {time:.0f} seems to be in milliseconds; {self._expected()}")

    def _expected(self) -> str:
        return f"this format has {self._unit}: correct the times, or name another format (format=)"

    def _warn(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            print(f"warning: {printable(text)}", file=sys.stderr, flush=True)
