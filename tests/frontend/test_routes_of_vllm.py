"""The route table against vLLM itself: every route has a decision, and sealed ones reach the engine."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import vllm
from fastapi import FastAPI
from packaging.version import Version
from pydantic import TypeAdapter
from starlette.routing import BaseRoute, Mount, WebSocketRoute
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.openai.chat_completion.protocol import BatchChatCompletionRequest, ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages
from vllm.entrypoints.pooling.classify.protocol import ClassificationRequest
from vllm.entrypoints.pooling.embed.protocol import EmbeddingRequest
from vllm.entrypoints.pooling.pooling.protocol import PoolingRequest
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tenantzone_runtime.engine.versions import chat_utils
from tenantzone_runtime.frontend.binding import bind, parse_body
from tenantzone_runtime.frontend.request_context import RequestContext
from tenantzone_runtime.frontend.responses.answers import Receive, Scope, Send
from tenantzone_runtime.frontend.routes import ROUTES, WEBSOCKET, Access
from tenantzone_runtime.seal import SEAL_ARGUMENT, unseal
from tenantzone_runtime.usage import FLAGS
from tests.frontend.harness import SEAL_KEY, call, error_of, frontend

try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:  # before 0.33
    from vllm.entrypoints.launchers.cli_args import make_arg_parser

DECLARED = {(route.method, route.path) for route in ROUTES if Version(route.since or "0") <= Version(vllm.__version__)}
"""The routes of this vLLM by our table."""
ENTRYPOINTS = Path(vllm.__file__).parent / "entrypoints"


def vllm_app(*flags: str) -> FastAPI:
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(flags)
    return build_app(args, ("generate", "transcription", "realtime"))


@pytest.fixture(scope="module")
def served() -> list[BaseRoute]:
    """The routes of vLLM's own application with everything turned on that it can serve."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")
        patch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
        return vllm_app("--enable-scale-out", "--enable-tokenizer-info-endpoint", "--enable-fault-tolerance").routes


def methods_of(route: BaseRoute) -> set[str]:
    if isinstance(route, WebSocketRoute):
        return {WEBSOCKET}
    # A mounted application answers all methods; vLLM's is /metrics.
    return {"GET"} if isinstance(route, Mount) else route.methods - {"HEAD"}


def test_every_route_that_is_served_is_declared(served):
    found = {(method, route.path) for route in served for method in methods_of(route)}
    assert found
    assert found <= DECLARED


def declared_in_source() -> Iterator[tuple[str, str]]:
    """The routes that vLLM's routers declare, also those that this machine or model can't turn on."""
    decorator = re.compile(r"router\.(get|post|put|patch|delete|websocket|add_api_route)\(\s*\"(/[^\"]*)\"")
    for file in ENTRYPOINTS.rglob("*.py"):
        for method, path in decorator.findall(file.read_text()):
            yield {"websocket": WEBSOCKET, "add_api_route": "POST"}.get(method, method.upper()), path


def test_every_route_in_vllms_source_is_declared():
    found = set(declared_in_source())
    assert ("POST", "/v1/embeddings") in found
    assert ("POST", "/cohere/v2/chat") in found
    assert found <= DECLARED


def test_no_route_is_declared_that_vllm_does_not_have(served):
    found = {(method, route.path) for route in served for method in methods_of(route)} | set(declared_in_source())
    assert found >= DECLARED


MESSAGES = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


def sampling_of_batch(body: dict[str, Any]) -> Any:
    batch = BatchChatCompletionRequest.model_validate(body)
    single = batch.to_chat_completion_request(batch.messages[0])
    return single.cache_salt, single.to_sampling_params(8, {})


def sampling_of_messages(body: dict[str, Any]) -> Any:
    messages = AnthropicMessagesRequest.model_validate(body)
    request = AnthropicServingMessages._build_base_request(messages, body["messages"])
    return request.cache_salt, request.to_sampling_params(8, {})


def sampling_of(protocol: Any) -> Any:
    def of(body: dict[str, Any]) -> Any:
        request = protocol.model_validate(body)
        return request.cache_salt, request.to_sampling_params(8, {})

    return of


TO_SAMPLING = {
    "/v1/chat/completions": (sampling_of(ChatCompletionRequest), MESSAGES),
    "/v1/chat/completions/batch": (sampling_of_batch, MESSAGES | {"messages": [MESSAGES["messages"]]}),
    "/v1/completions": (sampling_of(CompletionRequest), {"model": "m", "prompt": "hello"}),
    "/v1/responses": (sampling_of(ResponsesRequest), {"model": "m", "input": "hello"}),
    "/v1/messages": (sampling_of_messages, MESSAGES),
}


SEALED = [route for route in ROUTES if route.access is Access.SEALED]


