"""Reads Azure's LLM inference traces: CSV with TIMESTAMP, ContextTokens and GeneratedTokens.

The traces do not describe the content of prompts, so no two prompts share a prefix.

Source: Patel et al., *Splitwise*, ISCA'24; Stojkovic et al., *DynamoLLM*, HPCA'25; github.com/Azure/AzurePublicDataset.
"""

from collections.abc import Iterator
from pathlib import Path

from tenantzone_replay.traces.load import Asked, first_arrival_at_zero
from tenantzone_replay.traces.readers.doubts import Doubts
from tenantzone_replay.traces.readers.lines import count, csv_rows, seconds
from tenantzone_replay.traces.readers.seen import Seen


def looks_like(line: str) -> bool:
    """Returns whether a file with this first line has this format."""
    return "ContextTokens" in line and "GeneratedTokens" in line


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields the requests. Each request is a conversation of its own."""
    first: float | None = None
    doubts = Doubts(seen, "seconds")
    for index, (place, row) in enumerate(csv_rows(path, "TIMESTAMP", "ContextTokens", "GeneratedTokens", seen=seen)):
        time = seconds(place, row, "TIMESTAMP")
        arrival, first = first_arrival_at_zero(time, first)
        doubts.look_at_time(place, time, arrival)
        yield Asked(
            arrival=arrival,
            prompt_tokens=max(1, count(place, row, "ContextTokens")),
            output_tokens=max(1, count(place, row, "GeneratedTokens")),
            conversation=index,
        )
