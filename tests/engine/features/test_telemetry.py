"""What a real engine logs and traces: the tenant of each request, and no secret."""

import json
import re
import secrets

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenantzone_runtime.seal import SEAL_ARGUMENT, without_seals
from tenantzone_runtime.settings import SEAL_KEY
from tests.engine.features.asking import complete, text, zone
from tests.engine.features.spans import Span, SpanReceiver
from tests.engine.real_engine import API_PORT, RealEngine
from tests.processes import descendants

TENANTS = ("acme", "burst")
FROM_C = re.compile(r"\[[A-Z]\d{4} ")
"""The beginning of a line that torch's C++ part writes, bypassing Python's logging."""
PROMPT = "the launch code is 0451"


@pytest.fixture(autouse=True)
def config(engine):
    return engine.declare(*(zone(tenant) for tenant in TENANTS))


def asked(engine: RealEngine, tenant: str, spans: SpanReceiver, **headers: str) -> tuple[Span, Span]:
    """The frontend's span and vLLM's span of a request that continues a client's trace."""
    trace_id = secrets.token_hex(16)
    headers = {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01", **headers}
    complete(engine.client(tenant), text(1), extra_headers=headers)

    def both() -> bool:
        return {"POST /v1/completions", "llm_request"} <= {span.name for span in spans.of_trace(trace_id)}

    engine.wait(both, "the spans are exported", 60)
    found = {span.name: span for span in spans.of_trace(trace_id)}
    return found["POST /v1/completions"], found["llm_request"]


def lines(engine: RealEngine) -> list[dict[str, object]]:
    whole, _, _ = engine.log.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


@pytest.mark.shows("OpenTelemetry (`--otlp-traces-endpoint`)")
def test_both_spans_of_a_request_say_its_zone(engine, spans, config):
    frontend, inner = asked(engine, "acme", spans)

    about = {key: value for key, value in inner.attributes.items() if key.startswith("tenantzone.")}
    assert about == {
        "tenantzone.tenant": "acme",
        "tenantzone.zone": "acme",
        "tenantzone.pool": "pool",
        "tenantzone.pool_namespace": "test",
        "tenantzone.config_generation": config.generation,
    }
    assert about.items() <= frontend.attributes.items()
    assert inner.parent_id == frontend.span_id
    assert frontend.attributes["http.response.status_code"] == 200
    assert inner.attributes["gen_ai.usage.completion_tokens"] == 1


def test_what_a_client_says_of_its_zone_is_not_believed(engine, spans):
    frontend, _ = asked(engine, "acme", spans)
    claims = {
        "traceparent": f"00-{frontend.trace_id}-{frontend.span_id}-01",
        "baggage": "tenantzone.zone=acme,tenantzone.tenant=acme",
        "tracestate": "tenantzone=acme",
    }
    complete(engine.client("burst"), text(1), extra_headers=claims)
    engine.wait(lambda: len(spans.of_trace(frontend.trace_id)) == 4, "the spans are exported", 60)

    zones = sorted(str(span.attributes["tenantzone.zone"]) for span in spans.of_trace(frontend.trace_id))
    assert zones == ["acme", "acme", "burst", "burst"]


def test_each_line_is_json_and_says_whose_it_is(engine, config):
    def of_config() -> list[dict[str, object]]:
        return [line for line in lines(engine) if line["message"] == f"config {config.generation} is in force: 2 zones"]

    engine.wait(of_config, "the engine core has written its line")
    (line,) = of_config()
    assert line["logger"] == "tenantzone_runtime.housekeeping.reloading"
    assert (line["level"], line["pool"], line["pool_namespace"]) == ("INFO", "pool", "test")
    assert (line["generation"], line["pod"]) == (config.generation, "engine-0")
    loggers = {str(line["logger"]).partition(".")[0] for line in lines(engine)}
    assert {"tenantzone_runtime", "vllm", "uvicorn"} <= loggers
    others = [line for line in engine.log.read_text().splitlines() if not line.startswith("{")]
    assert not [line for line in others if not FROM_C.match(line)]


@pytest.mark.shows("`--enable-log-requests`, `--log-error-stack`")
def test_no_secret_gets_into_the_log_even_if_requests_and_errors_do(engine):
    complete(engine.client("acme"), PROMPT)
    malformed = {"model": "tiny", "prompt": PROMPT, "max_tokens": "many"}
    headers = {"Authorization": "Bearer key-of-acme"}
    address = f"http://{engine.address}:{API_PORT}/v1/completions"
    assert httpx.post(address, json=malformed, headers=headers, timeout=60).status_code == 400

    def is_logged() -> bool:
        said = [str(line["message"]) for line in lines(engine)]
        is_request = any("Received request" in each and f"'{SEAL_ARGUMENT}': '(seal)'" in each for each in said)
        return is_request and any("RequestValidationError" in each for each in said)

    engine.wait(is_logged, "request and error are logged")
    log = engine.log.read_text()
    assert without_seals(log) == log
    for secret in ("key-of-", PROMPT, seal_key(engine)):
        assert secret not in log


def seal_key(engine: RealEngine) -> str:
    found = {variables.get(SEAL_KEY) for _, variables in descendants(engine.pid, "environ")}
    (key,) = filter(None, found)
    return key


def test_vllms_metrics_show_what_the_frontend_refuses(engine):
    def refused() -> dict[str, float]:
        page = httpx.get(f"http://{engine.address}:{API_PORT}/metrics", timeout=60).text
        return {
            sample.labels["reason"]: sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == "tenantzone_door_refused_requests_total"
        }

    before = refused()
    answer = httpx.post(f"http://{engine.address}:{API_PORT}/v1/completions", json={}, timeout=60)
    assert answer.status_code == 401
    assert refused() == {**before, "no_key": before["no_key"] + 1}
