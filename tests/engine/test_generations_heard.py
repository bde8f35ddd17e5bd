"""What the recorder learns of generations, whatever their outcome: its own part is real, and no engine runs."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import SamplingParams

from tenantzone_runtime.engine.patches.recording import _recorded
from tenantzone_runtime.frontend.recorder import Recorder, recorded

ENGINE = SimpleNamespace(vllm_config=SimpleNamespace(cache_config=SimpleNamespace(block_size=4)))


async def answered(engine, prompt, sampling_params, *_, **__):
    """An answer of two tokens, as vLLM's own ``generate`` yields it."""
    completion = CompletionOutput(0, "", [7, 7], None, None, finish_reason="stop")
    yield RequestOutput("1", None, prompt["prompt_token_ids"], None, [completion], finished=True)


@pytest.fixture
def recorder(tmp_path):
    recorder = Recorder(tmp_path, 2**20, 2)
    yield recorder
    recorder.close()


def asked(recorder, serve):
    """Makes a server do something with ``generate`` in a recorded request."""

    def generate(length):
        return _recorded(answered)(ENGINE, {"prompt_token_ids": list(range(length))}, SamplingParams())

    async def app(scope, receive, send):
        await serve(generate)

    asyncio.run(recorded(app, recorder, "acme", None, bytes(32))({}, None, None))


def test_a_generation_that_is_not_iterated_holds_nothing_back(recorder, tmp_path):
    async def serve(generate):
        generate(5)
        await generate(6).aclose()
        async for _ in generate(7):
            pass

    asked(recorder, serve)
    recorder.close()
    (path,) = tmp_path.iterdir()
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line["prompt_tokens"] == 7
    assert line["oldest"] > line["time"], "no other is under way"
    assert not recorder.under_way


def test_a_generation_arrives_when_the_engine_is_given_it(recorder, tmp_path):
    async def serve(generate):
        first, second = generate(5), generate(6)
        for each in (second, first):
            async for _ in each:
                pass

    asked(recorder, serve)
    recorder.close()
    (path,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["prompt_tokens"] for line in lines] == [6, 5]
    assert lines[0]["time"] < lines[0]["oldest"] < lines[1]["time"]


def test_what_a_client_left_is_recorded_as_far_as_it_came(recorder, tmp_path):
    async def serve(generate):
        outputs = generate(5)
        await anext(outputs)
        assert recorder.under_way
        await outputs.aclose()

    asked(recorder, serve)
    recorder.close()
    (path,) = tmp_path.iterdir()
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["prompt_tokens"], line["output_tokens"]) == (5, 2)
    assert not recorder.under_way
