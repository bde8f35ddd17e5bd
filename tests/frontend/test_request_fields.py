"""docs/request-fields.md has each field that vLLM reads from a tenant's body, and is right about the refused ones."""

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from vllm.entrypoints.anthropic.protocol import AnthropicCountTokensRequest, AnthropicMessagesRequest
from vllm.entrypoints.openai.chat_completion.protocol import BatchChatCompletionRequest, ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.pooling.embed.protocol import EmbeddingRequest
from vllm.entrypoints.serve.tokenize.protocol import DetokenizeRequest, TokenizeRequest

from tenantzone_runtime.frontend.routes import ROUTES
from tests.frontend.harness import PROMPT, call, error_of, frontend
from tests.frontend.test_nesting import TAKING
from tests.frontend.test_routes_of_vllm import POOLING

try:
    from vllm.entrypoints.pooling.token_embed.protocol import TokenEmbeddingRequest
except ImportError:  # before 0.33, which reads /v1/embeddings as this where the engine gives an embedding of each token
    TokenEmbeddingRequest = EmbeddingRequest

PAGE = Path(__file__).parents[2] / "docs" / "request-fields.md"
READ_AS: dict[str, Any] = {
    "/v1/chat/completions": ChatCompletionRequest,
    "/v1/chat/completions/batch": BatchChatCompletionRequest,
    "/v1/completions": CompletionRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/messages": AnthropicMessagesRequest,
    "/v1/messages/count_tokens": AnthropicCountTokensRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
    **POOLING,
    "/v1/embeddings": EmbeddingRequest | TokenEmbeddingRequest,
}


def declared() -> dict[str, str]:
    """What the page says about each field."""
    rows = re.findall(r"^\| (`.+?) \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    pairs = [(field, what) for fields, what in rows for field in re.findall(r"`(\w+)`", fields)]
    assert len(pairs) == len(dict(pairs)), "a field is there twice"
    return dict(pairs)


def models_in(kind: Any) -> Iterator[type[BaseModel]]:
    """All models that a route may use for its body."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in typing.get_args(kind):
        yield from models_in(part)


def fields_of(path: str) -> set[str]:
    return {field for model in models_in(READ_AS[path]) for field in model.model_fields}


@pytest.mark.parametrize("path", TAKING)
def test_each_field_of_each_route_is_there(path):
    found = fields_of(path)
    assert {"model"} <= found
    assert found <= set(declared()), "say in docs/request-fields.md what bounds it"


def test_the_page_knows_the_words_that_it_explains():
    assert set(declared().values()) == {"bounded", "refused", "harmless", "open"}


@pytest.mark.parametrize("field", sorted(field for field, what in declared().items() if what == "refused"))
def test_what_is_said_to_be_refused_is(folder, field):
    paths = [path for path in TAKING if field in fields_of(path)]
    refused = {route.path for route in ROUTES if field in route.refused_fields}
    assert set(paths) <= refused
    for path in paths:
        error = error_of(call(frontend(folder), path=path, body={**PROMPT, field: {"a": 1}}, key="acme-key"))
        assert (error["code"], error["param"]) == (400, field)


def test_nothing_else_is_refused():
    refused = {field for route in ROUTES for field in route.refused_fields}
    assert {field for field, what in declared().items() if what != "refused"}.isdisjoint(refused)
