"""How clients react to each refusal of the frontend: the exception's class, and whether they retry."""

import ast
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import anthropic
import httpx
import openai
import pytest

import tenantzone_runtime
from hack.third_party.litellm import litellm_python
from tenantzone_runtime.engine.patches.refusals import _STATUSES as ENGINE_STATUSES
from tenantzone_runtime.frontend.responses.refusals import Reason
from tests.frontend.harness import frontend, serving
from tests.frontend.provocations import HEADER, PROVOCATIONS, UNANSWERED, Provoking
from tests.frontend.streams import MESSAGE, PIECES, refusing

pytestmark = pytest.mark.xdist_group("clients")


class Raised(NamedTuple):
    """The exceptions that clients raise for an HTTP status."""

    openai: type[Exception]
    anthropic: type[Exception]
    litellm: str
    is_retried: bool


RAISED = {
    400: Raised(openai.BadRequestError, anthropic.BadRequestError, "BadRequestError", False),
    401: Raised(openai.AuthenticationError, anthropic.AuthenticationError, "AuthenticationError", False),
    403: Raised(openai.PermissionDeniedError, anthropic.PermissionDeniedError, "APIError", False),
    404: Raised(openai.NotFoundError, anthropic.NotFoundError, "NotFoundError", False),
    405: Raised(openai.APIStatusError, anthropic.APIStatusError, "APIError", False),
    408: Raised(openai.APIStatusError, anthropic.RequestTimeoutError, "Timeout", True),
    413: Raised(openai.APIStatusError, anthropic.RequestTooLargeError, "APIError", False),
    415: Raised(openai.APIStatusError, anthropic.APIStatusError, "APIError", False),
    422: Raised(openai.UnprocessableEntityError, anthropic.UnprocessableEntityError, "BadRequestError", False),
    429: Raised(openai.RateLimitError, anthropic.RateLimitError, "RateLimitError", True),
    431: Raised(openai.APIStatusError, anthropic.RequestHeaderFieldsTooLargeError, "APIError", False),
    503: Raised(openai.InternalServerError, anthropic.ServiceUnavailableError, "ServiceUnavailableError", True),
}
"""Exceptions by status of a refusal."""
ASKED_AGAIN_LATER = {
    "tenant_requests",
    "tenant_bodies",
    "all_bodies",
    "full_queue",
    "connections",
    "failed",
}
"""Reasons whose answers say when to retry, where clients retry."""

NAMES = {f"{reason}-{status}": (reason, status) for reason, status in PROVOCATIONS}


Ask = Callable[[str], Exception | None]
"""Sends one request with a value of the provoking header, and returns what the client raised."""


@contextmanager
def openais(url: str) -> Iterator[Ask]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=1) as client:

        def ask(value: str) -> Exception | None:
            try:
                client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "hi"}], extra_headers={HEADER: value}
                )
            except openai.APIError as error:
                return error
            return None

        yield ask


