"""The two engines of the demo: vLLM with zones and stock vLLM, with the same model and the same blocks."""

import os
from dataclasses import dataclass
from pathlib import Path

from hack.demo.models.model import Model
from hack.demo.paths import PYTHON, RUNTIME, demo_environment
from hack.demo.samples import ADMIN_VOLUME, CONFIG_VOLUME, SALT_VOLUME

API_PORT = 8000

BLOCKS = 256
BLOCK_TOKENS = 32
"""Tokens in a block; 256 blocks make a pool of 8,192 tokens, which is small enough to fill in seconds."""

_SHARED_FLAGS = (
    "--num-gpu-blocks-override", str(BLOCKS),
    "--block-size", str(BLOCK_TOKENS),
    "--max-model-len", "4096",
    "--dtype", "float32",
    "--enforce-eager",
    # The demo measures the cache by the number of cached tokens in each answer.
    "--enable-prompt-tokens-details",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Engine:
    """The address of one engine."""

    name: str
    ip: str

    @property
    def base_url(self) -> str:
        return f"http://{self.ip}:{API_PORT}/v1"

    @property
    def health_url(self) -> str:
        return f"http://{self.ip}:{API_PORT}/health"


def reach_directly(engine: Engine) -> None:
    """Bypass the environment's proxies for requests to an engine from this process and its children."""
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), engine.ip)))


def cores_for(index: int, engines: int) -> str:
    """Returns separate cores for an engine, in vLLM's format, because by default all engines use the same cores."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // engines)
    first = index * share % len(cores)
    return ",".join(map(str, cores[first : first + share]))


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers below an engine's blocks."""

    folder: Path
    """The folder of the disk tier."""
    cpu: str = "256Mi"
    disk: str = "1Gi"

    @property
    def flags(self) -> list[str]:
        """Returns the engine's flags for the tiers."""
        sizes = {"--cpu-tier": f"{self.cpu}B", "--disk-tier": str(self.folder), "--disk-tier-size": f"{self.disk}B"}
        return [part for flag in sizes.items() for part in flag]


def zone_command(engine: Engine, model: Model, *, keys: Path, volumes: Path, admin_port: int) -> list[str]:
    """Returns the command line of an engine with zones, whose volumes are in a folder."""
    return [
        str(RUNTIME), "serve", str(model.folder), *_serving_flags(engine, model),
        "--zones-config", str(volumes / CONFIG_VOLUME),
        "--tenant-keys", str(keys),
        "--salt-key", str(volumes / SALT_VOLUME),
        "--admin-token", str(volumes / ADMIN_VOLUME),
        "--signed-config",
        "--admin-host", engine.ip,
        "--admin-port", str(admin_port),
    ]  # fmt: skip


def stock_command(engine: Engine, model: Model) -> list[str]:
    """Returns the command line of a stock vLLM engine with the same model and blocks."""
    return [
        PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model.folder),
        *_serving_flags(engine, model),
    ]  # fmt: skip


def _serving_flags(engine: Engine, model: Model) -> tuple[str, ...]:
    return ("--served-model-name", model.name, "--host", engine.ip, "--port", str(API_PORT), *_SHARED_FLAGS)


def engine_environment(cores: str, **variables: str) -> dict[str, str]:
    """Returns the environment of an engine that runs on these cores."""
    return demo_environment(
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND=cores,
        # This applies to processes other than the worker, whose number of threads follows from its cores.
        OMP_NUM_THREADS="1",
        VLLM_NO_USAGE_STATS="1",
        **variables,
    )
