"""A real engine over HTTP, with the OpenAI client that users have."""

import itertools
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_contract.zone_config.zone_terms import Idle, QueueBounds, SeatShare
from tenantzone_runtime.metrics import families
from tests.engine.real_engine import API_PORT

pytestmark = pytest.mark.engine

_numbers = itertools.count()


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def new_prompt(blocks=20):
    """A prompt that was never sent before: one byte is one token, 32 tokens are a block."""
    return (f"Story {next(_numbers)}: " + "once upon a time " * blocks * 2)[: blocks * 32 + 1]


def cached_tokens(client, prompt, **arguments):
    answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=1, temperature=0, **arguments)
    return answer.usage.prompt_tokens_details.cached_tokens


def flood(client, requests=25, blocks=30):
    with ThreadPoolExecutor(4) as at_once:
        list(at_once.map(lambda _: cached_tokens(client, new_prompt(blocks)), range(requests)))


def metric(engine, name, **labels):
    found = metric_or_none(engine, name, **labels)
    assert found is not None, f"no metric {name} with {labels}"
    return found


def metric_or_none(engine, name, **labels):
    """The value in a scrape; None: no such series, as for labels without counts."""
    for family in text_string_to_metric_families(engine.metrics()):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


def test_before_any_config_it_is_stock(engine):
    first, second = engine.cached_tokens_before_any_config
    assert (first, second > 0) == (0, True)


def test_a_prefix_is_found_by_its_own_tenant_only(engine):
    engine.declare(zone("acme"), zone("burst"))
    acme, burst, prompt = engine.client("acme"), engine.client("burst"), new_prompt()
    assert cached_tokens(acme, prompt) == 0
    assert cached_tokens(burst, prompt) == 0
    assert cached_tokens(acme, prompt) == 640
    assert cached_tokens(burst, prompt) == 640


def test_chat_and_streams_are_bound_as_well(engine):
    engine.declare(zone("acme"), zone("burst"))
    messages = [{"role": "user", "content": new_prompt()}]

    def ask(tenant):
        stream = engine.client(tenant).chat.completions.create(
            model="tiny", messages=messages, max_tokens=4, stream=True, stream_options={"include_usage": True}
        )
        return [chunk for chunk in stream if chunk.usage][-1].usage.prompt_tokens_details.cached_tokens

    assert [ask("acme") > 0, ask("burst") > 0, ask("acme") > 0] == [False, False, True]


def test_a_reservation_survives_a_flood(engine):
    engine.declare(zone("acme", reserved="40%"), zone("burst", limit="60%"))
    acme, prompt = engine.client("acme"), new_prompt(80)
    cached_tokens(acme, prompt)
    before = sum(engine.zone("burst").evictions.values())
    flood(engine.client("burst"))
    evicted = sum(engine.zone("burst").evictions.values()) - before
    assert evicted > 255, "the flood turned the pool over"
    assert cached_tokens(acme, prompt) == 80 * 32


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"cache_salt": "acme"}, id="a salt"),
        pytest.param({"vllm_xargs": {"tenantzone_seal": "1.YWNtZQ==.0.0.00"}}, id="a forged seal"),
        pytest.param({"user": "acme", "tenant": "acme", "zone": "acme"}, id="other people's names"),
    ],
)
def test_nothing_in_the_body_changes_the_zone(engine, body):
    engine.declare(zone("acme"), zone("burst"))
    prompt = new_prompt()
    cached_tokens(engine.client("acme"), prompt)
    held = engine.zone("acme").held
    assert cached_tokens(engine.client("burst"), prompt, extra_body=body) == 0
    assert engine.zone("acme").held == held


