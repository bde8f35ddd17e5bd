"""OpenTelemetry: makes a span for each admitted request, and sets the zone's attributes on vLLM's spans.

When a request has ended, vLLM makes its span ``llm_request`` as a child of the span in the request's ``traceparent``
header. The frontend writes its own span into this header. The frontend's span continues the client's trace, and each
child of the frontend's span gets the same attributes.

The frontend keeps the attributes in memory, by the id of its span. From the client's trace headers, it takes only the
ids and the state of the trace, and no baggage. It adds no baggage either, because baggage could leak to other services.

All of this happens only if tracing is set up in this process, as vLLM does with ``--otlp-traces-endpoint``.
"""

from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Scope, Send

Attributes = Mapping[str, str | int]

_NAME = "tenantzone.frontend"
_propagator = TraceContextTextMapPropagator()


class Tracing(SpanProcessor):
    """Makes a span for each admitted request, and sets the same attributes on the child spans that vLLM makes."""

    def __init__(self) -> None:
        self._provider: TracerProvider | None = None
        self._open: dict[tuple[int, int], Attributes] = {}
        """The attributes of each in-flight request, by the trace id and span id of the frontend's span."""

    async def call(self, app: App, scope: Scope, receive: Receive, send: Send, attributes: Attributes) -> None:
        """Call the application, within a span if tracing is set up.

        Args:
            app: vLLM's application.
            scope: the ASGI scope of an HTTP request.
            receive: receives the request's ASGI messages.
            send: sends the answer's ASGI messages.
            attributes: the attributes for the request's spans.
        """
        provider = self._find_provider()
        if provider is None:
            await app(scope, receive, send)
            return
        span = provider.get_tracer(_NAME).start_span(
            f"{scope['method']} {scope['path']}", _propagator.extract(_trace_headers(scope), Context()), SpanKind.SERVER
        )
        # Set the attributes only now, after `on_start`. A client could have sent another request's span id as parent,
        # and `on_start` would have copied that request's attributes.
        span.set_attributes({**attributes, "http.request.method": scope["method"], "http.route": scope["path"]})

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= 500:
                    span.set_status(StatusCode.ERROR)
            await send(message)

        own = span.get_span_context()
        self._open[own.trace_id, own.span_id] = attributes
        try:
            await app(_continuing(scope, span), receive, send_noted)
        except Exception:
            # Do not record the exception, because its text may quote the request.
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            del self._open[own.trace_id, own.span_id]
            span.end()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Copy attributes from a span of the frontend to a child span that starts. OpenTelemetry calls this method."""
        parent = trace.get_current_span(parent_context).get_span_context()
        attributes = self._open.get((parent.trace_id, parent.span_id))
        if attributes is not None:
            span.set_attributes(attributes)

    def _find_provider(self) -> TracerProvider | None:
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            return None
        if provider is not self._provider:
            self._provider = provider
            provider.add_span_processor(self)
        return provider


def _trace_headers(scope: Scope) -> dict[str, str]:
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    return {
        name.decode("latin-1").lower(): value.decode("latin-1")
        for name, value in headers
        if name.lower().decode("latin-1") in _propagator.fields
    }


def _continuing(scope: Scope, span: trace.Span) -> Scope:
    """Returns the request's scope with trace headers that make later spans children of ``span``."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, Context()))
    others = [header for header in scope["headers"] if header[0].decode("latin-1").lower() not in _propagator.fields]
    ours = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in carrier.items()]
    return {**scope, "headers": [*others, *ours]}