@contextmanager
def anthropics(url: str) -> Iterator[Ask]:
    with anthropic.Anthropic(base_url=url, api_key="key", max_retries=1) as client:

        def ask(value: str) -> Exception | None:
            try:
                client.messages.create(
                    model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}], extra_headers={HEADER: value}
                )
            except anthropic.APIError as error:
                return error
            return None

        yield ask


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[tuple[str, Provoking]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenantzone_runtime.frontend.body.limits.read_body.__kwdefaults__", {"seconds": 0.5})
        provoking = Provoking(tmp_path_factory.mktemp("provoking"))
        with serving(provoking) as url:
            yield url, provoking


@pytest.fixture(scope="module")
def asked(server) -> dict[str, dict[str, Any]]:
    """What each client raised for each refusal, by the client's name."""
    url, _ = server

    def all_asked(name: str, asking: Callable[[str], AbstractContextManager[Ask]]) -> dict[str, Any]:
        with asking(url) as ask, ThreadPoolExecutor(8) as pool:
            return dict(zip(NAMES, pool.map(lambda refusal: ask(f"{refusal} {name}"), NAMES), strict=True))

    def litellms() -> dict[str, Any]:
        command = [litellm_python(), Path(__file__).with_name("ask_with_litellm.py"), f"{url}/v1", HEADER]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        values = [f"{name} litellm" for name in NAMES]
        run = subprocess.run(
            [*command, *values],
            env={**environment, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            stdout=subprocess.PIPE,
            check=True,
        )
        return {value.partition(" ")[0]: raised for value, raised in json.loads(run.stdout.splitlines()[-1]).items()}

    with ThreadPoolExecutor() as pool:
        by_litellm = pool.submit(litellms)
        by_openai = pool.submit(all_asked, "openai", openais)
        by_anthropic = pool.submit(all_asked, "anthropic", anthropics)
        return {
            "litellm": by_litellm.result(),
            "openai": by_openai.result(),
            "anthropic": by_anthropic.result(),
        }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("client", ["openai", "anthropic", "litellm"])
def test_a_refusal_raises_what_the_client_has_for_it_and_is_repeated_where_that_helps(server, asked, client, name):
    _, provoking = server
    reason, status = NAMES[name]
    expected, raised = RAISED[status], asked[client][name]
    if client == "litellm":
        assert raised == [expected.litellm, status]
    else:
        assert (type(raised), raised.status_code) == (getattr(expected, client), status)
    answers = provoking.seen[f"{name} {client}"]
    assert [answered for answered, _ in answers] == [status] * (2 if expected.is_retried else 1)
    if expected.is_retried and reason in ASKED_AGAIN_LATER:
        assert all(int(headers["retry-after"]) >= 1 for _, headers in answers)


@pytest.mark.parametrize("name", NAMES)
def test_each_client_finds_the_error_where_its_api_has_it(asked, name):
    _, status = NAMES[name]
    of_openai, of_anthropic = asked["openai"][name], asked["anthropic"][name]
    assert of_openai.body["message"]
    assert (of_openai.code, of_openai.type) == (str(status), of_openai.body["type"])
    assert set(of_anthropic.body) == {"type", "error"}
    assert of_anthropic.body["type"] == "error"
    assert of_anthropic.body["error"]["type"].endswith("_error") or status == 413


MESSAGES = [{"role": "user", "content": "hi"}]
ASK_FOR_STREAM = {
    "/v1/chat/completions": lambda client: client.chat.completions.create(
        model="m", messages=MESSAGES, n=3, stream=True
    ),
    "/v1/completions": lambda client: client.completions.create(model="m", prompt=["a", "b", "c"], stream=True),
    "/v1/responses": lambda client: client.responses.create(model="m", input="a", stream=True),
    "/v1/messages": lambda client: client.messages.create(model="m", max_tokens=1, messages=MESSAGES, stream=True),
}


def client_for(path: str, url: str) -> openai.OpenAI | anthropic.Anthropic:
    if path == "/v1/messages":
        return anthropic.Anthropic(base_url=url, auth_token="acme-key")
    return openai.OpenAI(base_url=f"{url}/v1", api_key="acme-key")


def read_stream(path: str, url: str, pieces: list[Any]) -> None:
    """Requests a stream with the client of the route's API, and appends what it reads to ``pieces``."""
    with client_for(path, url) as client:
        for piece in ASK_FOR_STREAM[path](client):
            pieces.append(piece)


@pytest.fixture
def streaming(folder) -> Iterator[str]:
    with serving(frontend(folder, refusing(3))) as url:
        yield url


@pytest.mark.parametrize("path", PIECES)
def test_a_stream_of_several_answers_that_is_refused_in_its_midst_ends_with_one_error(streaming, path):
    body = {"model": "m", "prompt": ["a", "b", "c"], "messages": MESSAGES, "input": "a", "stream": True}
    answer = httpx.post(streaming + path, json=body, headers={"authorization": "Bearer acme-key"})
    pieces = b"".join(PIECES[path](choice) for choice in range(3)).decode()
    assert answer.text.startswith(pieces)
    error, *end = answer.text.removeprefix(pieces).split("\n\n")
    if path == "/v1/messages":
        assert (end, error.partition("\n")[0]) == ([""], "event: error")
    else:
        assert end == ["data: [DONE]", ""]
    assert json.loads(error.partition("data: ")[2])["error"]["message"] == MESSAGE


@pytest.mark.parametrize("path", PIECES)
def test_clients_raise_the_error_with_which_a_stream_of_several_answers_ends(streaming, path):
    """The status of a stream is 200, so clients can't raise their exception for another status."""
    pieces: list[Any] = []
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        read_stream(path, streaming, pieces)
    error = raised.value
    assert len(pieces) == 3
    if isinstance(error, anthropic.APIError):
        assert type(error) is anthropic.APIStatusError
        assert error.body["error"]["type"] == "overloaded_error"
    else:
        assert (type(error), str(error.code)) == (openai.APIError, "503")
    assert MESSAGE in str(error)


def test_each_reason_is_provoked():
    assert {reason for reason, _ in PROVOCATIONS} | UNANSWERED == set(get_args(Reason))


def test_each_status_with_which_a_reason_is_written_down_is_provoked():
    """A refusal that is added to the source without a provocation makes this fail."""
    written = {("engine", status) for status in ENGINE_STATUSES.values()}
    for path in sorted((Path(tenantzone_runtime.__file__).parent).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                written |= _written(node.func.id, node.args)
    assert written <= set(PROVOCATIONS) | {("websocket", 403)}
    assert len(written) > 20, "they are found"


def _written(function: str, arguments: list[ast.expr]) -> set[tuple[str, int]]:
    """The reason and the status of a refusal, if both are literals where it is made."""
    constants = [argument.value if isinstance(argument, ast.Constant) else None for argument in arguments]
    match function, constants:
        case "Refusal" | "_refusing", [int(status), str(reason), *_]:
            return {(reason, status)}
        case "unauthorized", [str(reason), *_]:
            return {(reason, 401)}
    return set()