def test_a_request_id_that_a_client_chooses_reaches_no_other_request(engine):
    """Neither its own tenant's nor another's, by header or by field: no client gets or ends another's answer."""
    engine.declare(zone("acme"), zone("burst"))
    extra = {"ignore_eos": True, "request_id": "the-same"}

    def ask(tenant, tokens):
        return engine.client(tenant).completions.create(
            model="tiny",
            prompt="hello",
            max_tokens=tokens,
            temperature=0,
            extra_headers={"X-Request-Id": "the-same"},
            extra_body=extra,
            stream=True,
            stream_options={"include_usage": True},
        )

    def read(stream):
        """Returns the text and its number of tokens: a chunk has several if the client is slower than the engine."""
        chunks = list(stream)
        return "".join(chunk.choices[0].text for chunk in chunks[:-1]), chunks[-1].usage.completion_tokens

    undisturbed = read(ask("acme", 2000))
    assert undisturbed[1] == 2000
    stream = ask("acme", 2000)
    begun = next(stream).choices[0].text
    for tenant in ("burst", "acme", "burst", "acme"):
        aborted = ask(tenant, 1000)
        next(aborted)
        aborted.close()
        assert read(ask(tenant, 3))[1] == 3
    rest, tokens = read(stream)
    assert (begun + rest, tokens) == undisturbed


def test_a_wrong_key_and_a_tenant_without_a_zone_are_refused(engine):
    engine.declare(zone("acme"))
    with pytest.raises(openai.AuthenticationError):
        cached_tokens(engine.client("unknown"), "hello")
    with pytest.raises(openai.PermissionDeniedError, match="stranger"):
        cached_tokens(engine.client("stranger"), "hello")


def test_a_config_that_the_engine_refuses_moves_the_frontend_no_more_than_the_engine(engine):
    engine.declare(zone("acme", reserved="40%"))
    acme, prompt = engine.client("acme"), new_prompt()
    cached_tokens(acme, prompt)
    engine.write(dump_config(engine.config(zone("burst", eviction_policy="Unheard"))))
    engine.wait(lambda: engine.report().config.rejected is not None, "the file is refused")
    for _ in range(20):  # Long enough for the frontend to look twice.
        assert cached_tokens(acme, prompt) == 640
    with pytest.raises(openai.PermissionDeniedError, match="has no zone"):
        cached_tokens(engine.client("burst"), "hello")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "PROMPT"}),
        ("/v1/completions", {"prompt": "PROMPT", "n": 3}),
        ("/v1/completions", {"prompt": ["PROMPT", "PROMPT"]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "PROMPT"}], "n": 2}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "PROMPT"}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": "PROMPT"}]}),
    ],
)
def test_what_the_scheduler_refuses_is_the_clients_mistake(engine, path, body, stream):
    engine.declare(zone("acme", limit=4), zone("burst"))
    logged = len(engine.log.read_text())
    text = json.dumps({**body, "model": "tiny", "max_tokens": 1, "stream": stream}).replace("PROMPT", new_prompt(6))
    before = metric(engine, "tenantzone_engine_refused_requests_total", reason="too_long")
    headers = {"x-api-key": "key-of-acme", "content-type": "application/json"}
    answer = httpx.post(f"http://{engine.address}:{API_PORT}{path}", content=text, headers=headers, timeout=60)
    assert answer.status_code == 400
    error = answer.json()["error"]
    expected = "invalid_request_error" if path == "/v1/messages" else "BadRequestError"
    assert (error.get("code", 400), error["type"]) == (400, expected)
    assert "does not fit into the limit of zone acme (4 blocks" in error["message"]
    engine.wait(
        lambda: metric(engine, "tenantzone_engine_refused_requests_total", reason="too_long") > before, "it is counted"
    )
    log = engine.log.read_text()[logged:]
    assert "ERROR" not in log
    assert "Traceback" not in log
    assert engine.client("burst").completions.create(model="tiny", prompt="hello", max_tokens=1).choices


ONE_RUNS_AND_ONE_WAITS = zone("acme", seats=SeatShare(limit=1), queue=QueueBounds(requests=1))


