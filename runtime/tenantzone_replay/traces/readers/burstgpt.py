"""Reads BurstGPT's CSV files: ``Timestamp`` (s), ``Request tokens``, ``Response tokens``, maybe ``Session ID``.

Source: Wang et al., *BurstGPT: A Real-World Workload Dataset to Optimize LLM Serving Systems*, KDD'25;
github.com/HPMLL/BurstGPT.
"""

from collections.abc import Iterator
from pathlib import Path

from tenantzone_replay.traces.load import Asked, content_id, first_arrival_at_zero
from tenantzone_replay.traces.readers.conversations import CONTENT_TOKENS, Conversations
from tenantzone_replay.traces.readers.doubts import Doubts
from tenantzone_replay.traces.readers.lines import count, csv_rows, seconds
from tenantzone_replay.traces.readers.seen import Seen


def looks_like(line: str) -> bool:
    """Returns whether a file with this first line has this format."""
    return "Request tokens" in line and "Response tokens" in line


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields the requests. A request continues its session's conversation; without a session, it shares no prefix."""
    conversations = Conversations()
    first: float | None = None
    doubts = Doubts(seen, "seconds")
    for index, (place, row) in enumerate(csv_rows(path, "Timestamp", "Request tokens", "Response tokens", seen=seen)):
        time = seconds(place, row, "Timestamp")
        arrival, first = first_arrival_at_zero(time, first)
        doubts.look_at_time(place, time, arrival)
        prompt = max(1, count(place, row, "Request tokens"))
        answer = max(1, count(place, row, "Response tokens"))
        session = row.get("Session ID") or ""
        content = conversations.content(session, prompt, answer) if session else ()
        yield Asked(
            arrival=arrival,
            prompt_tokens=prompt,
            output_tokens=answer,
            content=content,
            content_tokens=CONTENT_TOKENS,
            known_tokens=len(content) * CONTENT_TOKENS,
            conversation=content_id(session) if session else index,
        )
