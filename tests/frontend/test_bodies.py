"""What tenants may send: bounded in bytes, in values, in time, per tenant and in all."""

import asyncio
import json
import sys
import threading
from dataclasses import replace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.frontend.body import limits, shape
from tenantzone_runtime.frontend.body.shape import check_texts
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.routes import ROUTES, Access
from tenantzone_runtime.settings import Bounds
from tests.frontend.harness import (
    PROMPT,
    body_seen,
    call,
    echo,
    error_of,
    eventually,
    frontend,
    give_keys,
    give_zones,
    serving,
    settings,
    tenant_seen,
)

any_text = st.text(st.characters(exclude_categories=()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)
"""Values of JSON, including halves of surrogate pairs in texts and names."""

TEXT = Bounds().max_text_bytes
TAKING = [route for route in ROUTES if route.method == "POST" and route.access in (Access.KEYED, Access.SEALED)]


def bounded(folder, app=echo, **bounds: int) -> TenantMiddleware:
    return TenantMiddleware(app, replace(settings(folder), bounds=replace(Bounds(), **bounds)))


def messages(image: str, text: str = "what is this?") -> list[dict]:
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
    return [{"role": "user", "content": parts}]


class TestSize:
    @pytest.mark.parametrize("route", TAKING, ids=lambda route: route.path)
    def test_text_is_bounded_on_each_route(self, folder, route):
        fits, exceeds = ({"prompt": "a" * size} for size in (TEXT - 100, TEXT))
        made = frontend(folder)
        assert call(made, path=route.path, body=fits, key="acme-key").status_code == 200
        assert error_of(call(made, path=route.path, body=exceeds, key="acme-key"))["code"] == 413

    @pytest.mark.parametrize("route", TAKING, ids=lambda route: route.path)
    def test_a_body_declared_too_large_is_refused_unread(self, folder, route):
        headers = {"content-length": str(Bounds().max_body_bytes + 1)}
        response = call(frontend(folder), path=route.path, body=PROMPT, key="acme-key", headers=headers)
        assert (error_of(response)["code"], response.headers["connection"]) == (413, "close")

    @pytest.mark.parametrize(("length", "status"), [("0" * 5000 + "9", 200), ("9" * 5000, 413)])
    def test_a_declared_length_of_thousands_of_digits_is_a_number(self, folder, length, status):
        response = call(frontend(folder), body=PROMPT, key="acme-key", headers={"content-length": length})
        assert response.status_code == status

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/chat/completions", {"messages": messages("data:" + "a" * TEXT)}),
            ("/v1/chat/completions/batch", {"messages": [messages("data:" + "a" * TEXT)]}),
            (
                "/v1/responses",
                {"input": [{"content": [{"type": "input_image", "image_url": "data:" + "a" * TEXT}]}]},
            ),
            (
                "/v1/messages",
                {
                    "messages": [
                        {
                            "content": [
                                {
                                    "type": "tool_result",
                                    "content": [{"type": "image", "source": {"type": "base64", "data": "a" * TEXT}}],
                                }
                            ]
                        }
                    ]
                },
            ),
        ],
    )
    def test_images_may_be_larger(self, folder, path, body):
        assert tenant_seen(call(frontend(folder), path=path, body=body, key="acme-key")) == "acme"
        small = bounded(folder, max_body_bytes=TEXT)
        assert error_of(call(small, path=path, body=body, key="acme-key"))["code"] == 413

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param({"messages": messages("data:", "a" * TEXT)}, id="text next to an image"),
            pytest.param({"messages": [{"role": "user", "content": "a" * TEXT}]}, id="plain content"),
            pytest.param({"tools": messages("a" * TEXT)}, id="a tool"),
            pytest.param(
                {"messages": [{"tool_calls": [{"type": "image", "data": "a" * TEXT}]}]}, id="a tool's arguments"
            ),
            pytest.param(
                {"messages": [{"content": [{"type": "tool_use", "input": {"type": "image", "data": "a" * TEXT}}]}]},
                id="a tool's input",
            ),
            pytest.param({"a" * TEXT: 1}, id="a name"),
        ],
    )
    def test_what_is_no_image_may_not(self, folder, body):
        error = error_of(call(frontend(folder), path="/v1/chat/completions", body=body, key="acme-key"))
        assert error["code"] == 413
        assert "besides its media" in error["message"]