@contextmanager
def running(client):
    """A request is being answered, until the end of the block."""
    answer = client.completions.create(
        model="tiny", prompt="hi", max_tokens=3000, stream=True, extra_body={"ignore_eos": True}
    )
    with closing(answer):
        next(answer)
        yield


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_of_a_zone_with_a_full_queue_learns_when_to_come_again(engine, stream):
    engine.declare(ONE_RUNS_AND_ONE_WAITS, zone("burst"))
    body = {"model": "tiny", "prompt": [new_prompt(60), new_prompt(60)], "max_tokens": 1, "stream": stream}
    before = metric_or_none(engine, "tenantzone_zone_requests_total", tenant="acme", outcome="queue_full") or 0
    with running(engine.client("acme")):
        answer = httpx.post(
            f"http://{engine.address}:{API_PORT}/v1/completions",
            json=body,
            headers={"authorization": "Bearer key-of-acme"},
            timeout=60,
        )
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (429, "RateLimitError")
    assert error["message"].startswith("the queue of zone acme is full: 1 requests with 1921 prompt tokens wait")
    engine.wait(
        lambda: (
            (metric_or_none(engine, "tenantzone_zone_requests_total", tenant="acme", outcome="queue_full") or 0)
            > before
        ),
        "it is counted with its zone",
    )
    assert cached_tokens(engine.client("burst"), new_prompt()) == 0
    assert cached_tokens(engine.client("acme"), new_prompt()) == 0, "as soon as there is room"


STREAMS = {
    "completions": lambda asking: asking.completions.create(model="tiny", prompt="hi", max_tokens=4, stream=True),
    "chat": lambda asking: asking.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=4, stream=True
    ),
    "responses": lambda asking: asking.responses.create(
        model="tiny", input="hi", max_output_tokens=4, stream=True, extra_body={"ignore_eos": True}
    ),
}


@pytest.mark.parametrize("route", STREAMS)
def test_no_stream_begins_before_its_request_has_a_place_in_the_queue(engine, route):
    engine.declare(ONE_RUNS_AND_ONE_WAITS)
    acme = engine.client("acme")
    with ThreadPoolExecutor(1) as waiting:
        with running(acme):
            next_one = waiting.submit(lambda: list(STREAMS[route](acme)))
            engine.wait(lambda: engine.zone("acme").waiting_requests == 1, "the next request has its place")
            with pytest.raises(openai.RateLimitError) as refused:
                STREAMS[route](acme)
            assert 1 <= int(refused.value.response.headers["retry-after"]) <= 60
            assert not next_one.done()
        assert next_one.result()


@pytest.mark.parametrize("form", [{"regex": "("}, {"grammar": "root ::= ("}], ids=str)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("path", "asked"), [("chat/completions", "messages"), ("responses", "input")])
def test_a_form_that_is_no_grammar_is_refused_before_a_stream_begins(engine, path, asked, form, stream):
    engine.declare(zone("acme"))
    body = {"model": "tiny", asked: [{"role": "user", "content": "hi"}], "structured_outputs": form, "stream": stream}
    answer = httpx.post(
        f"http://{engine.address}:{API_PORT}/v1/{path}",
        json=body,
        headers={"authorization": "Bearer key-of-acme"},
        timeout=60,
    )
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestError")


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "under load"])
def test_what_is_refused_is_never_answered_whatever_form_it_asks_for(engine, is_busy):
    engine.declare(zone("acme", limit=4), zone("burst"))
    body = {
        "model": "tiny",
        "prompt": new_prompt(6),
        "max_tokens": 1,
        "structured_outputs": {"choice": ["yes", "no"]},
    }
    address = f"http://{engine.address}:{API_PORT}/v1/completions"
    headers = {"authorization": "Bearer key-of-acme"}
    used = engine.zone("acme").prompt_tokens
    all_asked = threading.Event()

    def load():
        while is_busy and not all_asked.is_set():
            cached_tokens(engine.client("burst"), new_prompt(10))

    with ThreadPoolExecutor(1) as at_once, httpx.Client(timeout=60) as client:
        loading = at_once.submit(load)
        try:
            answers = [client.post(address, json=body, headers=headers).status_code for _ in range(15)]
        finally:
            all_asked.set()
        loading.result()
    assert answers == [400] * 15
    assert engine.zone("acme").prompt_tokens == used


def test_a_form_that_is_no_grammar_is_the_clients_mistake_and_one_that_is_is_kept(engine):
    engine.declare(zone("acme"))
    acme = engine.client("acme")

    def ask(**form):
        return acme.completions.create(
            model="tiny", prompt="hello", max_tokens=9, extra_body={"structured_outputs": form}
        )

    with pytest.raises(openai.BadRequestError, match="regex"):
        ask(regex="(")
    with pytest.raises(openai.BadRequestError, match="'structured_outputs' has too many repetitions"):
        ask(json={"type": "string", "pattern": "^a{1,5000}$"})
    assert ask(choice=["yes", "no"]).choices[0].text in ("yes", "no")
    assert ask(regex="[0-9]{3}").choices[0].text.isdecimal()


