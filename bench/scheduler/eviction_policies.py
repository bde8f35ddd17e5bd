"""Measures the hit rate of each eviction policy, by the number of blocks.

Requests of the Mooncake trace go one after the other to a zone that has all blocks. As in the zone core, the leading
blocks of a prompt that are cached are hits, and the others are new. If no block is free, the policy selects the blocks
to evict. Only the longest prefix that fits into the cache is used. A partly filled last block is never shared.
"""

import argparse

from bench.simulator.request import BLOCK_TOKENS, Request
from bench.simulator.trace import replay
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tenantzone_runtime.zones.eviction_policies.order import EvictionOrder, Links

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
TRACE_REQUESTS = 12_031


class Cache:
    """The prefix cache of one zone.

    Args:
        policy: selects the blocks to evict.
        blocks: the number of blocks.
    """

    def __init__(self, policy: type[EvictionOrder], blocks: int) -> None:
        self._blocks = blocks
        self._order = policy(Links(blocks))
        self._free = list(range(blocks))
        self._index: dict[int, int] = {}
        """Block ids by content."""
        self._holds = [0] * blocks

    def serve(self, request: Request) -> int:
        """Look up a prompt and cache it; returns how many of its tokens were cached."""
        prefix = request.prefix[: self._blocks]
        found = self._find(prefix)
        self._order.hit(found)
        new = self._take(len(prefix) - len(found))
        for content, block_id in zip(prefix[len(found) :], new, strict=True):
            self._index[content] = block_id
            self._holds[block_id] = content
        # As in vLLM, the end of a prompt is released before its beginning.
        self._order.keep(reversed([*found, *new]))
        return len(found) * BLOCK_TOKENS

    def _find(self, prefix: tuple[int, ...]) -> list[int]:
        found: list[int] = []
        for content in prefix:
            if content not in self._index:
                break
            found.append(self._index[content])
        return found

    def _take(self, count: int) -> list[int]:
        evicted = self._order.evict(max(0, count - len(self._free)))
        for block_id in evicted:
            del self._index[self._holds[block_id]]
        self._free += evicted
        return [self._free.pop() for _ in range(count)]


def hit_rate(policy: type[EvictionOrder], blocks: int, requests: list[Request]) -> float:
    """Returns the fraction of all prompt tokens that was found in the cache."""
    cache = Cache(policy, blocks)
    hit = sum(cache.serve(request) for request in requests)
    return hit / sum(request.prompt_tokens for request in requests)


def main() -> None:
    """Print the hit rate of each policy, by number of blocks."""
    parser = argparse.ArgumentParser(prog="python -m bench.scheduler.eviction_policies", description=__doc__)
    parser.add_argument(
        "--blocks",
        type=int,
        nargs="+",
        default=SIZES,
        help="sizes of the cache, besides one for all (default: %(default)s)",
    )
    parser.add_argument("--requests", type=int, default=TRACE_REQUESTS, help="of the trace (default: %(default)s)")
    options = parser.parse_args()
    requests = list(replay(options.requests, ["the only one"], 1.0))
    print(f"hit rate of {len(requests):,} requests of the trace, blocks of {BLOCK_TOKENS} tokens")
    print(f"{'blocks':>10}" + "".join(f"{name:>10}" for name in EVICTION_POLICIES))
    for blocks in (*options.blocks, len({content for request in requests for content in request.prefix})):
        rates = [hit_rate(policy, blocks, requests) for policy in EVICTION_POLICIES.values()]
        print(f"{blocks:>10,}" + "".join(f"{rate:>10.2%}" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
