"""Has vLLM's engine core make a step when it sleeps, for want of requests, and something else is to be done."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any


def let_migrations_wake_engines() -> None:
    """Have each engine core whose scheduler moves zones' caches tell it how to be woken."""
    # Imported here: it imports the scheduler's module, which imports this one.
    from vllm.v1.engine.core import EngineCoreProc

    if not hasattr(EngineCoreProc._process_input_queue, "__wrapped__"):
        EngineCoreProc._process_input_queue = _after_telling(EngineCoreProc._process_input_queue)


def _after_telling(process: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.v1.engine import EngineCoreRequestType

    @wraps(process)
    def tell_and_process(core: Any) -> Any:
        migration = core.scheduler.tiers.migration
        if migration is not None:
            migration.wake = partial(core.input_queue.put_nowait, (EngineCoreRequestType.WAKEUP, None))
        # It is told once; the loop of the engine goes on with vLLM's own.
        core._process_input_queue = partial(process, core)
        return process(core)

    return tell_and_process
