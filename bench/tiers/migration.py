"""Measures the move of a zone from one engine to another: bytes, seconds, and hits in the other engine.

Two engines with zones serve SmolLM2 as converted by the demo, and share a KV-cache manager with a file storage. The
first engine gets some prompts before the manager runs, so that the storage does not have them. Then it writes the
zone's cache to the storage, the second engine warms up, and both get the same prompts again.

    python -m bench.tiers.migration
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bench.end_to_end.engines import BLOCK_TOKENS, Engine, EngineError, Engines
from bench.progress import say
from bench.tiers.first_token import BLOCK_BYTES, TENANT, first_token, prompts_of, smollm2_engine
from hack.harness.cache_manager import CacheManagerProcess
from tenantzone_contract.cache.migration import MIGRATION_PATH, MigrationOrder, MigrationReport, parse_migration
from tenantzone_contract.keys.salt import SALT_KEY_FILE, new_salt_key
from tenantzone_runtime.offloading_flags import ManagerFlags, TierFlags
from tenantzone_runtime.settings import SALT_DIR

TOKEN = "engines"


def main() -> None:
    """Move a zone, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tiers.migration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--prompts", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--tokens", type=int, default=1900, help="of a prompt, about; default: %(default)s")
    options = parser.parse_args()
    blocks = options.prompts * (options.tokens // BLOCK_TOKENS + 2)
    with tempfile.TemporaryDirectory(prefix="migration-") as name:
        folder = Path(name)
        manager = CacheManagerProcess(folder / "manager", {TOKEN: "bench/pool"})
        try:
            with Engines() as engines:
                manager.start()
                manager.share(
                    {"name": "bench.pool", "pools": ["bench/pool"], "total": {"limit": 4 * blocks * BLOCK_BYTES}}
                )
                for engine in ("first", "second"):
                    engines.add(_engine(engine, folder, manager.url, blocks, options.tokens))
                engines.await_ready()
                _move(engines, manager, prompts_of(options.prompts, options.tokens))
        except EngineError as error:
            sys.exit(f"bench.tiers.migration: {error}")
        finally:
            manager.kill()


def _engine(name: str, folder: Path, manager: str, blocks: int, tokens: int) -> Engine:
    own, salt, token = folder / name, folder / "salt", folder / "token"
    own.mkdir()
    if not salt.exists():
        salt.mkdir()
        (salt / SALT_KEY_FILE).write_text(new_salt_key().hex())
        token.write_text(TOKEN)
    tiers = TierFlags(2 * blocks * BLOCK_BYTES, manager=ManagerFlags(manager, token))
    return smollm2_engine(name, own, blocks, tokens, tiers, {SALT_DIR: str(salt)})


def _move(engines: Engines, manager: CacheManagerProcess, prompts: list[str]) -> None:
    first, second = engines
    say("asking the first engine, while there is no manager")
    manager.kill()
    first_token(first, "warm up " * 50)
    first_token(second, "warm up " * 50)
    computed = [first_token(first, prompt) for prompt in prompts]
    manager.start()
    while any(tier.problem for engine in engines for tier in engine.report().tiers):
        time.sleep(0.2)
    say("moving")
    down = _order(first, MigrationOrder(order="hand-down", tenant=TENANT))
    up = _order(second, MigrationOrder(order="warm-up", tenant=TENANT, prompts=down.prompts))
    print(f"{'':<22}{'chunks':>8}{'MB':>9}{'seconds':>9}{'MB/s':>8}{'where they should be':>22}")
    for what, reported in (("into the storage", down), ("into the second engine", up)):
        megabytes, whole = reported.moved_bytes / 1e6, reported.found / ((reported.found + reported.left) or 1)
        amounts = f"{reported.moved:>8}{megabytes:>9.1f}{reported.seconds:>9.2f}{megabytes / reported.seconds:>8.1f}"
        print(f"{what:<22}{amounts}{whole:>22.1%}")
    found = [first_token(second, prompt) for prompt in prompts]
    there = [first_token(first, prompt) for prompt in prompts]
    share = sum(cached for _, cached in found) / sum(cached for _, cached in there)
    print(f"the second engine found {share:.1%} of what the first one found")
    base = statistics.median(seconds for seconds, _ in computed)
    for what, samples in (("computed", computed), ("on the first engine", there), ("on the second", found)):
        median = statistics.median(seconds for seconds, _ in samples)
        print(f"first token, {what:<20}{median:>8.3f} s{base / median:>8.1f}x")


def _order(engine: Engine, order: MigrationOrder) -> MigrationReport:
    """Send an order to an engine, and wait for its result."""
    url = f"{engine.admin_url}{MIGRATION_PATH}"
    answer = httpx.post(url, content=order.model_dump_json(by_alias=True), timeout=60)
    while (reported := parse_migration(answer.raise_for_status().content)).is_running:
        time.sleep(0.05)
        answer = httpx.get(url, params={"tenant": TENANT, "prompts": "true"}, timeout=60)
    if reported.state != "Done":
        raise EngineError(f"{engine.name} did not do it: {reported.problem}")
    return parse_migration(httpx.get(url, params={"tenant": TENANT, "prompts": "true"}, timeout=60).content)


if __name__ == "__main__":
    main()
