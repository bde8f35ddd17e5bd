"""The Mooncake conversation trace as a load; see ``bench/traces/README.md`` for its source and the rule for tenants."""

import bisect
import gzip
import itertools
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bench.simulator.request import BLOCK_TOKENS, Request

TRACE = Path(__file__).parent.parent / "traces" / "mooncake_conversation.jsonl.gz"

_COPY_IDS = 1_000_000
"""More than the trace's block ids."""
_KNUTH = 2_654_435_761
"""2^32 over the golden ratio."""


def zipf_shares(count: int) -> list[float]:
    """Parts of the unit interval in proportion to 1, 1/2, 1/3 and so on: where each ends."""
    weights = [1 / (number + 1) for number in range(count)]
    total = sum(weights)
    return list(itertools.accumulate(weight / total for weight in weights))


@cache
def _lines() -> list[tuple[float, int, int, tuple[int, ...]]]:
    with gzip.open(TRACE, "rt") as lines:
        raw = [json.loads(line) for line in lines]
    return [
        (each["timestamp"] / 1000, each["input_length"], each["output_length"], tuple(each["hash_ids"])) for each in raw
    ]


def replay(count: int, tenants: list[str], speed: float) -> Iterator[Request]:
    """The first ``count`` requests of as many copies of the trace as it takes, one after the other.

    Args:
        count: requests.
        tenants: the largest first.
        speed: how much faster than it was recorded.
    """
    lines, ends = _lines(), zipf_shares(len(tenants))
    duration = lines[-1][0] + 1
    for number in range(count):
        copy, line = divmod(number, len(lines))
        timestamp, prompt_tokens, output_tokens, hash_ids = lines[line]
        key = hash_ids[1] + copy * _COPY_IDS
        position = key * _KNUTH % 2**32 / 2**32
        full_blocks = hash_ids[: prompt_tokens // BLOCK_TOKENS]
        yield Request(
            number=number,
            tenant=tenants[min(bisect.bisect_right(ends, position), len(tenants) - 1)],
            arrival=(copy * duration + timestamp) / speed,
            prompt_tokens=prompt_tokens,
            output_tokens=max(1, output_tokens),
            prefix=tuple(block and block + copy * _COPY_IDS for block in full_blocks),
        )