class TestShape:
    @pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
    def test_too_many_values_are_refused(self, folder, path):
        body = b'{"prompt":[' + b"1," * shape.MAX_VALUES + b"1]}"
        error = error_of(call(frontend(folder), path=path, body=body, key="acme-key"))
        assert (error["code"], "values" in error["message"]) == (400, True)

    @pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
    def test_values_that_nest_too_deep_are_refused(self, folder, opening, closing):
        def status(depth: int) -> int:
            body = b'{"prompt":' + opening * depth + b"1" + closing * depth + b"}"
            return call(frontend(folder), body=body, key="acme-key").status_code

        assert status(shape.MAX_DEPTH - 1) == 200
        assert [status(depth) for depth in (shape.MAX_DEPTH, 100_000)] == [400, 400]

    def test_a_prompt_of_many_token_ids_passes(self, folder):
        prompt = {"prompt": [50_000] * 140_000}
        assert body_seen(call(frontend(folder), body=prompt, key="acme-key"))["prompt"] == prompt["prompt"]

    @pytest.mark.parametrize("name", ["structured_outputs", "response_format", "stream_options"])
    @pytest.mark.parametrize("value", [1.5, "a", [], True, False], ids=str)
    def test_what_must_be_an_object_is_named_where_it_is_none(self, folder, name, value):
        error = error_of(call(frontend(folder), body={**PROMPT, name: value}, key="acme-key"))
        assert (error["code"], error["param"], error["message"]) == (400, name, f"'{name}' must be an object")
        assert call(frontend(folder), body={**PROMPT, name: None}, key="acme-key").is_success

    @pytest.mark.parametrize("name", ["stop", "bad_words", "request_id", "session_id", "vllm_xargs", "prompt"])
    @pytest.mark.parametrize(
        "text",
        [rb'"\ud800"', rb'["a", "\uDFFF"]', rb'{"a": ["\ud83d"]}', rb'{"\udc00": 1}', b'"\xed\xa0\x80"'],
        ids=repr,
    )
    def test_half_of_a_surrogate_pair_is_refused_with_its_field(self, folder, name, text):
        body = b'{"user": "\xc3\xa9", "%s": %s}' % (name.encode(), text)
        error = error_of(call(frontend(folder), body=body, key="acme-key"))
        assert (error["code"], error["param"]) == (400, name)

    def test_a_name_with_half_of_a_surrogate_pair_is_refused_too(self, folder):
        assert error_of(call(frontend(folder), body=rb'{"\ud800": 1}', key="acme-key"))["param"] == "?"

    def test_many_names_cost_little_more_than_to_read_them(self):
        raw = b'{"prompt":"\\ud83d\\ude00",' + b",".join(b'"%x":1' % number for number in range(90_000)) + b"}"
        body = json.loads(raw)
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            check_texts(raw, body)
        finally:
            sys.setprofile(None)
        # Each name costs a few calls in C, and not its own encoder.
        assert calls < 5 * 90_000

    @given(json_values)
    def test_a_text_is_refused_if_and_only_if_it_has_no_bytes(self, value):
        raw = json.dumps({"é": value}).encode()
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            with pytest.raises(Refusal):
                check_texts(raw, json.loads(raw))
        else:
            check_texts(raw, json.loads(raw))

    @pytest.mark.parametrize("text", [rb'"\ud83d\ude00"', rb'"\\ud800"', '"😀"'.encode(), rb'"\u00e9"'], ids=repr)
    def test_whole_characters_pass(self, folder, text):
        assert call(frontend(folder), body=b'{"prompt": %s}' % text, key="acme-key").is_success

    @pytest.mark.parametrize(
        ("path", "name", "conversation"),
        [
            ("/v1/chat/completions", "messages", lambda size: [{"role": "user", "content": "a"}] * size),
            ("/v1/chat/completions", "messages", lambda size: [{"content": [{"type": "text"}] * size}]),
            ("/v1/chat/completions/batch", "messages", lambda size: [[{"content": "a"}] * size]),
            ("/v1/responses", "input", lambda size: [{}] * size),
            ("/v1/responses", "previous_input_messages", lambda size: [{}] * size),
            ("/v1/messages", "system", lambda size: [{"type": "text"}] * size),
        ],
    )
    def test_a_conversation_has_an_end(self, folder, path, name, conversation):
        made = frontend(folder)
        assert call(made, path=path, body={name: conversation(shape.MAX_MESSAGES)}, key="acme-key").is_success
        error = error_of(call(made, path=path, body={name: conversation(shape.MAX_MESSAGES + 1)}, key="acme-key"))
        assert (error["code"], error["param"]) == (400, name)


