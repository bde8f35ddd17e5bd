"""vLLM's KV events as JSON Lines, one batch a line: the blocks that an engine stored, from which misses are derived.

A batch is as vLLM publishes it, ``[ts, [event, ...]]``, or an object with ``ts`` and ``events``; an event is an object
with ``type``. ``BlockStored`` is a chain of blocks behind a parent, so a batch's chain is a request that came at that
time, whose prompt ends there. Full cache hits leave no event, and answers look like prompts: the load is what
the engine had to compute, with one answer token per request. An engine with several groups of layers stores each prompt
in each group; one group is read.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tenantzone_replay.load import MAX_TOKENS, Asked, TraceError, content_id, first_arrival_at_zero
from tenantzone_replay.readers.lines import count, json_lines, members, number
from tenantzone_replay.readers.seen import Seen

_REMEMBERED_BLOCKS = 1_000_000
"""The number of latest blocks that chains are traced back through."""

_OF_WHOLE_PROMPTS = "full_attention", "mla_attention", "sink_full_attention"
"""The kinds of groups that keep whole prompts, in vLLM's names."""


def looks_like(line: str) -> bool:
    """Whether a file with this first line has this format."""
    return '"BlockStored"' in line or '"BlockRemoved"' in line or '"AllBlocksCleared"' in line


def read(path: Path, seen: Seen | None = None) -> Iterator[Asked]:
    """Yields one request for each stored chain; its tenant is the salt of its first block, if any."""
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
                # One token more than its full blocks: a prompt's last token is always computed.
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
    """The group whose events are read: the first that keeps whole prompts, and until one is seen, the first."""

    def __init__(self) -> None:
        self._index: tuple[Any, ...] = ()
        self._is_of_whole_prompts = False

    def look_at(self, stored: Iterable[Mapping[str, Any]]) -> None:
        """Switch to a better group if one is among these events."""
        for fields in stored:
            is_of_whole_prompts = fields.get("kv_cache_spec_kind") in _OF_WHOLE_PROMPTS
            if not self._index or (is_of_whole_prompts and not self._is_of_whole_prompts):
                self._index, self._is_of_whole_prompts = (fields.get("group_idx"),), is_of_whole_prompts

    def has(self, fields: Mapping[str, Any]) -> bool:
        """Whether an event belongs to this group."""
        return (fields.get("group_idx"),) == self._index


def _batch(place: str, line: Any) -> tuple[float, list[Any]]:
    if isinstance(line, list) and len(line) >= 2 and isinstance(line[1], list):
        return number(place, {"ts": line[0]}, "ts"), line[1]
    fields = members(place, line)
    events = fields.get("events")
    if not isinstance(events, list):
        raise TraceError(f"{place}: events is missing, or no list")
    return number(place, fields, "ts"), events


class _Chains:
    """Blocks by hash: the parent and the tenant of each."""

    def __init__(self) -> None:
        self._before: OrderedDict[int, tuple[int | None, str]] = OrderedDict()

    def add(self, place: str, fields: Mapping[str, Any], most: int) -> tuple[tuple[int, ...], str]:
        """Add a chain; returns the ids of all its blocks from the first on, and its tenant.

        Raises:
            TraceError: the event is not a chain, or has more than ``most`` blocks, as a cyclic one has.
        """
        hashes = fields.get("block_hashes")
        if not isinstance(hashes, list) or not hashes:
            raise TraceError(f"{place}: block_hashes is missing or empty")
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
    """Returns the last text that is hashed in addition to the first block's tokens: a LoRA's name precedes the salt."""
    every = fields.get("extra_keys")
    keys = every[0] if isinstance(every, list) and every else None
    texts = [
        key
        for key in (keys if isinstance(keys, list) else ())
        if isinstance(key, str) and key != fields.get("lora_name")
    ]
    return texts[-1] if texts else ""
