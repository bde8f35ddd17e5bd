"""The content of a request's spans: the frontend's own, and the one that vLLM makes."""

import asyncio
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tests.frontend.harness import PROMPT, call, echo, settings

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT = "00f067aa0ba902b7"
ZONE_OF_ACME = {
    "tenantzone.tenant": "acme",
    "tenantzone.zone": "acme",
    "tenantzone.pool": "main",
    "tenantzone.pool_namespace": "models",
    "tenantzone.config_generation": 1,
}


@pytest.fixture
def exporter(monkeypatch):
    """Keeps the spans of a process with tracing set up."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


async def traced_echo(scope, receive, send):
    """As vLLM makes its span: with a parent from the request's headers and nothing else."""
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    headers = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    context = TraceContextTextMapPropagator().extract(headers)
    trace.get_tracer("vllm").start_span("llm_request", context=context).end()
    await echo(scope, receive, send)


def spans_of(exporter):
    found = {span.name: span for span in exporter.get_finished_spans()}
    exporter.clear()
    return found


def about_zone(span):
    return {key: value for key, value in span.attributes.items() if key.startswith("tenantzone.")}


def test_both_spans_say_the_zone_and_the_client_s_trace_goes_on(folder, exporter):
    frontend = TenantMiddleware(traced_echo, settings(folder))
    headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "vendor=1"}
    assert call(frontend, body=PROMPT, key="acme-key", headers=headers).status_code == 200

    spans = spans_of(exporter)
    request, inner = spans["POST /v1/completions"], spans["llm_request"]
    assert about_zone(request) == about_zone(inner) == ZONE_OF_ACME
    assert request.attributes["http.response.status_code"] == 200
    assert f"{request.context.trace_id:032x}" == f"{inner.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == CLIENT
    assert inner.parent.span_id == request.context.span_id
    assert inner.context.trace_state.get("vendor") == "1"


def test_without_a_trace_of_the_client_s_the_frontend_s_span_is_the_root(folder, exporter):
    call(TenantMiddleware(traced_echo, settings(folder)), body=PROMPT, key="acme-key")
    spans = spans_of(exporter)
    assert spans["POST /v1/completions"].parent is None
    assert about_zone(spans["llm_request"]) == ZONE_OF_ACME


def test_a_client_can_not_choose_the_zone(folder, exporter):
    """It may claim to be a part of another tenant's request, and put anything into its baggage."""

    async def app(scope, receive, send):
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if headers["authorization"] == "Bearer acme-key":
            stolen = {
                "traceparent": headers["traceparent"],
                "baggage": "tenantzone.zone=acme",
                "tracestate": "zone=acme",
            }
            await asyncio.to_thread(call, frontend, body=PROMPT, key="burst-key", headers=stolen)
        await traced_echo(scope, receive, send)

    frontend = TenantMiddleware(app, settings(folder))
    call(frontend, body=PROMPT, key="acme-key")

    reported = [(span.name, about_zone(span)["tenantzone.zone"]) for span in exporter.get_finished_spans()]
    assert reported == [
        ("llm_request", "burst"),
        ("POST /v1/completions", "burst"),
        ("llm_request", "acme"),
        ("POST /v1/completions", "acme"),
    ]


def test_an_error_is_noted_without_its_words(folder, exporter):
    async def fail(scope, receive, send):
        raise ValueError("the prompt was: hello")

    frontend = TenantMiddleware(fail, settings(folder))
    assert call(frontend, body=PROMPT, key="acme-key").status_code == 500
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "hello" not in span.to_json()
    assert frontend._tracing._open == {}


def test_what_is_refused_makes_no_span(folder, exporter):
    call(TenantMiddleware(traced_echo, settings(folder)), body=PROMPT)
    assert exporter.get_finished_spans() == ()


def test_without_tracing_the_request_is_as_it_was(folder):
    arrived = call(TenantMiddleware(echo, settings(folder)), body=PROMPT, key="acme-key").json()
    assert "traceparent" not in arrived["headers"]


def test_the_frontend_needs_no_opentelemetry():
    check = "import sys; sys.modules['opentelemetry'] = None; from tenantzone_runtime.frontend import middleware; "
    check += "assert middleware._tracing() is None"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