class TestTime:
    async def test_a_body_that_comes_too_slowly_is_refused(self, folder, monkeypatch):
        monkeypatch.setattr(limits.read_body, "__kwdefaults__", {"seconds": 0.2})
        sent = []
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/tokenize",
            "headers": [(b"authorization", b"Bearer acme-key")],
        }

        async def drip():
            await asyncio.sleep(0.01)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message):
            sent.append(message)

        made = frontend(folder)
        await made(scope, drip, send)
        assert (sent[0]["status"], (b"connection", b"close") in sent[0]["headers"]) == (408, True)
        assert made._in_flight.size == 0

    async def test_a_body_that_keeps_coming_is_waited_for(self, monkeypatch):
        monkeypatch.setattr(limits, "MIN_BYTES_PER_SECOND", 10)
        pieces = [b"a" * 100] * 10

        async def receive():
            await asyncio.sleep(0.05)
            return {"type": "http.request", "body": pieces.pop(), "more_body": bool(pieces)}

        # Ten times 0.05 s are more than 0.2 s, and each piece of 100 bytes extends the limit by ten seconds.
        assert len(await limits.read_body(receive, None, 10_000, seconds=0.2)) == 1000


class TestHeld:
    @pytest.fixture
    def go_ahead(self):
        return threading.Event()

    @pytest.fixture
    def url(self, folder, go_ahead):
        """A server behind the frontend whose answers wait for the go-ahead."""

        async def wait(scope, receive, send):
            await asyncio.to_thread(go_ahead.wait)
            await echo(scope, receive, send)

        give_zones(folder, "acme", "burst", generation=2)
        made = bounded(folder, wait, max_tenant_requests=2, max_tenant_body_bytes=100_000, max_held_body_bytes=150_000)
        with serving(made) as url:
            try:
                self.made = made
                yield url
            finally:
                go_ahead.set()

    under_way = 0
    """Bytes of requests that wait for the go-ahead."""

    def ask(self, url: str, tenant: str, size: int = 1) -> httpx.Response:
        headers = {"x-api-key": f"{tenant}-key"}
        return httpx.post(f"{url}/v1/completions", content=self.body(size), headers=headers, timeout=60)

    def body(self, size: int) -> bytes:
        return json.dumps({"prompt": "a" * size}).encode()

    def begin(self, url: str, tenant: str, size: int = 1) -> threading.Thread:
        thread = threading.Thread(target=self.ask, args=(url, tenant, size))
        thread.start()
        self.under_way += len(self.body(size))
        self.await_held(self.under_way)
        return thread

    def await_held(self, size: int) -> None:
        # A refused client has its answer shortly before the frontend has freed the request.
        eventually(lambda: self.made._in_flight.size == size)

    def end(self, begun: list[threading.Thread], go_ahead: threading.Event) -> None:
        go_ahead.set()
        for thread in begun:
            thread.join()
        self.await_held(0)

    def test_the_requests_in_flight_of_a_tenant_are_bounded(self, url, go_ahead):
        begun = [self.begin(url, "acme") for _ in range(2)]
        refused = self.ask(url, "acme")
        assert (error_of(refused)["type"], refused.headers["retry-after"]) == ("RateLimitError", "1")
        begun.append(self.begin(url, "burst"))
        self.end(begun, go_ahead)
        assert tenant_seen(self.ask(url, "acme")) == "acme"

    def test_each_prompt_of_a_list_is_a_request_under_way(self, url, go_ahead):
        def status(prompts: int) -> int:
            body = {"prompt": ["a"] * prompts}
            headers = {"x-api-key": "acme-key"}
            return httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60).status_code

        assert status(3) == 429
        begun = [self.begin(url, "acme")]
        assert status(2) == 429
        self.end(begun, go_ahead)
        assert status(2) == 200

    def test_the_bytes_in_flight_of_a_tenant_are_bounded(self, url, go_ahead):
        begun = [self.begin(url, "acme", 60_000)]
        assert error_of(self.ask(url, "acme", 60_000))["code"] == 429
        begun.append(self.begin(url, "burst", 60_000))
        self.end(begun, go_ahead)
        assert tenant_seen(self.ask(url, "acme", 60_000)) == "acme"

    def test_the_bytes_in_flight_of_all_together_are_bounded(self, url, go_ahead):
        begun = [self.begin(url, "acme", 90_000)]
        assert error_of(self.ask(url, "burst", 90_000))["type"] == "ServiceUnavailableError"
        self.end(begun, go_ahead)
        assert tenant_seen(self.ask(url, "burst", 90_000)) == "burst"


