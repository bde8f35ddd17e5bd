"""Measures the prefill tokens saved in multi-turn sessions of eight tenants, whose cache is four times the pool.

Each engine serves the same sessions twice: alone, and together with a tenant that floods the engine. All engines have
the same model, pool and cores. Engines with tiers have the same CPU memory, and the one with zones also has a disk
tier. Stock vLLM's offloading has no worker for CPUs, so it uses the zones' worker with vLLM's own manager.

    python -m bench.tiers.sessions
"""

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.end_to_end import model
from bench.end_to_end.engines import BLOCK_TOKENS, Engine, EngineError, Engines
from bench.tiers.sessions.asking import Saved, Shape, run_sessions
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.offloading_flags import DiskFlags, TierFlags, kv_transfer_config

POOL_BLOCKS = 128
BLOCK_BYTES = 4 * 2 * BLOCK_TOKENS * 256 * 4
"""Size of a block, in bytes: four layers, with keys and values of 256 four-byte numbers for each token."""
CPU_POOLS = 2
DISK_POOLS = 8
"""Size of the disk tier, as a multiple of the pool's size."""
PROTECTED = 0
"""Number of the tenant that reserves a share of the tiers."""


def main() -> None:
    """Start the engines, run the sessions on each, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tiers.sessions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=10, help="of each session (default: %(default)s)")
    shape = Shape(turns=parser.parse_args().turns)
    try:
        with tempfile.TemporaryDirectory(prefix="sessions-") as folder, ExitStack() as stack:
            _run(Path(folder), stack, shape)
    except EngineError as error:
        sys.exit(f"bench.tiers.sessions: {error}")


def _run(folder: Path, stack: ExitStack, shape: Shape) -> None:
    print("making the model", file=sys.stderr, flush=True)
    model.make(folder / "model")
    engines = stack.enter_context(Engines())
    for name, zones, flags in _arms(folder, shape):
        own = folder / name.replace(" ", "-")
        own.mkdir()
        cores = sorted(os.sched_getaffinity(0))
        common = ["--num-gpu-blocks-override", str(POOL_BLOCKS + 1), "--enable-prompt-tokens-details"]
        engines.add(
            Engine(
                name,
                zones,
                model=folder / "model",
                folder=own,
                cores=cores,
                tenants=shape.tenants + 1,
                flags=[*common, *flags],
            )
        )
    engines.await_ready()
    print(f"{'prompt tokens saved':<28}{'all':>10}{'protected':>12}{'flooded':>10}{'lost':>10}{'seconds':>10}")
    for engine in engines:
        began = time.monotonic()
        alone, flooded = (run_sessions(engine, shape, seed, flooded=seed == 2) for seed in (1, 2))
        print(_row(engine.name, alone, flooded, time.monotonic() - began), flush=True)


def _row(name: str, alone: Saved, flooded: Saved, seconds: float) -> str:
    before, after = alone.share(PROTECTED), flooded.share(PROTECTED)
    return f"{name:<28}{alone.share():>10.1%}{before:>12.1%}{after:>10.1%}{before - after:>10.1%}{seconds:>10.0f}"


def _arms(folder: Path, shape: Shape) -> list[tuple[str, list[ZoneConfig] | None, list[str]]]:
    pool = POOL_BLOCKS * BLOCK_BYTES
    stock_tiers = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "CpuWorkerSpec",
            "spec_module_path": "bench.tiers.sessions.stock_offloading",
            "cpu_bytes_to_use": CPU_POOLS * pool,
            "offload_prompt_only": False,
        },
    }
    tiers = kv_transfer_config(TierFlags(CPU_POOLS * pool, DiskFlags(folder / "disk", DISK_POOLS * pool)))
    return [
        ("stock", None, []),
        ("stock, CPU memory", None, ["--kv-transfer-config", json.dumps(stock_tiers)]),
        ("zones, CPU memory and disk", _zones(shape), ["--kv-transfer-config", tiers]),
    ]


def _zones(shape: Shape) -> list[ZoneConfig]:
    """Returns the zones of all tenants, including the flooding one; one tenant reserves a share of each tier."""
    shares = (TierShare(tier="cpu", reserved="20%"), TierShare(tier="disk", reserved="20%"))
    # Use the tenant names of bench.end_to_end, which makes the keys.
    names = [f"tenant-{number}" for number in range(shape.tenants + 1)]
    return [
        ZoneConfig(name=name, tenant=name, generation=1, tiers=shares if number == PROTECTED else ())
        for number, name in enumerate(names)
    ]


if __name__ == "__main__":
    main()
