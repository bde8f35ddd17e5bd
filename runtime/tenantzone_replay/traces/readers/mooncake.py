"""Reads Mooncake's traces: JSON Lines with ``timestamp`` (ms), lengths, and ``hash_ids``, with one id per 512 tokens.

Source: Qin et al., *Mooncake: Trading More Storage for Less Computation*, FAST'25; github.com/kvcache-ai/Mooncake,
``FAST25-release/traces``.
"""

from collections.abc import Iterator
from pathlib import Path

from tenantzone_replay.traces.load import Asked, first_arrival_at_zero
from tenantzone_replay.traces.readers.doubts import Doubts
from tenantzone_replay.traces.readers.lines import count, json_lines, members, name, number
from tenantzone_replay.traces.readers.prompts import known_prompt
from tenantzone_replay.traces.readers.seen import Seen

CONTENT_TOKENS = 512


def looks_like(line: str) -> bool:
    """Returns whether a file with this first line has this format."""
    return line.startswith("{") and '"hash_ids"' in line and '"input_length"' in line


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields the requests. The second block identifies the conversation, since nearly all prompts share the first."""
    first: float | None = None
    doubts = Doubts(seen, "milliseconds")
    for index, (place, line) in enumerate(json_lines(path, seen)):
        fields = members(place, line)
        prompt_tokens = count(place, fields, "input_length")
        answer_tokens = max(1, count(place, fields, "output_length"))
        ids = known_prompt(place, fields, prompt_tokens, answer_tokens, CONTENT_TOKENS, doubts)
        time = number(place, fields, "timestamp")
        arrival, first = first_arrival_at_zero(time / 1000, first)
        doubts.look_at_time(place, time, arrival)
        yield Asked(
            arrival=arrival,
            prompt_tokens=max(1, prompt_tokens),
            output_tokens=answer_tokens,
            content=ids,
            content_tokens=CONTENT_TOKENS,
            known_tokens=min(prompt_tokens, len(ids) * CONTENT_TOKENS),
            conversation=ids[:2][-1] if ids else index,
            tenant=name(fields, "user_id"),
        )
