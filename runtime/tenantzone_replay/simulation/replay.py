"""Replays one load under one policy until the last answer, with vLLM's real scheduler in virtual time."""

import tempfile
import time
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tenantzone_replay.simulation.clock import VirtualClock
from tenantzone_replay.simulation.measures import Result, TenantMeasures
from tenantzone_replay.simulation.observer import Observer
from tenantzone_replay.simulation.policies import Policy
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.simulation.tenants_at_work import TenantsAtWork
from tenantzone_replay.simulation.virtual_engine import VirtualEngine
from tenantzone_replay.traces.load import MAX_BLOCKS, Asked, TraceError
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape
from tenantzone_runtime.engine.modelless.schedulers import ModellessScheduler

MOMENTS: Final = 120
"""Approximate maximum number of recorded samples of the engine's state during a load."""
_STUCK_SECONDS: Final = 3600.0
"""The replay ends if no request could run for this many virtual seconds and no more requests will arrive."""


def replay(setting: Setting, policy: Policy) -> Result:
    """Replay the entire load under one policy, and return the result.

    Args:
        setting: the load and the engine.
        policy: the policy that serves the load.

    Raises:
        TraceError: the load can't be read or has changed, or a policy without eviction would need too many blocks.
    """
    began = time.perf_counter()
    shape = _shape(setting, policy)
    measures = {tenant: TenantMeasures() for tenant in setting.profile.demand}
    result = Result(policy.name, policy.what, shape.blocks, shape.block_tokens, measures)
    clock = VirtualClock()
    with tempfile.TemporaryDirectory() as folder, clock.in_force():
        scheduler = ModellessScheduler(
            shape,
            Path(folder),
            policy.config(),
            policy.priorities,
            policy.order,
            policy.tier_blocks,
            clock.monotonic,
        )
        tenants = TenantsAtWork(
            _of_known(setting.load(), measures),
            scheduler,
            policy,
            measures,
            setting.target,
            clock.seconds,
            setting.in_flight,
            setting.hardware.outside_seconds,
            setting.on_answered,
        )
        observer = Observer(scheduler, policy, tenants, result, clock.seconds, setting.profile.seconds / MOMENTS)
        engine = VirtualEngine(
            scheduler,
            clock,
            setting.hardware,
            tenants,
            steps_in_flight=setting.steps_in_flight,
            look=observer.look,
            loaded_tokens=scheduler.take_loaded_tokens,
        )
        engine.run(lambda: engine.standing_seconds >= _STUCK_SECONDS and tenants.next_arrival() is None)
        tenants.give_up()
        observer.finish(clock.seconds)
        result.seconds, result.busy_seconds, result.steps = clock.seconds - 1.0, engine.busy_seconds, engine.steps
        result.at_a_time = engine.at_a_time
    result.took_seconds = time.perf_counter() - began
    return result


def _of_known(load: Iterator[Asked], tenants: Container[str]) -> Iterator[Asked]:
    for number, asked in enumerate(load, 1):
        if asked.tenant not in tenants:
            raise TraceError(
                f"request {number} now has tenant {asked.tenant!r}, which had no requests when the load was first "
                "read; if another process still writes the trace, replay a copy"
            )
        yield asked


def _shape(setting: Setting, policy: Policy) -> EngineShape:
    if not policy.infinite:
        return setting.shape
    blocks = setting.profile.blocks(setting.shape.block_tokens)
    if blocks > MAX_BLOCKS:
        raise TraceError(
            f"without eviction the load needs up to {blocks:,} blocks, more than {MAX_BLOCKS:,}; leave out the policy "
            f"{policy.name!r}, or choose larger blocks (--block-tokens)"
        )
    return replace(setting.shape, blocks=max(blocks, setting.shape.blocks))
