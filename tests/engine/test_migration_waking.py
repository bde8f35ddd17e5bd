"""vLLM's own loop over a real scheduler: a move keeps an engine without requests awake, but not one that ends."""

from contextlib import suppress
from functools import partial
from queue import Queue
from threading import Thread
from types import SimpleNamespace

import pytest
from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import EngineCoreProc, EngineShutdownState

from hack.harness.scheduler import prompt, vllm_config
from tenantzone_contract.cache.migration import MigrationError, MigrationOrder
from tenantzone_runtime.engine.patches.waking import let_migrations_wake_engines
from tests.engine.sharing_engines import sharing_engines
from tests.shared_tier.conftest import own_manager as manager  # noqa: F401 - a fixture
from tests.shared_tier.engines import ENDLESS, HANG, standing_still
from tests.waiting import await_that

WAKEUP = (EngineCoreRequestType.WAKEUP, None)


class Core(EngineCoreProc):
    """An engine core from the start of its loop on; there is no model, and nothing reads or writes its queues.

    Args:
        engine: the engine that makes its steps.
    """

    def __init__(self, engine):
        self.scheduler = engine.scheduler
        self.input_queue, self.output_queue, self.aborts_queue = Queue(), Queue(), Queue()
        self.vllm_config = SimpleNamespace(shutdown_timeout=HANG)
        self.model_executor = SimpleNamespace(collective_rpc=lambda _: None)
        self.shutdown_state = EngineShutdownState.RUNNING
        self.process_input_queue_block = True
        self.engines_running = self.publish_dp_lb_stats = self.check_for_draft_tokens = False
        self.batch_queue = None
        self._idle_state_callbacks = []
        self.step_fn = lambda: ({}, bool(engine.scheduler.has_requests() and engine.step()))
        self.thread = Thread(target=self._run)

    def _run(self):
        # This ends the loop.
        with suppress(SystemExit):
            self.run_busy_loop()

    def call(self, method, *arguments):
        """Makes the loop call one of its utilities."""
        self.input_queue.put((EngineCoreRequestType.UTILITY, (0, 1, method, arguments)))

    def shut_down(self):
        """Shuts down as a signal does."""
        self.shutdown_state = EngineShutdownState.REQUESTED
        self.input_queue.put(WAKEUP)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engine(config, manager):  # noqa: F811 - the fixture
    """An engine that waits for the manager without a time limit, with something to move."""
    with sharing_engines(config, manager) as make:
        (engine,) = make(1, settings=ENDLESS)
        engine.ask("acme", prompt(3))
        yield engine


@pytest.fixture
def core(engine):
    let_migrations_wake_engines()
    core = Core(engine)
    if hasattr(SchedulerInterface, "on_engine_ready"):  # called by a vLLM with hooks in the constructor
        engine.scheduler.on_engine_ready(partial(core.input_queue.put_nowait, WAKEUP), core.is_running)
    core.thread.start()
    try:
        await_that(lambda: migration(engine).wake is not bool, "the loop says how it is woken")
        yield core
    finally:
        core.shut_down()
        core.thread.join(HANG)
    assert not core.thread.is_alive()


def migration(engine):
    return engine.scheduler.tiers.migration


def hand_down(engine):
    engine.served.migration.do(MigrationOrder(order="hand-down", tenant="acme"))


def state(engine):
    """How far it is some time later."""
    engine.scheduler.let_time_pass()
    return engine.served.migration.report("acme", with_prompts=False).state


def test_an_engine_without_requests_goes_on_until_all_is_moved_and_sleeps_again(engine, core):
    hand_down(engine)
    await_that(lambda: state(engine) == "Done", "all is moved")
    await_that(lambda: core.input_queue.empty() and not core.has_work(), "it sleeps")


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
def test_who_pauses_an_engine_does_not_wait_for_what_is_moved_and_it_goes_on_later(engine, core, manager, mode):  # noqa: F811
    with standing_still(manager):
        hand_down(engine)
        await_that(lambda: core.has_work(), "it is at work")
        core.call("pause_scheduler", mode, False)
        core.output_queue.get(timeout=2 * HANG)
        assert core.scheduler.pause_state != PauseState.UNPAUSED
    assert state(engine) == "Running"
    await_that(core.input_queue.empty, "it sleeps")
    assert not core.has_work()
    core.call("resume_scheduler")
    await_that(lambda: state(engine) == "Done", "all is moved")


def test_an_engine_that_ends_does_not_wait_for_what_is_moved(engine, core, manager):  # noqa: F811
    with standing_still(manager):
        hand_down(engine)
        await_that(lambda: core.has_work(), "it is at work")
        core.shut_down()
        core.thread.join(2 * HANG)
        assert not core.thread.is_alive()


def test_an_engine_that_ends_moves_nothing_any_more_and_says_so(engine, core, manager):  # noqa: F811
    with standing_still(manager):
        hand_down(engine)
        await_that(lambda: core.has_work(), "it is at work")
        core.shut_down()
        await_that(lambda: state(engine) == "Stopped", "the migration is stopped")
    assert engine.served.migration.report("acme", with_prompts=False).problem == "this engine is shutting down"
    with pytest.raises(MigrationError, match="this engine is shutting down"):
        hand_down(engine)
    engine.served.migration.do(MigrationOrder(order="stop", tenant="acme"))