def test_the_loop_goes_on_while_a_large_body_is_worked_on(folder, monkeypatch):
    """Parsing a body delays no other request: shown by one that is answered in the meantime."""
    may_go_on, parsing = threading.Event(), threading.Event()

    def wait(body):
        if len(body) > 100_000:
            parsing.set()
            assert may_go_on.wait(60)

    monkeypatch.setattr("tenantzone_runtime.frontend.intake.check_count", wait)
    with serving(frontend(folder)) as url:

        def ask(prompt: str) -> httpx.Response:
            content = json.dumps({"prompt": prompt})
            return httpx.post(f"{url}/v1/completions", content=content, headers={"x-api-key": "acme-key"}, timeout=60)

        answers = []
        large = threading.Thread(target=lambda: answers.append(ask("a" * 200_000)))
        large.start()
        assert parsing.wait(60)
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        assert ask("small").status_code == 200
        may_go_on.set()
        large.join()
    assert tenant_seen(answers[0]) == "acme"


class TestTurns:
    """Two workers check the bodies of all tenants, at most one body of each tenant at a time."""

    SIZE = 20_000
    """Characters of a prompt whose body is checked by a worker."""

    @pytest.fixture
    def checked(self) -> list[str]:
        """The tenants in the order in which the checks of their bodies began."""
        return []

    @pytest.fixture
    def held(self) -> set[str]:
        """The tenants whose bodies are not done until the go-ahead."""
        return set()

    @pytest.fixture
    def go_ahead(self) -> threading.Event:
        return threading.Event()

    @pytest.fixture
    def url(self, folder, monkeypatch, checked, held, go_ahead):
        give_keys(folder, acme="acme-key", burst="burst-key", calm="calm-key", dull="dull-key")
        give_zones(folder, "acme", "burst", "calm", "dull", generation=2)

        def note(body: bytes) -> None:
            tenant = json.loads(body)["prompt"].strip()
            checked.append(tenant)
            if tenant in held:
                assert go_ahead.wait(60)

        monkeypatch.setattr("tenantzone_runtime.frontend.intake.check_count", note)
        self.made = frontend(folder)
        with serving(self.made) as url:
            try:
                yield url
            finally:
                go_ahead.set()

    def ask(self, url: str, tenant: str) -> int:
        body = {"prompt": tenant + " " * self.SIZE}
        return httpx.post(
            f"{url}/v1/completions", json=body, headers={"x-api-key": f"{tenant}-key"}, timeout=60
        ).status_code

    def begin(self, url: str, tenant: str) -> threading.Thread:
        before = self.made._in_flight.size
        thread = threading.Thread(target=self.ask, args=(url, tenant))
        thread.start()
        eventually(lambda: self.made._in_flight.size > before + self.SIZE)
        return thread

    def test_no_other_tenant_waits_for_the_body_of_one(self, url, checked, held, go_ahead):
        held.add("acme")
        begun = [self.begin(url, "acme") for _ in range(5)]
        eventually(lambda: checked == ["acme"])
        assert [self.ask(url, tenant) for tenant in ("burst", "calm", "burst")] == [200, 200, 200]
        assert checked == ["acme", "burst", "calm", "burst"]
        go_ahead.set()
        for thread in begun:
            thread.join()
        assert checked.count("acme") == 5

    def test_tenants_are_served_in_turn(self, url, checked, held, go_ahead):
        held |= {"acme", "burst"}
        begun = [self.begin(url, tenant) for tenant in ("acme", "burst")]
        eventually(lambda: len(checked) == 2)
        begun += [self.begin(url, tenant) for tenant in ("acme", "burst") for _ in range(10)]
        begun += [self.begin(url, tenant) for tenant in ("calm", "dull")]
        go_ahead.set()
        for thread in begun:
            thread.join()
        # Both were there when the workers were freed, behind at most one further body of each other tenant.
        assert len(checked) == 24
        assert max(checked.index("calm"), checked.index("dull")) <= 5
