"""Two engines of one pool with tiers and a KV-cache manager, shared by several tests; the first has a disk."""

from collections import Counter
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hack.harness.cache_manager import CacheManagerProcess
from tenantzone_contract.zone_config.tiers import TierShare
from tests.engine.cache_group import SharedGroup
from tests.engine.real_engine import RealEngine, StartingEngine
from tests.zones.core import declare

BLOCK_TOKENS, BLOCK_BYTES = 32, 32 * 1024
BLOCKS, CHUNKS, FILES = 32, 44, 400
FILE_BYTES = BLOCK_BYTES + 4096
OBJECT_BYTES = BLOCK_BYTES + 32
"""Bytes of a chunk in a shared storage."""
KEPT = (TierShare(tier="cpu", reserved="25%"),)
TENANTS = ("acme", "burst", "calm", "flood", "steady", "greedy", "dusk")
ZONES = (declare("acme", tiers=KEPT, after=0.0), *(declare(tenant, after=0.0) for tenant in TENANTS[1:]))
"""Quiet as soon as no request is there: what they cache goes first."""
OF_THEIR_OWN = ("acme", "burst", "calm", "dusk")
"""Tenants with a group each; the flooding one uses a part of the pool's."""
TEAM = SharedGroup(OBJECT_BYTES, limit=200, floor=160, watermark="20%", zones=("steady", "greedy"))
"""The group of the other tenants; the first is promised enough that its retries are within its floor, too."""


def start_manager(folder: Path) -> CacheManagerProcess:
    """A manager with a group for each tenant, except those that share one and the one that uses the pool's.

    What is stored again because it was late fits into one tenant's group, however often that happens.
    """
    made = CacheManagerProcess(folder, {"engines": "test/pool"}, arguments=("--lease", "2"))
    made.start()
    pools = {"pools": ["test/pool"]}
    made.share(
        {"name": "test.pool", **pools, "total": {"limit": 60 * OBJECT_BYTES, "watermark": 0.9}},
        *({"name": f"test.pool.{tenant}", **pools} for tenant in OF_THEIR_OWN),
    )
    TEAM.send_to(made)
    return made


def start_pair(manager: CacheManagerProcess, token: Path) -> list[StartingEngine]:
    """Both engines, which send this token."""
    token.write_text("engines\n")

    def options(address: str, folder: Path) -> list[str]:
        return [
            "--num-gpu-blocks-override", str(BLOCKS + 1), "--max-model-len", str(BLOCKS * BLOCK_TOKENS),
            "--cpu-tier", str(CHUNKS * BLOCK_BYTES), "--manager-url", manager.url, "--manager-token-file", str(token),
        ]  # fmt: skip

    def with_disk(address: str, folder: Path) -> list[str]:
        disk = ["--disk-tier", str(folder / "disk"), "--disk-tier-size", str(FILES * FILE_BYTES)]
        return [*options(address, folder), *disk]

    first = StartingEngine(with_disk)
    return [first, StartingEngine(options, partner=first)]


def offered(engine: RealEngine, tenant: str, tier: str, bytes_each: int) -> Counter[str]:
    """The outcomes so far of a tenant's chunks on their way to a tier below CPU memory.

    Chunks that CPU memory had no room for never reach a tier below.

    Args:
        engine: the engine, which reports them with its next report.
        tenant: the tenant.
        tier: the tier below CPU memory.
        bytes_each: the bytes of a chunk there.
    """
    outcomes = Counter[str]()
    families = {each.name: each for each in text_string_to_metric_families(engine.metrics())}
    for name in ("stored_bytes", "refused_chunks", "lost_chunks"):
        for sample in families[f"tenantzone_zone_tier_{name}"].samples:
            if sample.name.endswith("_total") and sample.labels["tenant"] == tenant:
                where, reason = sample.labels["tier"], sample.labels.get("reason", "stored")
                if where == tier or (where, name) == ("cpu", "refused_chunks"):
                    outcomes[reason] += int(sample.value) // (bytes_each if reason == "stored" else 1)
    return outcomes
