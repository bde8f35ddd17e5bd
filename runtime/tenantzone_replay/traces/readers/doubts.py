"""Warns about values in a trace that are valid but implausible. Prints each kind of warning once per trace."""

import sys
from typing import Final, Literal

from tenantzone_contract.text import printable
from tenantzone_replay.traces.readers.seen import Seen

_FIRST_UNIX_SECONDS: Final = 1e9
_FIRST_UNIX_MILLISECONDS: Final = 1e11
"""From this value on, a time is probably in milliseconds. From ``_FIRST_UNIX_SECONDS`` to this value, in seconds."""
_LOOKED_AT: Final = 100
"""Number of requests after which the unit is checked. If all arrived within a second, the unit is probably wrong."""


class Doubts:
    """Prints warnings about one trace.

    Args:
        seen: contains the warnings that earlier reads of the trace have printed. None if the trace is read only once.
        unit: the unit of the times in the trace's format.
    """

    def __init__(self, seen: Seen | None, unit: Literal["seconds", "milliseconds"]) -> None:
        self._warned = set[str]() if seen is None else seen.warned
        self._unit = unit
        self._requests = 0

    def look_at_ids(self, place: str, ids: int, tokens: int, answer_tokens: int, part: int) -> None:
        """Warn if the number of ids does not match the length of the prompt.

        If the prompt does not fill its last part, the id of that part may be missing. A prompt without ids causes no
        warning, because the trace then does not describe the content.

        Args:
            place: the file and the number of the line.
            ids: the number of ids.
            tokens: the number of tokens of the prompt.
            answer_tokens: the number of tokens of the answer. The ids may also cover the answer.
            part: the number of tokens per id.
        """
        parts, most = -(-tokens // part), -(-(tokens + answer_tokens) // part)
        if ids and not tokens // part <= ids <= most:
            self._warn(
                "ids",
                f"{place}: hash_ids has {ids:,} ids for a prompt of {tokens:,} tokens, but {parts:,} ids are expected "
                f"at {part:,} tokens per id; check whether the trace has another format (format=)",
            )

    def look_at_time(self, place: str, time: float, arrival: float) -> None:
        """Warn if the times seem to be in another unit than the format uses.

        Args:
            place: the file and the number of the line.
            time: the time as written on the line.
            arrival: the time since the trace's first request, in seconds.
        """
        self._requests += 1
        if self._unit == "milliseconds" and self._requests == 1:
            if _FIRST_UNIX_SECONDS <= time < _FIRST_UNIX_MILLISECONDS:
                self._warn("unit", f"{place}: the time {time:.0f} seems to be Unix time in seconds; {self._expected()}")
        elif self._unit == "milliseconds" and self._requests == _LOOKED_AT and 0 < arrival < 1:
            self._warn(
                "unit",
                f"{place}: {_LOOKED_AT} requests arrived within {arrival:.3f} seconds, so times seem to be in seconds; "
                f"{self._expected()}",
            )
        elif self._unit == "seconds" and self._requests == 1 and time >= _FIRST_UNIX_MILLISECONDS:
            self._warn("unit", f"{place}: the time {time:.0f} seems to be in milliseconds; {self._expected()}")

    def _expected(self) -> str:
        return f"this format uses {self._unit}; correct the times, or set another format (format=)"

    def _warn(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            print(f"warning: {printable(text)}", file=sys.stderr, flush=True)
