"""The lock of the scheduler: the engine core calls no method that changes the scheduler without it."""

import re
import threading
from pathlib import Path

import pytest
import vllm.v1.engine.core
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tests.zones.whole_state import state_of

CHANGING = {
    "add_request",
    "finish_requests",
    "reset_encoder_cache",
    "reset_prefix_cache",
    "schedule",
    "set_pause_state",
    "update_from_output",
}
HARMLESS = {
    "get_grammar_bitmask": "makes masks, and takes the lock to end requests",
    "get_kv_cache_usage": "reads one number",
    "get_num_unfinished_requests": "reads lengths",
    "get_request_counts": "reads lengths",
    "has_requests": "reads lengths",
    "has_unfinished_requests": "reads lengths",
    "make_stats": "reads counters of vLLM",
    "shutdown": "ends the process",
    "update_draft_token_ids": "changes requests only, which only the engine core's thread reads",
    "update_draft_token_ids_in_output": "changes an output",
}
ATTRIBUTES = {
    "connector", "ec_connector", "get_ec_connector", "get_kv_connector", "get_kv_event_publisher_config", "pause_state"
}  # fmt: skip


def test_each_method_that_the_engine_core_calls_is_known():
    text = Path(vllm.v1.engine.core.__file__).read_text()
    called = set(re.findall(r"self\.scheduler\.(\w+)", text))
    assert called <= CHANGING | set(HARMLESS) | ATTRIBUTES


@pytest.mark.parametrize("method", sorted(CHANGING))
def test_a_method_that_changes_the_scheduler_waits_for_the_lock(tmp_path, method):
    driver = Driver(make_scheduler(vllm_config(tmp_path), 100))
    scheduler = driver.scheduler
    driver.declare(ZoneConfig(name="acme", tenant="acme", generation=1))
    request = driver.send("acme", prompt(2), max_tokens=5)

    def new_request():
        other = Driver(make_scheduler(vllm_config(tmp_path), 100))
        return [other.send(None, prompt(2)) for _ in range(2)][-1]

    arguments = {
        "add_request": lambda: (new_request(),),
        "finish_requests": lambda: (request.request_id, RequestStatus.FINISHED_ABORTED),
        "set_pause_state": lambda: (PauseState.PAUSED_NEW,),
        "update_from_output": driver.schedule,
    }.get(method, tuple)()
    asked = threading.Event()
    lock = scheduler.zone_lock

    class Watched:
        def __enter__(self):
            asked.set()
            return lock.__enter__()

        def __exit__(self, *failure):
            return lock.__exit__(*failure)

    def state():
        return state_of(scheduler.tenancy), list(scheduler.requests), len(scheduler.running), scheduler.pause_state

    scheduler.zone_lock = Watched()
    before = state()
    with lock:
        call = threading.Thread(target=getattr(scheduler, method), args=arguments, daemon=True)
        call.start()
        assert asked.wait(60), "the method asks for the lock"
        assert call.is_alive(), "the method waits for the lock"
        assert state() == before, "the method changes nothing before it has the lock"
    call.join(60)
    assert not call.is_alive()