LEADING_NOWHERE = {
    "a schema that is itself": {"json": {"$ref": "#"}},
    "one of two that are each other": {
        "json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    },
    "a rule that is itself": {"grammar": "root ::= root"},
    "a rule that begins with itself": {"grammar": 'root ::= root "a"'},
    "two rules that begin with each other": {"grammar": 'root ::= a\na ::= b "x"\nb ::= a "z"'},
    "nowhere after the first token": {"grammar": 'root ::= "b" x\nx ::= x'},
    "a pattern that nothing fits": {"json": {"type": "string", "pattern": "^[^\\s\\S]$"}},
}


@pytest.mark.parametrize("form", LEADING_NOWHERE.values(), ids=LEADING_NOWHERE.keys())
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_form_that_leads_nowhere_is_the_clients_mistake(engine, form, stream):
    engine.declare(zone("acme"))
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 9, "structured_outputs": form, "stream": stream}
    answer = httpx.post(
        f"http://{engine.address}:8000/v1/completions",
        json=body,
        headers={"authorization": "Bearer key-of-acme"},
        timeout=60,
    )
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    error = json.loads(events[-1] if answer.status_code == 200 else answer.text)["error"]
    assert (error["type"], error["code"]) == ("BadRequestError", 400)
    assert "structured output" in error["message"] or "grammar" in error["message"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"])
@pytest.mark.parametrize(
    "messages", [[], [{"role": "user", "content": "x" * 100_000}]], ids=["no message", "a long message"]
)
def test_a_conversation_that_does_not_fit_the_model_is_the_clients_mistake_and_leaves_no_traceback(
    engine, path, messages
):
    engine.declare(zone("acme"))
    logged = len(engine.log.read_text())
    answer = httpx.post(
        f"http://{engine.address}:{API_PORT}{path}",
        json={"model": "tiny", "messages": messages, "max_tokens": 1},
        headers={"x-api-key": "key-of-acme"},
        timeout=60,
    )
    assert answer.status_code == 400
    assert "Traceback" not in engine.log.read_text()[logged:]


def test_a_rule_that_begins_with_itself_and_ends_is_written(engine):
    engine.declare(zone("acme"))
    answer = engine.client("acme").completions.create(
        model="tiny",
        prompt="hello",
        max_tokens=5,
        extra_body={"structured_outputs": {"grammar": 'root ::= root "a" | "b"'}},
    )
    assert answer.choices[0].text.startswith("ba"[: len(answer.choices[0].text)])


@pytest.mark.parametrize(
    ("asked", "param"), [({"prompt_logprobs": 20}, "prompt_logprobs"), ({"echo": True, "logprobs": 20}, "echo")]
)
def test_log_probabilities_of_prompts_are_bounded_for_all_prompts_of_a_body(engine, asked, param):
    engine.declare(zone("acme"))
    prompts = [[number + 1] * 800 for number in range(2)]
    asked = {"model": "tiny", "max_tokens": 1, **asked}
    with httpx.Client(headers={"authorization": "Bearer key-of-acme"}, timeout=120) as client:
        address = f"http://{engine.address}:8000/v1/completions"
        refused = client.post(address, json={**asked, "prompt": prompts})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        served = client.post(address, json={**asked, "prompt": prompts[0][:200]})
    assert served.status_code == 200
    (choice,) = served.json()["choices"]
    reported = choice["prompt_logprobs"] if param == "prompt_logprobs" else choice["logprobs"]["top_logprobs"]
    assert len(reported) >= 200
    assert len(reported[1]) > 1


def test_an_answer_whose_length_the_route_does_not_read_ends_before_its_log_probabilities_are_too_many(engine):
    engine.declare(zone("acme"))
    asked = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "n": 64,
        "logprobs": True,
        "top_logprobs": 20,
        "max_output_tokens": 1,  # of another route
        "ignore_eos": True,
    }
    with httpx.Client(headers={"authorization": "Bearer key-of-acme"}, timeout=120) as client:
        answer = client.post(f"http://{engine.address}:8000/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    choices = answer.json()["choices"]
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    assert [len(choice["logprobs"]["content"]) for choice in choices] == [2**17 // (64 * 21)] * 64


def test_a_key_that_was_just_added_works_without_a_restart(engine):
    engine.declare(zone("late"))
    with pytest.raises(openai.AuthenticationError):
        cached_tokens(engine.client("late"), "hello")
    engine.add_keys("late")

    def accepted():
        try:
            return cached_tokens(engine.client("late"), "hello") == 0
        except openai.AuthenticationError:
            return False

    engine.wait(accepted, "the new key is accepted")


def _future(text):
    return json.dumps({**json.loads(text), "schemaVersion": 99})


def _edited(text):
    content = json.loads(text)
    content["zones"][0]["priority"] = 7
    return json.dumps(content)


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        pytest.param(lambda _: "", "empty", id="empty"),
        pytest.param(lambda text: text[: len(text) // 2], "not valid JSON", id="cut off"),
        pytest.param(_future, "schemaVersion: 99", id="of a later version"),
        pytest.param(_edited, "hash", id="edited by hand"),
    ],
)
def test_a_broken_file_is_refused_and_the_last_good_one_stays(engine, break_it, complaint):
    good = engine.declare(zone("acme", reserved="40%"), zone("burst", limit="60%"))
    acme, prompt = engine.client("acme"), new_prompt()
    cached_tokens(acme, prompt)
    engine.write(break_it(dump_config(engine.config(zone("burst")))))
    engine.wait(lambda: engine.report().config.rejected is not None, "the file is refused")
    status = engine.report().config
    assert complaint in status.rejected.error
    assert status.applied_hash == good.hash
    assert metric(engine, "tenantzone_config_last_reload_successful") == 0
    assert cached_tokens(acme, prompt) == 640
    engine.declare(zone("acme"))
    assert engine.report().config.rejected is None
    assert metric(engine, "tenantzone_config_last_reload_successful") == 1


def test_a_config_that_the_engine_is_too_small_for_is_enforced_as_far_as_it_fits(engine):
    engine.declare(zone("acme", reserved=200), zone("burst", reserved=100), zone("calm", reserved=55))
    held = {name: engine.zone(name) for name in ("acme", "burst", "calm")}
    assert {name: (found.reserved, found.awaited_reservation) for name, found in held.items()} == {
        "acme": (200, 0),
        "burst": (0, 100),
        "calm": (55, 0),
    }
    assert cached_tokens(engine.client("burst"), new_prompt()) == 0


def test_a_file_that_goes_missing_changes_nothing(engine):
    good = engine.declare(zone("acme"))
    engine.config_file.unlink()
    engine.wait(lambda: engine.report().config.rejected is not None, "it is noticed")
    assert "missing" in engine.report().config.rejected.error
    assert engine.report().config.applied_hash == good.hash
    assert cached_tokens(engine.client("acme"), new_prompt()) == 0


def test_a_removed_zone_is_refused_and_leaves_no_block(engine):
    engine.declare(zone("acme"), zone("burst"))
    prompt = new_prompt()
    cached_tokens(engine.client("burst"), prompt)
    engine.declare(zone("acme"))
    assert [each.tenant for each in engine.report().zones] == ["acme"]
    with pytest.raises(openai.PermissionDeniedError):
        cached_tokens(engine.client("burst"), prompt)
    engine.declare(zone("acme"), zone("burst"))
    assert cached_tokens(engine.client("burst"), prompt) == 0


def test_an_idle_zone_is_evicted_without_any_request_coming(engine):
    engine.declare(zone("acme"))
    cached_tokens(engine.client("acme"), new_prompt())
    assert engine.zone("acme").state == "Idle"
    engine.declare(zone("acme", idle=Idle(after_seconds=0, evict_after_seconds=0)))
    engine.wait(lambda: engine.zone("acme").state == "Evicted", "the zone is evicted")
    assert engine.zone("acme").held == 0


RELOADS = 20


@pytest.mark.shows("hot reload under load")
def test_reloads_under_load_change_no_answer_and_lose_no_block(engine):
    engine.declare(zone("acme"), zone("burst"))
    prompts = [new_prompt(8) for _ in range(6)]
    all_reloaded = threading.Event()

    def answers(tenant):
        client = engine.client(tenant)
        return [
            client.completions.create(model="tiny", prompt=prompt, max_tokens=60, temperature=0).choices[0].text
            for prompt in prompts
        ]

    def answers_until_all_reloaded(tenant):
        rounds = [answers(tenant)]
        while not all_reloaded.is_set():
            rounds.append(answers(tenant))
        return rounds

    undisturbed = answers("acme")
    with ThreadPoolExecutor(2) as at_once:
        disturbed = [at_once.submit(answers_until_all_reloaded, tenant) for tenant in ("acme", "burst")]
        try:
            for number in range(RELOADS):
                engine.declare(zone("acme", reserved=20 + number), zone("burst", limit=60 + 3 * number))
        finally:
            all_reloaded.set()
    for tenant in disturbed:
        assert all(round == undisturbed for round in tenant.result())
    engine.declare()
    assert engine.report().free_blocks == 255, "all blocks are free once no zone is left"


def test_metrics_say_what_the_report_says(engine):
    engine.declare()
    engine.declare(zone("acme", reserved=50))
    cached_tokens(engine.client("acme"), new_prompt())
    acme = engine.zone("acme")
    assert metric(engine, "tenantzone_zone_blocks_reserved", tenant="acme") == 50
    assert metric(engine, "tenantzone_zone_blocks_cached", tenant="acme") == acme.cached == 20
    assert metric(engine, "tenantzone_zone_prompt_tokens_total", tenant="acme") == acme.prompt_tokens
    assert metric(engine, "tenantzone_zone_state", tenant="acme", state="Idle") == 1
    assert metric(engine, "tenantzone_engine_info", pool="pool", pool_namespace="test") == 1


def test_a_request_is_counted_with_how_long_it_waited_and_how_it_ended(engine):
    engine.add_keys("measured")
    engine.declare(zone("measured"))
    cached_tokens(engine.client("measured"), new_prompt())
    assert metric(engine, "tenantzone_zone_requests_total", tenant="measured", outcome="length") == 1
    assert metric(engine, "tenantzone_zone_queue_time_seconds_count", tenant="measured") == 1
    assert metric(engine, "tenantzone_zone_time_to_first_token_seconds_count", tenant="measured") == 1
    waited = metric(engine, "tenantzone_zone_queue_time_seconds_sum", tenant="measured")
    assert 0 < waited < metric(engine, "tenantzone_zone_time_to_first_token_seconds_sum", tenant="measured")
    engine.declare()
    assert "measured" not in engine.metrics()


def test_every_metric_that_is_documented_is_there_and_no_other(engine):
    engine.declare(zone("acme"))
    reported = {family.name for family in text_string_to_metric_families(engine.metrics())}
    assert reported == {family.name.removesuffix("_total") for family in families("full")}


def journal(*arguments):
    command = [sys.executable, "-m", "tenantzone_runtime", "journal", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_journal_holds_and_a_bill_is_made_of_it_alone(engine):
    engine.add_keys("payer")
    engine.declare(zone("payer"))
    prompt = new_prompt()
    cached_tokens(engine.client("payer"), prompt)
    cached_tokens(engine.client("payer"), prompt)
    used = engine.zone("payer")
    engine.declare()

    def billed():
        bill = json.loads(journal("bill", "--json", engine.journal_folder))
        return {entry["zone"]: entry for entry in bill["zones"]}.get("payer")

    engine.wait(billed, "what the removed zone has used is in the journal")
    entry = billed()
    assert entry["promptTokens"] == used.prompt_tokens == 2 * 641
    assert entry["cachedTokens"] == 640
    assert entry["generationTokens"] == 2
    assert entry["blockSeconds"] >= used.block_seconds > 0
    journal("verify", engine.journal_folder)
    assert "Story" not in "".join(file.read_text() for file in engine.journal_folder.iterdir())
