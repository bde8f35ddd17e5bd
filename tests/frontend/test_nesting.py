"""However a body nests, in objects or in JSON texts within texts, it gets an answer, and no traceback is logged."""

import json
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from vllm import sampling_params
from vllm.exceptions import VLLMError

from tenantzone_runtime.engine.versions import chat_utils
from tenantzone_runtime.frontend.binding import bind
from tenantzone_runtime.frontend.body.grammars import FIELDS, check_grammars
from tenantzone_runtime.frontend.body.terms import check_terms
from tenantzone_runtime.frontend.body.values import MAX_DEPTH, Reader, TooMuch, nests_deeper, read_text
from tenantzone_runtime.frontend.intake import Intake
from tenantzone_runtime.frontend.responses.answers import Receive, Scope, Send, error_body
from tenantzone_runtime.frontend.routes import ROUTES, Access
from tenantzone_runtime.settings import Bounds
from tests.frontend.harness import PROMPT, call, error_of, frontend
from tests.frontend.test_routes_of_vllm import POOLING, TO_SAMPLING
from tests.python_steps import steps_of
from tests.runtime.folders import zone

TAKING = [route.path for route in ROUTES if route.method == "POST" and route.access in (Access.KEYED, Access.SEALED)]
TOO_DEEP = MAX_DEPTH + 1
CHECK_NESTING = getattr(sampling_params, "check_json_nesting", lambda schema: None)  # since vLLM 0.32
# Since vLLM 0.33 the module is a package.
POSTPROCESS = getattr(chat_utils(), "chat_message", chat_utils())._postprocess_messages
NAMES = ["json", "schema", "json_schema", "structural_tag", "regex", "pattern", "patternProperties", "type"]
NAMES += ["properties", "content", "arguments", "function", "tool_calls", "role", ""]


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * depth + "1" + closing * depth


