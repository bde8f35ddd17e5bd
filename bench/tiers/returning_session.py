"""Measures the time to first token of a session that continues, with its cache in blocks, in CPU memory, or on disk.

An engine with zones and both tiers serves SmolLM2 as converted by the demo. Each prompt is sent first with nothing
cached. It is sent again while its blocks are cached; then after their eviction, so that it is loaded from CPU memory;
and then after its eviction from CPU memory, too, so that it is loaded from the disk, without the page cache.

    python -m bench.tiers.returning_session
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.end_to_end.engines import BLOCK_TOKENS, EngineError, Engines
from bench.tiers.disk import forget_cached
from bench.tiers.first_token import BLOCK_BYTES, TENANT, first_token, prompts_of, smollm2_engine
from tenantzone_contract.reports.zone_report import ZoneTierReport
from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.offloading_flags import DiskFlags, TierFlags


class _Session:
    """An engine, with control over the tiers that have its tenant's cache."""

    def __init__(self, folder: Path, prompts: int, tokens: int) -> None:
        blocks = prompts * (tokens // BLOCK_TOKENS + 2)
        tiers = TierFlags(2 * blocks * BLOCK_BYTES, DiskFlags(folder / "disk", 2 * blocks * (BLOCK_BYTES + 8192)))
        self._folder = folder
        self._generations = itertools.count(2)
        self.engine = smollm2_engine("zones", folder, blocks, tokens, tiers)

    def ask(self, prompt: str) -> tuple[float, int]:
        """Send a prompt; returns the seconds to its first token, and how many of its tokens were cached."""
        return first_token(self.engine, prompt)

    def await_stored(self, chunks: int) -> None:
        """Wait until both tiers have ``chunks`` chunks."""
        while any(self._tier(name).held_bytes < chunks * BLOCK_BYTES for name in ("cpu", "disk")):
            time.sleep(0.1)

    def forget(self, *tiers: str) -> None:
        """Evict the tenant's cache from blocks and from these tiers."""
        self._declare(_zone(limit=1, tiers=tuple(TierShare(tier=name, limit=0) for name in tiers)))
        while any(self._tier(name).held_bytes for name in tiers):
            time.sleep(0.05)
        self._declare(_zone())
        if "cpu" in tiers:
            forget_cached([path for path in (self._folder / "disk").rglob("*-*") if path.is_file()])

    def _tier(self, name: str) -> ZoneTierReport:
        (zone,) = self.engine.report().zones
        return next(each for each in zone.tiers if each.tier == name)

    def _declare(self, zone: ZoneConfig) -> None:
        config = make_config(next(self._generations), PoolConfig(namespace="bench", name="pool"), (zone,))
        unfinished = self._folder / "unfinished"
        unfinished.write_text(dump_config(config))
        unfinished.rename(self._folder / "config" / CONFIG_KEY)
        while self.engine.report().config.applied_hash != config.hash:
            time.sleep(0.05)
        # Wait until the frontend has polled the files.
        time.sleep(0.5)


def _zone(**terms: Any) -> ZoneConfig:
    return ZoneConfig(name=TENANT, tenant=TENANT, generation=1, **terms)


def main() -> None:
    """Send all prompts in each state of the cache, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tiers.returning_session",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--prompts", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--tokens", type=int, default=1900, help="of a prompt, about; default: %(default)s")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="returning-") as folder, Engines() as engines:
            session = _Session(Path(folder), options.prompts, options.tokens)
            engines.add(session.engine)
            engines.await_ready()
            _measure(session, options.prompts, options.tokens)
    except EngineError as error:
        sys.exit(f"bench.tiers.returning_session: {error}")


def _measure(session: _Session, count: int, tokens: int) -> None:
    prompts = prompts_of(count, tokens)
    session.ask("warm up " * 50)
    computed = [session.ask(prompt) for prompt in prompts]
    session.await_stored(count * (tokens * 9 // 10 // BLOCK_TOKENS))
    places = {
        "computed": computed,
        "in blocks": [session.ask(prompt) for prompt in prompts],
    }
    for place, tiers in (("in CPU memory", ()), ("on the disk", ("cpu",))):
        session.forget(*tiers)
        places[place] = [session.ask(prompt) for prompt in prompts]
    base = statistics.median(first for first, _ in computed)
    print(f"{'':<16}{'cached tokens':>14}{'first token, s: median':>24}{'least':>8}{'most':>8}{'faster':>9}")
    for place, samples in places.items():
        seconds = sorted(first for first, _ in samples)
        found = statistics.median(cached for _, cached in samples)
        median = statistics.median(seconds)
        times = f"{median:>24.3f}{seconds[0]:>8.3f}{seconds[-1]:>8.3f}{base / median:>8.1f}x"
        print(f"{place:<16}{found:>14.0f}{times}", flush=True)


if __name__ == "__main__":
    main()
