"""Declares the metrics of the engine as a whole: of its blocks, its config and its steps."""

from typing import Final, get_args

from tenantzone_runtime.metrics.family import (
    Family,
    of_engine,
    of_engine_by,
    of_steps,
)
from tenantzone_runtime.metrics.figures import ReloadResult

_ENGINE: Final = (
    Family(
        "tenantzone_engine_info",
        "info",
        ("vllm_version", "pod", "pool", "pool_namespace"),
        "The engine that this is, and the pool of the config in force. Always 1.",
        lambda engine: [((engine.engine_version, engine.pod, engine.pool, engine.pool_namespace), 1)],
    ),
    of_engine(
        "engine_capacity_blocks", "KV-cache blocks that requests can use.", lambda engine: engine.capacity_blocks
    ),
    of_engine("engine_free_blocks", "KV-cache blocks that no zone holds.", lambda engine: engine.free_blocks),
    of_engine(
        "engine_block_size_tokens",
        "Tokens that one KV-cache block holds, the fewest where that differs between groups of layers.",
        lambda engine: engine.block_size_tokens,
    ),
    of_engine(
        "engine_start_time_seconds", "Unix time at which the engine started.", lambda engine: engine.started_unix_time
    ),
    of_engine(
        "report_time_seconds",
        "Unix time at which these numbers were taken. Grows old when the engine hangs.",
        lambda engine: engine.taken_unix_time,
    ),
    of_engine_by(
        "reason",
        "engine_refused_requests_total",
        "Requests that the scheduler refused. unbound: without a valid seal of the frontend, so that they went past "
        "it; unknown_tenant: without a zone; too_long: they could never fit the zone's limit; unsupported: of a kind "
        "that does not go with zones; changed_adapter: for a LoRA adapter with other files than when it was loaded; "
        "queue_full: as much of their zone waited as may.",
        lambda engine: engine.refusals,
    ),
    Family(
        "tenantzone_engine_refused_admin_requests_total",
        "counter",
        (),
        "Requests to the admin port that showed no token in force.",
        lambda engine: [((), engine.refused_at_admin_port)],
    ),
)

_CONFIG: Final = (
    of_engine(
        "config_generation",
        "Generation of the config in force; 0 if none is.",
        lambda engine: engine.config.applied_generation or 0,
    ),
    of_engine(
        "config_last_reload_successful",
        "1 if the newest config file is in force, else 0.",
        lambda engine: engine.config.applied_generation is not None and engine.config.rejected is None,
    ),
    of_engine(
        "config_last_reload_success_timestamp_seconds",
        "Unix time at which the config in force was applied; 0 if none is.",
        lambda engine: engine.config.applied_unix_time or 0,
    ),
    of_engine(
        "config_rejected",
        "1 if the newest config file was refused, else 0; the one before it stays in force.",
        lambda engine: engine.config.rejected is not None,
    ),
    of_engine_by(
        "result",
        "config_reloads_total",
        "Config files that were read, by what became of them.",
        lambda engine: {result: engine.reloads.get(result, 0) for result in get_args(ReloadResult)},
    ),
)

_STEPS: Final = (
    of_steps(
        "predicted_steps_total",
        "Steps whose time was predicted, for zones with latency targets.",
        lambda engine: engine.steps.steps,
    ),
    of_steps("step_seconds_total", "Time that these steps took.", lambda engine: engine.steps.actual_seconds),
    of_steps(
        "predicted_step_seconds_total",
        "Time that these steps were predicted to take.",
        lambda engine: engine.steps.predicted_seconds,
    ),
    of_steps(
        "step_prediction_error_seconds_total",
        "What these predictions were wrong by, too short or too long.",
        lambda engine: engine.steps.error_seconds,
    ),
)

ENGINE: Final = (*_ENGINE, *_CONFIG, *_STEPS)
"""All metrics of the engine as a whole, in the order of a scrape."""
