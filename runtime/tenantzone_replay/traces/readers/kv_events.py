"""Reads vLLM's KV events as JSON Lines, with one batch per line, and derives requests from the stored blocks.

A batch is written as vLLM publishes it, ``[ts, [event, ...]]``, or as an object with ``ts`` and ``events``. An event is
an object with ``type``. A ``BlockStored`` event lists a chain of blocks that follow a parent block. The reader assumes
that each such event is a request that arrived at the time of the batch, and that its prompt ends with the chain.

Full cache hits cause no event, and blocks of answers look like blocks of prompts. So the load contains only the tokens
that the engine computed, and each request has one answer token. An engine with several KV cache groups stores each
prompt in each group, so only the events of one group are read.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tenantzone_replay.traces.load import MAX_TOKENS, Asked, TraceError, content_id, first_arrival_at_zero
from tenantzone_replay.traces.readers.lines import count, json_lines, members, number
from tenantzone_replay.traces.readers.seen import Seen

_REMEMBERED_BLOCKS = 1_000_000
"""Maximum number of blocks whose parents are kept in memory. The oldest blocks are dropped first."""

_OF_WHOLE_PROMPTS = "full_attention", "mla_attention", "sink_full_attention"
"""vLLM's names for the kinds of KV cache groups that keep whole prompts."""


def looks_like(line: str) -> bool:
    """Returns whether a file with this first line has this format."""
    return '"BlockStored"' in line or '"BlockRemoved"' in line or '"AllBlocksCleared"' in line


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields one request for each stored chain. The tenant is the cache salt of the chain's first block, if any."""
    chains = _Chains()
    first: float | None = None
    group = _Group()
    for place, line in json_lines(path, seen):
        ts, events = _batch(place, line)
        arrival, first = first_arrival_at_zero(ts, first)
        stored = [fields for event in events if _is_stored(fields := members(place, event))]
        group.look_at(stored)
        for fields in stored:
            if not group.has(fields):
                continue
            size = max(1, count(place, fields, "block_size"))
            content, tenant = chains.add(place, fields, MAX_TOKENS // size)
            yield Asked(
                arrival=arrival,
                # Add one token to the full blocks, because an engine always computes the last token of a prompt.
                prompt_tokens=len(content) * size + 1,
                output_tokens=1,
                content=content,
                content_tokens=size,
                known_tokens=len(content) * size,
                conversation=content[0],
                tenant=tenant,
            )


def _is_stored(fields: Mapping[str, Any]) -> bool:
    return fields.get("type") == "BlockStored" and fields.get("medium") in (None, "GPU")


class _Group:
    """Selects the KV cache group whose events are read.

    At first, selects the first group in the trace. When a group that keeps whole prompts appears, selects that group.
    """

    def __init__(self) -> None:
        self._index: tuple[Any, ...] = ()
        self._is_of_whole_prompts = False

    def look_at(self, stored: Iterable[Mapping[str, Any]]) -> None:
        """Update the selection with the next batch of ``BlockStored`` events."""
        for fields in stored:
            is_of_whole_prompts = fields.get("kv_cache_spec_kind") in _OF_WHOLE_PROMPTS
            if not self._index or (is_of_whole_prompts and not self._is_of_whole_prompts):
                self._index, self._is_of_whole_prompts = (fields.get("group_idx"),), is_of_whole_prompts

    def has(self, fields: Mapping[str, Any]) -> bool:
        """Returns whether an event belongs to the selected group."""
        return (fields.get("group_idx"),) == self._index


def _batch(place: str, line: Any) -> tuple[float, list[Any]]:
    if isinstance(line, list) and len(line) >= 2 and isinstance(line[1], list):
        return number(place, {"ts": line[0]}, "ts"), line[1]
    fields = members(place, line)
    events = fields.get("events")
    if not isinstance(events, list):
        raise TraceError(f"{place}: events is missing or not a list")
    return number(place, fields, "ts"), events


class _Chains:
    """The parent and the tenant of each block, by the block's hash."""

    def __init__(self) -> None:
        self._before: OrderedDict[int, tuple[int | None, str]] = OrderedDict()

    def add(self, place: str, fields: Mapping[str, Any], most: int) -> tuple[tuple[int, ...], str]:
        """Add the chain of an event. Returns the ids of all blocks from the beginning of the prompt, and the tenant.

        Raises:
            TraceError: the event has no block hashes, or the prompt has more than ``most`` blocks, for example because
                the chain is cyclic.
        """
        hashes = fields.get("block_hashes")
        if not isinstance(hashes, list) or not hashes:
            raise TraceError(f"{place}: block_hashes must be a list with at least one hash")
        parent = fields.get("parent_block_hash")
        before = None if parent is None else _id(parent)
        tenant = _salt(fields) if before is None or before not in self._before else self._before[before][1]
        begin = self._back_from(before, most)
        if len(begin) + len(hashes) > most:
            raise TraceError(f"{place}: the chain that ends in this block has more than {most:,} blocks")
        ids = [_id(each) for each in hashes]
        for block in ids:
            self._before[block] = before, tenant
            self._before.move_to_end(block)
            before = block
        while len(self._before) > _REMEMBERED_BLOCKS:
            self._before.popitem(last=False)
        return (*begin, *ids), tenant

    def _back_from(self, block: int | None, most: int) -> list[int]:
        chain: list[int] = []
        while block is not None and len(chain) <= most:
            chain.append(block)
            block = self._before[block][0] if block in self._before else None
        return chain[::-1]


def _id(block_hash: Any) -> int:
    return content_id(json.dumps(block_hash))


def _salt(fields: Mapping[str, Any]) -> str:
    """Returns the cache salt of the first block, or an empty string.

    The salt is the last extra key that is a string. An earlier string may be the name of a LoRA adapter.
    """
    every = fields.get("extra_keys")
    keys = every[0] if isinstance(every, list) and every else None
    texts = [
        key
        for key in (keys if isinstance(keys, list) else ())
        if isinstance(key, str) and key != fields.get("lora_name")
    ]
    return texts[-1] if texts else ""
