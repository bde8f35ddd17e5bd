"""The Mooncake conversation trace as a load; see ``bench/traces/README.md`` for its source and the rule for tenants."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bench.simulator.request import BLOCK_TOKENS, Request
from tenantzone_replay.load import Asked
from tenantzone_replay.readers import READERS
from tenantzone_replay.tenants import ByConversation, zipf_shares

TRACE = Path(__file__).parent.parent / "traces" / "mooncake_conversation.jsonl.gz"

_COPY_IDS = 1_000_000
"""More than the trace's block ids."""


@cache
def _requests() -> list[Asked]:
    return list(READERS["mooncake"](TRACE))


def replay(count: int, tenants: list[str], speed: float) -> Iterator[Request]:
    """The first ``count`` requests of as many copies of the trace as it takes, one after the other.

    Args:
        count: requests.
        tenants: the largest first.
        speed: how much faster than it was recorded.
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
