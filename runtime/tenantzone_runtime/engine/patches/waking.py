"""Wakes vLLM's engine core for work without requests.

An engine core that is shutting down or paused is not woken, because it waits until no work is left.

Upstream change that would make this module unnecessary: a method of ``EngineCoreProc`` that other threads call to start
a step without requests.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any


def let_migrations_wake_engines() -> None:
    """Give each engine core's migration, if it has one, the functions to wake the core and to read its state."""
    # Imported here, because it imports the scheduler's module, which imports this module.
    from vllm.v1.engine.core import EngineCoreProc

    if not hasattr(EngineCoreProc._process_input_queue, "__wrapped__"):
        EngineCoreProc._process_input_queue = _after_telling(EngineCoreProc._process_input_queue)


def _after_telling(process: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.engine import EngineCoreRequestType

    def is_ending(core: Any) -> bool:
        return not core.is_running()

    def may_go_on(core: Any) -> bool:
        return bool(core.is_running()) and core.scheduler.pause_state == PauseState.UNPAUSED

    @wraps(process)
    def tell_and_process(core: Any) -> Any:
        migration = core.scheduler.tiers.migration
        if migration is not None:
            migration.wake = partial(core.input_queue.put_nowait, (EngineCoreRequestType.WAKEUP, None))
            migration.may_go_on = partial(may_go_on, core)
            migration.is_ending = partial(is_ending, core)
        # Done only once. Later iterations of the engine's loop call vLLM's method directly.
        core._process_input_queue = partial(process, core)
        return process(core)

    return tell_and_process
