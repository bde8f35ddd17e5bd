"""Reads JSON Lines with the client as ``user_id`` or ``session_id``, a time, and lengths.

Accepted names of members:

- ``timestamp``, ``arrival``, ``time`` or ``ts`` in seconds or as a date and a time, or ``timestamp_ms`` in milliseconds
- ``prompt_tokens``, ``input_length`` or ``input_tokens``
- ``output_tokens``, ``completion_tokens`` or ``output_length``
- ``hash_ids`` with ``block_size`` (512 by default)
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tenantzone_replay.traces.load import Asked, content_id, first_arrival_at_zero
from tenantzone_replay.traces.readers.conversations import CONTENT_TOKENS, Conversations
from tenantzone_replay.traces.readers.doubts import Doubts
from tenantzone_replay.traces.readers.lines import count, json_lines, members, name, number, seconds
from tenantzone_replay.traces.readers.prompts import known_prompt
from tenantzone_replay.traces.readers.seen import Seen


def looks_like(line: str) -> bool:
    """Returns whether a file with this first line has this format."""
    return line.startswith("{") and ('"user_id"' in line or '"session_id"' in line)


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields the requests. The tenant is the user, and each request of a session continues its conversation."""
    conversations = Conversations()
    first: float | None = None
    doubts: Doubts | None = None
    for index, (place, line) in enumerate(json_lines(path, seen)):
        fields = members(place, line)
        time, per_second = _time(place, fields)
        doubts = doubts or Doubts(seen, "seconds" if per_second == 1 else "milliseconds")
        arrival, first = first_arrival_at_zero(time / per_second, first)
        doubts.look_at_time(place, time, arrival)
        prompt = max(1, count(place, fields, "prompt_tokens", "input_length", "input_tokens"))
        answer = max(1, count(place, fields, "output_tokens", "completion_tokens", "output_length", default=1))
        user, session = name(fields, "user_id"), name(fields, "session_id")
        content: tuple[int, ...] = ()
        content_tokens, known = CONTENT_TOKENS, prompt + answer
        if fields.get("hash_ids") is not None:
            content_tokens = max(1, count(place, fields, "block_size", default=512))
            content, known = known_prompt(place, fields, prompt, answer, content_tokens, doubts), prompt
        elif session:
            content = conversations.content(f"{user}/{session}", prompt, answer)
        yield Asked(
            arrival=arrival,
            prompt_tokens=prompt,
            output_tokens=answer,
            content=content,
            content_tokens=content_tokens,
            known_tokens=min(known, len(content) * content_tokens),
            conversation=content_id(session or user) if session or user else index,
            tenant=user,
        )


def _time(place: str, fields: Mapping[str, Any]) -> tuple[float, int]:
    """Returns the time of a line, and how many of its units make a second: 1000 for milliseconds, otherwise 1."""
    if fields.get("timestamp_ms") not in (None, ""):
        return number(place, fields, "timestamp_ms"), 1000
    return seconds(place, fields, "timestamp", "arrival", "time", "ts"), 1
