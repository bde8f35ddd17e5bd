"""Wakes vLLM's idle engine core for a migration, which needs steps but has no requests.

An engine core that is shutting down or paused is not woken, because it waits until no work is left.

Upstream change that would make this module unnecessary: a method of ``EngineCoreProc`` that other threads call to start
a step without requests.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from vllm.v1.core.sched.interface import PauseState, SchedulerInterface


def connect_migration(scheduler: Any, wake: Callable[[], None], is_running: Callable[[], bool]) -> None:
    """Give an engine's migration, if any, the functions that wake the engine core and return the core's state.

    Args:
        scheduler: the engine's scheduler, with zones.
        wake: starts a step of the engine core.
        is_running: returns False if the engine core is shutting down.
    """
    migration = scheduler.tiers.migration
    if migration is not None:
        migration.wake = wake
        migration.may_go_on = lambda: is_running() and scheduler.pause_state == PauseState.UNPAUSED
        migration.is_ending = lambda: not is_running()


def let_migrations_wake_engines() -> None:
    """Make each engine core of this process call its scheduler's ``on_engine_ready``, unless vLLM does so itself."""
    # Imported here, because `engine.core` imports the scheduler's module, which imports this module.
    from vllm.v1.engine.core import EngineCoreProc

    if hasattr(SchedulerInterface, "on_engine_ready"):
        return  # vLLM calls the scheduler's method
    if not hasattr(EngineCoreProc._process_input_queue, "__wrapped__"):
        EngineCoreProc._process_input_queue = _after_telling(EngineCoreProc._process_input_queue)


def _after_telling(process: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.v1.engine import EngineCoreRequestType

    @wraps(process)
    def tell_and_process(core: Any) -> Any:
        wake = partial(core.input_queue.put_nowait, (EngineCoreRequestType.WAKEUP, None))
        core.scheduler.on_engine_ready(wake, core.is_running)
        # Runs only once per engine core: later iterations of its loop call vLLM's method directly.
        core._process_input_queue = partial(process, core)
        return process(core)

    return tell_and_process
