"""What vLLM fails to read in a request's messages is the client's mistake, and not an error of the server."""

import asyncio
import json

import pytest
from vllm.config import ModelConfig, VllmConfig
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import VLLMValidationError
from vllm.renderers.base import BaseRenderer
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.renderers.registry import renderer_from_config

from hack.demo.tiny_model import byte_tokenizer
from hack.harness.scheduler import MODEL
from tenantzone_runtime.engine.unreadable_messages import refuse_unreadable_messages

OUTPUT = {"type": "function_call_output", "call_id": "c", "id": "i", "status": "completed", "created_by": "me"}
ANSWER = {"type": "message", "role": "assistant", "id": "i", "status": "completed"}
UNREADABLE = {
    "a tool's output in parts": [{**OUTPUT, "output": [{"type": "input_text", "text": "secret"}]}],
    "a tool's output with a file": [{**OUTPUT, "output": [{"type": "input_file", "file_id": "secret"}]}],
    "a tool's output with an image": [
        {**OUTPUT, "output": [{"type": "input_image", "detail": "auto", "image_url": "secret"}]}
    ],
    "an answer without content": [{**ANSWER, "content": []}],
    "a refusal": [{**ANSWER, "content": [{"type": "refusal", "refusal": "secret"}]}],
}


@pytest.fixture(scope="module")
def online(tmp_path_factory) -> OnlineRenderer:
    """VLLM's renderer, of a small model that has no weights."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(MODEL | {"vocab_size": len(tokenizer)}))
    config = VllmConfig(model_config=ModelConfig(model=str(folder), dtype="float32", max_model_len=4096))
    refuse_unreadable_messages()
    refuse_unreadable_messages()
    return OnlineRenderer(
        config.model_config,
        renderer_from_config(config),
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
    )


def rendered(online: OnlineRenderer, items: list) -> object:
    return asyncio.run(online.render_responses(ResponsesRequest(model="m", input=items)))


@pytest.mark.parametrize("items", UNREADABLE.values(), ids=UNREADABLE)
def test_messages_that_vllm_fails_to_read_are_refused_in_one_line(online, items, caplog):
    caplog.set_level("WARNING", "tenantzone_runtime")
    with pytest.raises(VLLMValidationError, match="send its content as text") as raised:
        rendered(online, items)
    assert create_error_response(raised.value).error.code == 400
    (record,) = [each for each in caplog.records if each.name.startswith("tenantzone_runtime")]
    assert record.exc_info is None
    assert "secret" not in caplog.text + str(raised.value)


def test_the_renderer_below_refuses_them_too(online):
    with pytest.raises(VLLMValidationError, match="send its content as text"):
        BaseRenderer.render_chat(online.renderer, [[{"role": "user", "content": [None]}]], None)


def test_messages_that_it_reads_are_rendered(online):
    result = rendered(online, [{"role": "user", "content": "hello"}, {**OUTPUT, "output": "4"}])
    assert result.messages[0] == {"role": "user", "content": "hello"}


def test_what_vllm_says_of_other_mistakes_is_passed_on(online):
    with pytest.raises(VLLMValidationError, match="item_reference"):
        rendered(online, [{"type": "item_reference", "id": "i"}])
