"""An engine behind a gateway that leaves its path in place, and one whose chat template raises."""

import httpx
import pytest

from tests.engine.features.asking import BLOCK_TOKENS, cached_tokens, text, zone
from tests.engine.features.serving import RAISING, ROOT_PATH
from tests.engine.real_engine import API_PORT, RealEngine
from tests.frontend.harness import error_of

ONE_TOKEN = {"max_tokens": 1, "max_output_tokens": 1}


@pytest.fixture(autouse=True, scope="module")
def _zones(engine: RealEngine):
    engine.declare(zone("acme"), zone("burst"))


def ask(engine: RealEngine, path: str, body: dict, key: str | None = "key-of-acme") -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.post(f"http://{engine.address}:{API_PORT}{path}", json=body, headers=headers, timeout=60)


class TestRootPath:
    """``--root-path``: a request is served the same with that path as its prefix and without."""

    def test_a_tenant_finds_its_own_prefix_on_both_paths_and_no_other_does(self, engine):
        prompt = text(4)
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}

        def cached(key):
            return ask(engine, f"{ROOT_PATH}/v1/completions", body, key).json()["usage"]["prompt_tokens_details"]

        assert cached("key-of-acme")["cached_tokens"] == 0
        assert cached("key-of-burst")["cached_tokens"] == 0
        assert cached("key-of-acme")["cached_tokens"] == 3 * BLOCK_TOKENS
        assert cached_tokens(engine.client("acme"), prompt) == 3 * BLOCK_TOKENS

    @pytest.mark.parametrize(
        ("path", "key", "status"),
        [
            ("/v1/completions", None, 401),
            ("/v1/messages", None, 401),
            ("/reset_prefix_cache", "key-of-acme", 403),
            ("/gateway/v1/completions", "key-of-acme", 404),
            ("/nothing", "key-of-acme", 404),
        ],
    )
    def test_what_is_closed_is_closed_on_both_paths(self, engine, path, key, status):
        for prefix in (ROOT_PATH, "") if path.count("gateway") == 0 else (ROOT_PATH,):
            answer = ask(engine, prefix + path, {"model": "tiny", "prompt": "a"}, key)
            assert answer.status_code == status
            error_of(answer)

    def test_probes_are_open_on_both_paths(self, engine):
        for prefix in (ROOT_PATH, ""):
            assert httpx.get(f"http://{engine.address}:{API_PORT}{prefix}/health", timeout=60).status_code == 200


@pytest.mark.parametrize("message", RAISING)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_a_conversation_at_which_the_chat_template_raises_is_refused_and_the_next_one_is_served(
    engine, path, stream, message
):
    def body(content):
        messages = [{"role": "user", "content": content}]
        return {"model": "tiny", "messages": messages, "input": messages, **ONE_TOKEN, "stream": stream}

    refused = ask(engine, path, body(message))
    assert refused.status_code == 400
    assert "Traceback" not in refused.text
    assert "site-packages" not in refused.text
    assert ask(engine, path, body("hello")).status_code == 200
    assert engine.zone("acme").in_use == 0


@pytest.mark.parametrize("message", RAISING)
@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens"])
def test_so_is_one_that_is_to_be_counted_only(engine, path, message):
    body = {"model": "tiny", "messages": [{"role": "user", "content": message}]}
    assert ask(engine, path, body).status_code == 400
