"""``python -m bench.kvcache_manager.policies``: measures the hit rate of each eviction policy of a group.

Requests of the Mooncake trace go, at the trace's times, to a manager with a SQLite index: the bench queries the longest
prefix, and writes the missing blocks of the prompt. The reclaimer runs every second. The blocks' contents are not
written, because the bench reads none.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Final, get_args

from bench.simulator.request import BLOCK_TOKENS, Request
from bench.simulator.trace import replay
from hack.progress import say
from tenantzone_manager.core.settings import EvictionPolicy, Instance, InstanceGroup, Quota, Spec, Storage
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager

NAME: Final = "policies"
SIZES: Final = (2_000, 8_000, 32_000)
TRACE_REQUESTS: Final = 12_031
WATERMARK: Final = 0.9
_INSTANCE: Final = Instance("chat", "team", BLOCK_TOKENS, (Spec("chunk", 1),))
_BEGAN: Final = 1_000_000_000.0
"""Unix time of the trace's start."""


def main() -> None:
    """Print the hit rate of each policy, by the group's limit in blocks."""
    parser = argparse.ArgumentParser(prog="python -m bench.kvcache_manager.policies", description=__doc__)
    parser.add_argument(
        "--blocks", type=int, nargs="+", default=SIZES, help="limits of the group (default: %(default)s)"
    )
    parser.add_argument("--requests", type=int, default=TRACE_REQUESTS, help="of the trace (default: %(default)s)")
    options = parser.parse_args()
    requests = list(replay(options.requests, ["the only one"], 1.0))
    policies: tuple[EvictionPolicy, ...] = get_args(EvictionPolicy)
    print(f"hit rate of {len(requests):,} requests of the trace, blocks of {BLOCK_TOKENS} tokens")
    print(f"{'blocks':>10}" + "".join(f"{policy:>10}" for policy in policies), flush=True)
    for blocks in options.blocks:
        rates = [asyncio.run(_hit_rate(policy, blocks, requests)) for policy in policies]
        print(f"{blocks:>10,}" + "".join(f"{rate:>10.2%}" for rate in rates), flush=True)


async def _hit_rate(policy: EvictionPolicy, blocks: int, requests: list[Request]) -> float:
    """Returns the fraction of all prompt tokens that was found."""
    now = _BEGAN
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "disk"
        root.mkdir()
        manager = CacheManager(SqliteBackend(Path(folder) / "index.db"), clock=lambda: now, monotonic=lambda: now)
        await manager.start(in_background=False)
        try:
            await manager.catalog.put_storage(Storage("disk", "FileSystem", {"root": str(root)}))
            await manager.storages.keep(manager.catalog.storages.values())
            group = InstanceGroup("team", ("disk",), total=Quota(blocks, WATERMARK), eviction_policy=policy)
            await manager.catalog.put_group(group)
            await manager.catalog.register_instance(_INSTANCE)
            found = 0
            for number, request in enumerate(requests):
                while now < _BEGAN + request.arrival:
                    now = min(now + 1.0, _BEGAN + request.arrival)
                    await manager.touches.flush()
                    await manager.reclaim()
                found += await _serve(manager, [b"%d" % block for block in request.prefix])
                if number % 1000 == 0:
                    say(NAME, f"{policy}, {blocks:,} blocks: {number:,} of {len(requests):,} requests")
        finally:
            await manager.stop()
    return found * BLOCK_TOKENS / sum(request.prompt_tokens for request in requests)


async def _serve(manager: CacheManager, keys: list[bytes]) -> int:
    """Query a prompt's blocks and write the missing ones; returns how many were found."""
    match = await manager.reader.get_cache_location(_INSTANCE, keys, "prefix")
    if len(match.blocks) < len(keys):
        started = await manager.writer.start_write_cache(_INSTANCE, keys)
        if started.write_id:
            written = [keys[index] for index in started.locations]
            await manager.writer.finish_write_cache(_INSTANCE, started.write_id, written, [])
    return len(match.blocks)


if __name__ == "__main__":
    main()