@pytest.mark.parametrize("path", [route.path for route in SEALED if route.takes_arguments])
def test_a_sealed_routes_salt_and_seal_reach_the_engine(path):
    to_sampling, body = TO_SAMPLING[path]
    body = body | {"vllm_xargs": {"other": 1}}
    bound = parse_body(bind(json.dumps(body).encode(), body, bytes(32), bytes(32), "acme"))
    salt, sampling = to_sampling(bound)
    assert salt == bound["cache_salt"]
    assert sampling.extra_args == {"other": 1, SEAL_ARGUMENT: bound["vllm_xargs"][SEAL_ARGUMENT]}


POOLING = {"/v1/embeddings": EmbeddingRequest, "/classify": ClassificationRequest, "/pooling": PoolingRequest}


@pytest.mark.parametrize("path", [route.path for route in SEALED if not route.takes_arguments])
@pytest.mark.parametrize("asked", [{"input": ["hello"]}, {"messages": MESSAGES["messages"]}])
def test_where_a_body_has_no_field_for_the_seal_it_is_sent_next_to_the_salt(path, asked):
    context = RequestContext()
    body = {"model": "m", **asked}
    raw = json.dumps(body).encode()
    bound = bind(raw, body, bytes(32), bytes(32), "acme", context=context, takes_arguments=False)
    request = TypeAdapter(POOLING[path]).validate_python(parse_body(bound))
    assert not request.model_extra, "vLLM knows all that the frontend adds"
    assert unseal(bytes(32), context.seal, request.cache_salt).tenant == "acme"
    assert request.to_pooling_params().extra_kwargs is None


def test_vllm_takes_the_frontend_as_its_middleware(folder, monkeypatch):
    monkeypatch.setenv("TENANTZONE_SEAL_KEY", SEAL_KEY.hex())
    monkeypatch.setenv("TENANTZONE_STATE_DIR", str(folder / "config"))
    monkeypatch.setenv("TENANTZONE_KEYS_DIR", str(folder / "keys"))
    monkeypatch.setenv("TENANTZONE_SALT_DIR", str(folder / "salt"))
    app = vllm_app("--middleware", FLAGS["--middleware"], "--allowed-origins", '["https://chat.example"]')
    assert call(app, "GET", "/version").status_code == 200
    assert call(app, "GET", "/v1/models").status_code == 401
    assert call(app, "GET", "/metrics", key="acme-key").status_code == 403
    assert call(app, "POST", "/v1/completions", body={}, key="stray-key").status_code == 403
    ask = {"origin": "https://chat.example", "access-control-request-method": "POST"}
    asked = call(app, "OPTIONS", "/v1/chat/completions", headers=ask)
    assert asked.headers["access-control-allow-origin"] == "https://chat.example"


NO_TEXT = [
    pytest.param([{"type": "refusal", "refusal": "no"}], id="a refusal in place of a text"),
    pytest.param([], id="nothing"),
]
"""An assistant's earlier answers; vLLM assumes that they contain a text."""


@pytest.mark.parametrize("content", NO_TEXT)
def test_what_vllm_stumbles_over_while_it_reads_a_conversation_is_the_clients_fault(folder, content):
    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
        construct_input_messages(request_input=ResponsesRequest(model="tiny", input=[message]).input)

    refused = error_of(call(frontend(folder, respond), path="/v1/responses", body={"input": "a"}, key="acme-key"))
    assert (refused["code"], refused["type"]) == (400, "BadRequestError")
    assert "attribute" not in refused["message"]
    assert "index" not in refused["message"]


OUTPUT = {"type": "function_call_output", "call_id": "c", "id": "i", "status": "completed", "created_by": "me"}
UNREADABLE = [
    pytest.param([{**OUTPUT, "output": [{"type": "input_text", "text": "secret"}]}], id="a tool's output in parts"),
    pytest.param([{**OUTPUT, "output": [{"type": "input_file", "file_id": "secret"}]}], id="a file"),
    pytest.param(
        [{**OUTPUT, "output": [{"type": "input_image", "detail": "auto", "image_url": "secret"}]}], id="an image"
    ),
]
"""A tool's results; vLLM assumes that each is a text or parts of its own types."""


@pytest.mark.parametrize("items", UNREADABLE)
def test_what_vllm_stumbles_over_while_it_reads_a_message_is_the_clients_fault(folder, items):
    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        messages = construct_input_messages(request_input=ResponsesRequest(model="tiny", input=items).input)
        chat_utils().parse_chat_messages(messages, SimpleNamespace(multimodal_config=None), content_format="openai")

    refused = error_of(call(frontend(folder, respond), path="/v1/responses", body={"input": "a"}, key="acme-key"))
    assert (refused["code"], refused["type"]) == (400, "BadRequestError")
    assert "secret" not in refused["message"]
