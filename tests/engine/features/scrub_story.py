"""Blocks move from one tenant to another on a real engine. Prints their memory before and after, as JSON.

A separate program, because the engine core shares its process.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

BLOCKS = 41
BLOCK_TOKENS = 64
SEAL_KEY = "5e" * 32


def main(folder: Path) -> None:
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "TENANTZONE_ADMIN_HOST": "127.0.0.1",
        "TENANTZONE_ADMIN_PORT": "0",
        "TENANTZONE_ADMIN_OPEN": "1",
        "TENANTZONE_CONFIG_DIR": str(folder / "config"),
        "TENANTZONE_SEAL_KEY": SEAL_KEY,
    }
    from vllm import LLM

    from hack.demo.models import tiny_model

    tiny_model.make(folder / "tiny")
    llm = LLM(
        str(folder / "tiny"),
        dtype="float32",
        enforce_eager=True,
        block_size=BLOCK_TOKENS,
        num_gpu_blocks_override=BLOCKS,
        max_model_len=1024,
        max_num_seqs=BLOCKS,
        scheduler_cls="tenantzone_runtime.engine.scheduler.ZoneScheduler",
        worker_extension_cls="tests.engine.features.block_reader.BlockReader",
        disable_log_stats=True,
    )
    print(json.dumps({scrub: transfer(llm, scrub) for scrub in ("OnTransfer", "Never")}), file=sys.stdout)


def transfer(llm, scrub: str) -> dict:
    """acme fills blocks and loses them; burst writes one token into each block of the engine."""
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    declare(scheduler, scrub=scrub)
    ask(llm, "acme", ["Once upon a time. " * 20])
    blocks = sorted(scheduler.block_pool.ledger.zones["acme"].cached)
    before = llm.collective_rpc("read_blocks", args=(blocks, BLOCKS))[0]
    declare(scheduler, scrub=scrub, limit=0)
    ask(llm, "burst", ["x"] * (BLOCKS - 1))
    after = llm.collective_rpc("read_blocks", args=(blocks, BLOCKS))[0]
    return {"before": before, "after": after}


def declare(scheduler, **acme) -> None:
    from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
    from tenantzone_contract.zone_config.config_text import make_config

    zones = (
        ZoneConfig(name="acme", tenant="acme", generation=1, **acme),
        ZoneConfig(name="burst", tenant="burst", generation=1),
    )
    scheduler.apply_config(make_config(1, PoolConfig(namespace="test", name="pool"), zones))


def ask(llm, tenant: str, prompts: list[str]) -> None:
    """Sends prompts as the frontend would."""
    from vllm import SamplingParams

    from tenantzone_contract.keys.salt import tenant_salt
    from tenantzone_runtime.seal import SEAL_ARGUMENT, seal

    key = bytes.fromhex(SEAL_KEY)
    salt = tenant_salt(key, tenant)
    params = [
        SamplingParams(max_tokens=1, ignore_eos=True, extra_args={SEAL_ARGUMENT: seal(key, tenant, salt)})
        for _ in prompts
    ]
    answers = llm.generate([{"prompt": prompt, "cache_salt": salt} for prompt in prompts], params, use_tqdm=False)
    assert all(answer.outputs[0].finish_reason == "length" for answer in answers)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tenantzone-scrub-") as folder:
        main(Path(folder))
