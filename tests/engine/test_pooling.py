"""Requests of pooling models, which ask for numbers: bound to zones by a seal outside of their bodies."""

import asyncio
from copy import copy

import pytest
import torch
from vllm.outputs import PoolingOutput, PoolingRequestOutput
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.engine.patches import refusals
from tenantzone_runtime.engine.patches.refusals import refusal_in
from tenantzone_runtime.engine.patches.request_seals import arguments_of, with_borne_seal
from tenantzone_runtime.frontend.request_context import RequestContext
from tenantzone_runtime.frontend.responses.engine_refusal import refusable
from tenantzone_runtime.seal import SEAL_ARGUMENT
from tests.frontend.harness import call, error_of

CAPACITY = 40


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    config = vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=64)
    config.model_config = copy(config.model_config)
    config.model_config.runner_type = "pooling"
    return config


@pytest.fixture
def driver(config):
    driver = Driver(make_scheduler(config, CAPACITY))
    driver.declare(zone("acme", reserved=20), zone("burst", limit=20))
    return driver


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


@pytest.mark.shows("embeddings, classification, pooling (`--runner pooling`, `--convert`)")
def test_a_prompt_is_found_again_by_its_own_tenant_only(driver):
    text = prompt(6, seed=1)
    first, other, again = (driver.ask(tenant, text, pooling=True) for tenant in ("acme", "burst", "acme"))
    assert [driver.cached_tokens(each) for each in (first, other, again)] == [0, 0, 6 * BLOCK_TOKENS]
    assert {driver.finished[each.request_id] for each in (first, other, again)} == {"stop"}
    assert driver.zone("acme").counters.generation_tokens == 0


@pytest.mark.shows("embeddings, classification, pooling (`--runner pooling`, `--convert`)")
def test_what_is_reserved_stays_through_a_flood(driver):
    text = prompt(10, seed=1)
    driver.ask("acme", text, pooling=True)
    for _ in range(20):
        driver.send("burst", prompt(8), pooling=True)
    driver.run()
    assert driver.cached_tokens(driver.ask("acme", text, pooling=True)) == 10 * BLOCK_TOKENS


def test_the_seal_goes_no_further_than_the_scheduler(driver):
    request = driver.send("acme", prompt(2), pooling=True)
    assert request.zone is driver.zone("acme")
    assert request.pooling_params.extra_kwargs == {}


def refused_output(driver, request):
    """What vLLM's own API server makes of the output that ends the request."""
    (item,) = driver.update(*driver.schedule())
    assert isinstance(item, EngineCoreOutput)
    processor = OutputProcessor(None, log_stats=False)
    queue = RequestOutputCollector(PoolingParams().output_kind, request.request_id)
    asked = EngineCoreRequest(
        request_id=request.request_id,
        external_req_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        mm_features=None,
        sampling_params=None,
        pooling_params=request.pooling_params,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    processor.add_request(asked, "text", queue=queue)
    processor.process_outputs([item])
    return queue.get_nowait()


@pytest.mark.shows("embeddings, classification, pooling (`--runner pooling`, `--convert`)")
def test_past_the_frontend_it_is_refused_and_the_client_hears_why(driver):
    output = refused_output(driver, driver.send(None, prompt(2), pooling=True))
    assert isinstance(output, PoolingRequestOutput)
    refusal = refusal_in(output)
    assert (refusal.status, refusal.retry_after) == (503, None)
    assert "did not come through the frontend" in refusal.message


def test_a_prompt_beyond_its_zones_limit_is_refused_with_the_numbers(driver):
    output = refused_output(driver, driver.send("burst", prompt(21), pooling=True))
    assert refusal_in(output).status == 400
    assert "20 blocks, which hold" in refusal_in(output).message


def test_another_failure_is_no_refusal_and_no_numbers(driver):
    request = driver.send("acme", prompt(2), pooling=True)
    driver.scheduler.end_with_error(request)
    output = refused_output(driver, request)
    assert refusal_in(output) is None
    assert bytes(output.outputs.data.tolist()) == b"the engine could not serve the request"


def served(output):
    """The response for this output of the engine: served as by vLLM, which also watches for a disconnect."""

    async def encode(engine, prompt, pooling_params):
        yield output

    async def app(scope, receive, send):
        async def answer():
            async for each in refusals._passing_refusals_of_pooling_on(encode)(None, "text", PoolingParams()):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": str(each.outputs.data.tolist()).encode()})

        await receive()
        answering, gone = asyncio.create_task(answer()), asyncio.create_task(receive())
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
            return
        await answering

    class RefusalListener:
        def is_ready(self): ...

        def is_refused(self, refusal, seconds): ...

    return call(refusable(app, RefusalListener()))


def test_the_frontend_answers_in_place_of_numbers(driver):
    answer = served(refused_output(driver, driver.send("burst", prompt(21), pooling=True)))
    assert answer.status_code == 400
    assert "20 blocks, which hold" in error_of(answer)["message"]


def test_another_failure_is_the_servers(driver):
    request = driver.send("acme", prompt(2), pooling=True)
    driver.scheduler.end_with_error(request)
    with pytest.raises(RuntimeError, match="the engine could not serve the request"):
        served(refused_output(driver, request))


def test_a_models_numbers_are_no_refusal(driver):
    outputs = PoolingOutput(data=torch.ones(8))
    assert (
        refusal_in(PoolingRequestOutput("id", outputs, prompt_token_ids=[1], num_cached_tokens=0, finished=True))
        is None
    )


class TestABorneSeal:
    """The seal of the context is put into requests that vLLM has made without one."""

    @pytest.fixture(params=[SamplingParams, PoolingParams])
    def params(self, request):
        return request.param()

    def within(self, params, seal="the seal"):
        """The parameters that the engine receives within a request with this seal."""
        context = RequestContext()
        context.seal = seal
        found = []

        async def app(scope, receive, send):
            found.append(with_borne_seal(params))

        asyncio.run(context.carried_through(app)({}, None, None))
        return found[0]

    def test_it_is_put_into_a_copy(self, params):
        assert arguments_of(self.within(params)) == {SEAL_ARGUMENT: "the seal"}
        assert arguments_of(params) == {}, "beams share their parameters"

    def test_one_that_came_with_the_body_stays(self, params):
        bound = self.within(params, "of the body")
        assert self.within(bound) is bound

    def test_outside_of_a_request_there_is_none(self, params):
        assert with_borne_seal(params) is params
