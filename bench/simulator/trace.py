"""The Mooncake conversation trace as a load; see ``bench/traces/README.md`` for its source and the rule for tenants."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bench.simulator.request import BLOCK_TOKENS, Request
from tenantzone_replay.traces.load import Asked
from tenantzone_replay.traces.readers import READERS
from tenantzone_replay.traces.tenants import ByConversation, zipf_shares

TRACE = Path(__file__).parent.parent / "traces" / "mooncake_conversation.jsonl.gz"

_COPY_IDS = 1_000_000
"""Offset between the block ids of two copies of the trace; larger than any id in the trace."""


@cache
def _requests() -> list[Asked]:
    return list(READERS["mooncake"](TRACE))


def replay(count: int, tenants: list[str], speed: float) -> Iterator[Request]:
    """Yields the first ``count`` requests of the trace, which is repeated as often as necessary.

    Args:
        count: the number of requests.
        tenants: the tenants, with the largest first.
        speed: the factor by which requests arrive faster than they were recorded.
    """
    requests, by_conversation = _requests(), ByConversation(tenants, zipf_shares(len(tenants)))
    duration = requests[-1].arrival + 1
    for number in range(count):
        copy, line = divmod(number, len(requests))
        asked = requests[line]
        full_blocks = asked.content[: asked.prompt_tokens // BLOCK_TOKENS]
        yield Request(
            number=number,
            tenant=by_conversation.tenant_of(asked.conversation + copy * _COPY_IDS),
            arrival=(copy * duration + asked.arrival) / speed,
            prompt_tokens=asked.prompt_tokens,
            output_tokens=asked.output_tokens,
            prefix=tuple(block and block + copy * _COPY_IDS for block in full_blocks),
        )
