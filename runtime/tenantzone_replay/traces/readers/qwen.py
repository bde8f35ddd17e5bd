"""Reads Bailian's Qwen traces: JSON Lines with ``chat_id``, ``parent_chat_id``, ``timestamp`` (s), and ``hash_ids``.

Source: Wang et al., *KVCache Cache in the Wild: Characterizing and Optimizing KVCache Cache at a Large Cloud Provider*,
USENIX ATC'25; github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from tenantzone_replay.traces.load import Asked, TraceError, first_arrival_at_zero
from tenantzone_replay.traces.readers.doubts import Doubts
from tenantzone_replay.traces.readers.lines import count, json_lines, members, name, number, whole
from tenantzone_replay.traces.readers.prompts import known_prompt
from tenantzone_replay.traces.readers.seen import Seen

CONTENT_TOKENS = 16
_REMEMBERED_CHATS = 200_000
"""Maximum number of chats in memory. A turn whose parent is no longer in memory begins a new conversation."""


def looks_like(line: str) -> bool:
    """Returns whether a file with this first line has this format."""
    return line.startswith("{") and '"parent_chat_id"' in line


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields the requests. A conversation consists of a chat without a known parent and all turns that follow it."""
    conversation_of: OrderedDict[int, int] = OrderedDict()
    first: float | None = None
    doubts = Doubts(seen, "seconds")
    for place, line in json_lines(path, seen):
        fields = members(place, line)
        chat = whole(place, fields, "chat_id")
        parent = fields.get("parent_chat_id")
        # Accept null and floats such as 7.0, because pandas writes them for a column with missing values.
        if not (parent is None or isinstance(parent, int) or (isinstance(parent, float) and parent.is_integer())):
            raise TraceError(f"{place}: parent_chat_id is {str(parent)[:50]!r}; expected a whole number, -1 for none")
        conversation = conversation_of[chat] = chat if parent is None else conversation_of.get(int(parent), chat)
        if len(conversation_of) > _REMEMBERED_CHATS:
            conversation_of.popitem(last=False)
        prompt_tokens = count(place, fields, "input_length")
        answer_tokens = max(1, count(place, fields, "output_length"))
        ids = known_prompt(place, fields, prompt_tokens, answer_tokens, CONTENT_TOKENS, doubts)
        time = number(place, fields, "timestamp")
        arrival, first = first_arrival_at_zero(time, first)
        doubts.look_at_time(place, time, arrival)
        yield Asked(
            arrival=arrival,
            prompt_tokens=max(1, prompt_tokens),
            output_tokens=answer_tokens,
            content=ids,
            content_tokens=CONTENT_TOKENS,
            known_tokens=min(prompt_tokens, len(ids) * CONTENT_TOKENS),
            conversation=conversation,
            tenant=name(fields, "user_id"),
        )
