"""Measures the cost of a CPU memory tier in a scheduling step, while it stores nothing or all new blocks.

TenantZone's and vLLM's real schedulers, connectors and tier managers run alternately, under the load of
`bench.scheduler.step_time` in which no request waits. Only the model and the copies are missing: each copy counts as
done in the step after the one that requested it. The tier has as many chunks as there are blocks, and is full. The
bench prints ratios of step times (`schedule()` and `update_from_output()`), computed step by step: an idle tier, whose
zones offload nothing, relative to no tier; and a tier that stores all blocks relative to stock vLLM's
`OffloadingConnector`.

    python -m bench.tiers.steps
"""

import argparse
import json
import statistics
import tempfile
from copy import copy
from pathlib import Path
from typing import Any

from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput

from bench.figures import paired_ratios
from bench.scheduler.step_time.arm import Arm
from bench.scheduler.step_time.loads import LOADS
from bench.scheduler.step_time.turns import take_turns
from hack.harness.scheduler import Driver, make_scheduler, vllm_config
from tenantzone_runtime.offloading_flags import TierFlags, kv_transfer_config

CHUNK_BYTES = 8192
"""Size of a block of the harness's model, in bytes."""
LOAD = LOADS["no-queue"]
WITHOUT, IDLE, STORING, STOCK = "zones", "zones, tier idle", "zones, tier storing", "stock, offloading"
RATIOS = {(IDLE, WITHOUT): 1.02, (STORING, STOCK): 1.05}
"""Pairs of arms to compare, with the maximum of each ratio."""


class Copies:
    """Reports copies to a scheduler as workers would if each copy was done in the step after its request."""

    def __init__(self) -> None:
        self._jobs: dict[int, str | None] = {}
        """Copies in flight, each with the id of the request that waits for it, or None."""

    def step(self, output: SchedulerOutput) -> KVConnectorOutput:
        """Returns the workers' report for one step."""
        asked: Any = output.kv_connector_metadata
        done = self._jobs
        self._jobs = {**dict.fromkeys(asked.store_jobs), **{job: each.req_id for job, each in asked.load_jobs.items()}}
        for job in asked.jobs_to_flush:
            if job in self._jobs:
                done[job] = self._jobs.pop(job)
        return KVConnectorOutput(
            finished_recving={request for request in done.values() if request is not None},
            kv_connector_worker_meta=OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(done, 1)) if done else None,
        )


def main() -> None:
    """Time the steps of all arms in turn, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tiers.steps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600, help="timed steps of each arm (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=200, help="steps before that (default: %(default)s)")
    parser.add_argument("--zones", type=int, default=1, help="default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tier-steps-") as folder:
        arms = _arms(Path(folder), options.zones)
        take_turns(list(arms.values()), options.warm_up, options.steps)
    _print(arms, options.zones)


def _arms(folder: Path, zones: int) -> dict[str, Arm]:
    config = vllm_config(folder, sequences=LOAD.seats, max_batched_tokens=LOAD.step_tokens)
    memory = LOAD.capacity * CHUNK_BYTES
    ours = json.loads(kv_transfer_config(TierFlags(memory)))
    # Offload answers, too, because the zones' connector also does.
    extra = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": memory, "offload_prompt_only": False}
    stock = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return {
        WITHOUT: Arm(Driver(make_scheduler(config, LOAD.capacity)), LOAD, zones),
        IDLE: Arm(_driver(config, ours), LOAD, zones, offload="Never"),
        STORING: Arm(_driver(config, ours), LOAD, zones),
        STOCK: Arm(_driver(config, stock, zones=False), LOAD, 0),
    }


def _driver(config: VllmConfig, connector: dict[str, Any], *, zones: bool = True) -> Driver:
    config = copy(config)
    config.kv_transfer_config = KVTransferConfig(**connector)
    driver = Driver(make_scheduler(config, LOAD.capacity, zones=zones))
    driver.copy = Copies().step
    return driver


def _print(arms: dict[str, Arm], zones: int) -> None:
    print(f"{zones:,} zone{'s' if zones != 1 else ''}")
    print(f"{'':<22}{'running':>8}{'ended':>7}{'step, median':>14}{'p99':>11}")
    for name, arm in arms.items():
        times, running = arm.record.times, statistics.median(arm.record.running)
        middle, p99 = statistics.median(times) * 1000, statistics.quantiles(times, n=100)[98] * 1000
        print(f"{name:<22}{running:>8.0f}{arm.record.ended:>7}{middle:>11.2f} ms{p99:>8.2f} ms")
    for (name, base), target in RATIOS.items():
        ratios = paired_ratios(arms[name].record.times, arms[base].record.times)
        low, middle, high = statistics.quantiles(ratios, n=4)
        decision = "met" if middle <= target else "missed"
        print(f"{name} / {base}: {middle:.3f} (middle half {low:.3f} to {high:.3f}); {target:.2f} {decision}")


if __name__ == "__main__":
    main()
