"""Warnings about values in a trace that can be read but were probably meant otherwise. Each is given once."""

import sys
from typing import Final, Literal

from tenantzone_contract.text import printable
from tenantzone_replay.readers.seen import Seen

_FIRST_UNIX_SECONDS: Final = 1e9
_FIRST_UNIX_MILLISECONDS: Final = 1e11
"""Larger times are in milliseconds of this century; smaller ones above the other bound are in seconds."""
_LOOKED_AT: Final = 100
"""The number of requests that are examined: traces do not have as many within a second, unless units are mixed up."""


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
        """Warn if a prompt has another number of ids than parts; without any ids its content is unknown.

        The last part may lack an id if the prompt does not fill it.

        Args:
            place: the file and the line's number.
            ids: the number of ids.
            tokens: of the prompt.
            answer_tokens: of the answer, which the ids may continue into.
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
            time: the line's value.
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
