"""Measures how long sampling compiles at first use, with an empty and with a filled cache of compiled code.

Each time a new process runs vLLM's sampler on the CPU for each kind of sampling, as a worker does when it starts. No
model is needed. It prints the seconds that sampling took, and the CPU time, including that of compilers:

    .venv/bin/python -m bench.frontend.first_use
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Final
from unittest.mock import patch

import torch
from vllm.v1.sample.sampler import Sampler

from bench.processes import importing_alike
from tenantzone_runtime.engine.patches.first_use import warm_up_sampling

VOCABULARY: Final = 32_000


def main() -> None:
    """Compile with an empty cache and again with the filled cache, each in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="compile once, in this process")
    if parser.parse_args().compile:
        began = time.monotonic(), _processor_seconds()
        _sample()
        print(f"{time.monotonic() - began[0]:7.1f}{_processor_seconds() - began[1]:11.1f}")
        return
    print(f"{os.cpu_count()} cores\ncache  seconds  processor", flush=True)
    command = [sys.executable, "-m", "bench.frontend.first_use", "--compile"]
    with tempfile.TemporaryDirectory(prefix="first-use-") as cache:
        environment = {**importing_alike(), "TORCHINDUCTOR_CACHE_DIR": cache}
        for state in ("empty", "filled"):
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            print(f"{state:<7}{run.stdout.splitlines()[-1]}", flush=True)


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _sample() -> None:
    runner = SimpleNamespace(
        sampler=Sampler(),
        model_config=SimpleNamespace(get_vocab_size=lambda: VOCABULARY),
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    last_stage = SimpleNamespace(is_last_rank=True)
    with patch("vllm.distributed.parallel_state.get_pp_group", lambda: last_stage):
        warm_up_sampling(SimpleNamespace(model_runner=runner))


if __name__ == "__main__":
    main()