async def read_as_vllm_does(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a body with vLLM's own models, and what it parses of it before the engine; answers as vLLM does."""
    message = await receive()
    body = json.loads(message["body"])
    status = 200
    try:
        if scope["path"] in TO_SAMPLING:
            _, sampling = TO_SAMPLING[scope["path"]][0](body)
            if sampling.structured_outputs is not None and sampling.structured_outputs.json is not None:
                CHECK_NESTING(sampling.structured_outputs.json)
        elif scope["path"] in POOLING:
            TypeAdapter(POOLING[scope["path"]]).validate_python(body)
        if isinstance(messages := body.get("messages"), list) and all(isinstance(each, dict) for each in messages):
            POSTPROCESS(messages)
    except (ValidationError, VLLMError, ValueError, TypeError):
        status = 400
    answer = error_body(scope, 400, "vLLM refuses it") if status == 400 else b"{}"
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": answer})


def wrapped(layers: list[tuple[str, str, int]]) -> Any:
    """A value within layers of lists, objects and JSON texts; each layer has a kind, a name and a number of levels."""
    text, is_text_left = "1", 3
    for kind, name, times in layers:
        if kind == "text" and is_text_left and len(text) < 20_000:
            text, is_text_left = json.dumps(text), is_text_left - 1
        elif kind == "list":
            text = "[" * times + text + "]" * times
        elif kind == "object":
            text = f"{{{json.dumps(name)}:" * times + text + "}" * times
    return text


LAYERS = st.lists(
    st.tuples(
        st.sampled_from(["list", "object", "text"]),
        st.sampled_from(NAMES),
        st.one_of(st.integers(1, 5), st.integers(100, 150), st.integers(400, 1200)),
    ),
    min_size=1,
    max_size=6,
)
PLACES = [*FIELDS, "messages", "input", "prompt", "vllm_xargs", "logit_bias", "metadata", "chat_template_kwargs"]


@pytest.mark.parametrize("path", TAKING)
@given(layers=LAYERS, place=st.sampled_from(PLACES), in_conversation=st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nested_bodies_of_all_kinds_are_answered(folder, caplog, path, layers, place, in_conversation):
    caplog.clear()
    value = wrapped(layers)
    if in_conversation:
        arguments = value if value.startswith('"') else json.dumps(value)
        called = f'{{"type": "function", "id": "a", "function": {{"name": "f", "arguments": {arguments}}}}}'
        place, value = "messages", f'[{{"role": "assistant", "content": "a", "tool_calls": [{called}]}}]'
    body = f'{{"model": "m", {json.dumps(place)}: {value}}}'.encode()
    with caplog.at_level(logging.WARNING):
        response = call(frontend(folder, read_as_vllm_does), path=path, body=body, key="acme-key")
    assert response.status_code in (200, 400), response.text
    if response.status_code == 400:
        assert "recursion" not in error_of(response)["message"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


def deep_texts(text: str) -> list[dict[str, Any]]:
    return [
        {"structured_outputs": {"json": text}},
        {"structured_outputs": {"structural_tag": text}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": text}}},
        {"guided_json": text},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": text}}]},
        {"text": {"format": {"schema": text}}},
        {"output_format": {"schema": json.dumps({"json": text})}},
    ]


@pytest.mark.parametrize("depth", [TOO_DEEP, 500, 20_000])
@pytest.mark.parametrize("number", range(len(deep_texts(""))))
def test_a_schema_that_nests_too_deep_as_a_text_is_refused_before_vllm_sees_it(folder, depth, number):
    fields = deep_texts(nested(depth, "[", "]"))[number]
    (name,) = fields
    error = error_of(call(frontend(folder), body={**PROMPT, **fields}, key="acme-key"))
    assert (error["code"], error["param"]) == (400, name)
    assert f"nests deeper than {MAX_DEPTH} levels; send flatter data" in error["message"]


@pytest.mark.parametrize("number", range(len(deep_texts(""))))
def test_a_schema_as_a_text_may_nest_as_deep_as_a_body(folder, number):
    fields = deep_texts(nested(MAX_DEPTH))[number]
    assert call(frontend(folder), body={**PROMPT, **fields}, key="acme-key").status_code == 200


@pytest.mark.parametrize("path", TAKING)
@pytest.mark.parametrize("depth", [MAX_DEPTH, 20_000])
def test_a_body_that_nests_too_deep_is_refused_with_the_advice_to_be_flatter(folder, path, depth):
    body = f'{{"prompt": {nested(depth)}}}'.encode()
    error = error_of(call(frontend(folder), path=path, body=body, key="acme-key"))
    assert (error["code"], "send flatter data" in error["message"]) == (400, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", lambda text: {"messages": [{"tool_calls": [{"function": {"arguments": text}}]}]}),
        ("/v1/chat/completions/batch", lambda text: {"messages": [[{"tool_calls": [{"arguments": text}]}]]}),
        ("/v1/responses", lambda text: {"input": [{"type": "function_call", "arguments": text}]}),
    ],
)
def test_arguments_of_tool_calls_that_nest_too_deep_are_refused(folder, path, body):
    made = frontend(folder)
    for text in (nested(TOO_DEEP), nested(5000, "[", "]"), "[" * 5000):
        error = error_of(call(made, path=path, body=body(text), key="acme-key"))
        assert (error["code"], error["param"]) == (400, next(iter(body(text))))
    for text in (nested(MAX_DEPTH), '{"text": "' + "[" * 5000 + '"}', "{" * 500, "plain"):
        assert call(made, path=path, body=body(text), key="acme-key").status_code == 200


def test_depth_is_counted_in_objects_and_lists():
    assert not nests_deeper(1, 0)
    assert not nests_deeper([], 1)
    assert nests_deeper([], 0)
    assert nests_deeper([1, {"a": [2]}], 2)
    assert not nests_deeper([1, {"a": [2]}, {}], 3)


@pytest.mark.parametrize(("text", "value"), [(' [{"a": 1}]', [{"a": 1}]), ("1", None), ("{", None), ("", None)])
def test_only_objects_and_lists_count_as_json_texts(text, value):
    assert read_text(text) == value


def within(depth: int, value: Any, name: str = "") -> Any:
    for _ in range(depth):
        value = {name: value} if name else [value]
    return value


WITHOUT_PATTERNS = zone("acme").model_copy(
    update={"request_limits": zone("acme").request_limits.model_copy(update={"structured_outputs": "Schemas"})}
)
ROUTE = next(route for route in ROUTES if route.path == "/v1/completions")


def take(body: dict[str, Any]) -> int:
    """Checks a body as the frontend does for a zone without patterns. Returns how many steps that takes."""

    def remake(raw: bytes, parsed: dict[str, Any], answers: int) -> bytes:
        check_terms(parsed, [], ROUTE.path, WITHOUT_PATTERNS)
        return bind(raw, parsed, bytes(32), bytes(32), "acme")

    raw = json.dumps(body).encode()
    return steps_of(lambda: Intake(Bounds())._work(raw, ROUTE, remake))


@pytest.mark.parametrize(
    "form",
    [
        lambda size: {"json": within(100, ["[]"] * size)},
        lambda size: {"json": json.dumps(within(100, ["{}"] * size))},
        lambda size: {"json": within(100, [{"type": "a"}] * size)},
        lambda size: {"json": within(100, [{"type": "a"}] * size, "n" * 100)},
        lambda size: {"json": [{"json": "[{}, {}]"}] * size},
        lambda size: {"json": json.dumps([json.dumps(["[]"] * size)])},
    ],
)
def test_the_work_for_a_form_grows_with_its_size_alone(form):
    # Not with its size times its depth: that would be a hundred steps for each member.
    few, many = (take({**PROMPT, "structured_outputs": form(size)}) for size in (100, 1100))
    assert (many - few) / 1000 < 100


def texts_in_texts(levels: int) -> str:
    """Nested texts that grow by few characters per level: an escaped escape is not escaped again."""
    text = "[]"
    for _ in range(levels):
        text = '["' + text.replace("\\", "\\u005c").replace('"', "\\u0022") + '"]'
    return text


def test_texts_within_texts_are_read_up_to_a_size_of_all_together(folder):
    error = error_of(call(frontend(folder), body={**PROMPT, "guided_json": texts_in_texts(90)}, key="acme-key"))
    assert (error["code"], error["param"]) == (400, "guided_json")
    assert f"{4 * Bounds().max_grammar_bytes} characters" in error["message"]
    assert call(frontend(folder), body={**PROMPT, "guided_json": texts_in_texts(8)}, key="acme-key").status_code == 200


def test_the_bound_on_work_is_one_for_all_fields(folder):
    half = {"json": json.dumps(["a" * (Bounds().max_grammar_bytes - 1000)])}
    passes = {**PROMPT, **dict.fromkeys(FIELDS[:2], half)}
    refused = {**PROMPT, **dict.fromkeys(FIELDS[:3], half)}
    assert call(frontend(folder), body=passes, key="acme-key").status_code == 200
    assert error_of(call(frontend(folder), body=refused, key="acme-key"))["param"] == FIELDS[2]


def test_objects_and_lists_count_as_work_too():
    reader = Reader(1600)
    assert list(reader.texts_in([[]] * 98, 2)) == []
    with pytest.raises(TooMuch, match="more than 100 objects and lists"):
        list(reader.texts_in([], 2))


def test_what_is_in_texts_is_found_at_each_level():
    check_grammars({"guided_json": json.dumps([json.dumps(["a{1,100}"])])}, 2**16)
    hidden = json.dumps([json.dumps(["a{5000}"]).replace("{", "\\u007b")])
    with pytest.raises(Exception, match="repeats too often"):
        check_grammars({"guided_json": hidden}, 2**16)
