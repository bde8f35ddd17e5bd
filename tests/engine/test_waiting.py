"""Requests that wait for something other than blocks, or are made in an unusual way."""

from concurrent.futures import Future

import pytest
from vllm.config.lora import LoRAConfig
from vllm.lora.request import LoRARequest
from vllm.v1.engine.parallel_sampling import ParentRequest
from vllm.v1.request import Request, RequestStatus

from hack.harness.scheduler import SALT_KEY, SEAL_KEY, AnyToken, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.keys.salt import tenant_salt
from tenantzone_runtime.seal import SEAL_ARGUMENT, seal
from tests.engine.measured import zone


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


def adapter(number):
    return LoRARequest(lora_name=f"adapter-{number}", lora_int_id=number, lora_path="/nowhere")


def test_no_request_yields_to_one_whose_adapter_has_no_room(config, clock):
    driver = Driver(make_scheduler(config, 60))
    driver.scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)
    driver.declare(zone("gold", reserved=40), zone("burst"), zone("calm"))
    other = driver.send("calm", prompt(3), max_tokens=60)
    other.lora_request = adapter(1)
    # None of them asks for another block.
    running = [driver.send("burst", prompt(12), max_tokens=12) for _ in range(4)]
    driver.step()
    front = driver.send("gold", prompt(30), max_tokens=3)
    front.lora_request = adapter(2)
    for _ in range(15):
        driver.step()
    assert [driver.finished[request.request_id] for request in running] == ["length"] * 4
    assert [request.num_preemptions for request in running] == [0] * 4
    assert front.status == RequestStatus.WAITING
    clock.run(driver, 200)
    assert driver.finished[front.request_id] == "length"


def test_who_waits_behind_a_grammar_that_is_compiled_gets_what_its_zone_reserves(config):
    driver = Driver(make_scheduler(config, 60))
    driver.declare(zone("gold", reserved=40), zone("burst"))
    borrowers = [driver.send("burst", prompt(12), max_tokens=60) for _ in range(4)]
    driver.step()
    assert driver.zone("burst").in_use > 20
    compiling: Future = Future()
    front = driver.send("gold", prompt(2), max_tokens=3, grammar=compiling)
    behind = driver.send("gold", prompt(30), max_tokens=3)
    for _ in range(2):
        driver.step()
    assert behind.status == RequestStatus.RUNNING
    assert any(each.num_preemptions for each in borrowers)
    assert not front.num_computed_tokens
    compiling.set_result(AnyToken())
    driver.run()
    assert set(driver.finished.values()) == {"length"}


def test_requests_of_one_prompt_may_share_their_parameters(config):
    """As vLLM makes them for n > 1 without a seed."""
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("acme"))
    salt = tenant_salt(SALT_KEY, "acme")
    shared = driver.send(None, prompt(1)).sampling_params
    shared.n = 2
    shared.extra_args = {SEAL_ARGUMENT: seal(SEAL_KEY, "acme", salt)}
    parent = ParentRequest.__new__(ParentRequest)
    parent.request_id = parent.external_req_id = "parent"
    parent.sampling_params, parent.child_requests, parent.cached_child_sampling_params = shared, set(), None
    for index in range(2):
        name, params = parent.get_child_info(index)
        driver.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=prompt(2),
                sampling_params=params,
                pooling_params=None,
                cache_salt=salt,
                block_hasher=driver._hasher,
            )
        )
    driver.run()
    assert [driver.finished[name] for name in ("0_parent", "1_parent")] == ["length", "length"]
