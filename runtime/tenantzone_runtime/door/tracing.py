"""OpenTelemetry: a span for each request that the door lets through, and the zone on the spans that vLLM makes for it.

vLLM makes its span ``llm_request`` when a request has ended, as a child of the span that the request's ``traceparent``
names. The door puts a span of its own there, which goes on with the client's trace. Whatever span starts as a child of
one of the door's gets the attributes of that one.

So an attribute comes from the door's own memory, found by an id that the door's process has just drawn. Of what a
client sends only its trace's ids and state are read. Its baggage is not, and none is made that could leak.

Nothing of this happens unless somebody has set up tracing in this process, as vLLM does if it is given
``--otlp-traces-endpoint``.
"""

from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenantzone_runtime.door.answers import App, Message, Receive, Scope, Send

Attributes = Mapping[str, str | int]

_NAME = "tenantzone.door"
_propagator = TraceContextTextMapPropagator()


class Tracing(SpanProcessor):
    """Makes a span for each request that the door lets through, and marks the spans that vLLM makes within it."""

    def __init__(self) -> None:
        self._provider: TracerProvider | None = None
        self._open: dict[tuple[int, int], Attributes] = {}
        """By the ids of trace and span: what is true of each request that is under way."""

    async def call(self, app: App, scope: Scope, receive: Receive, send: Send, attributes: Attributes) -> None:
        """Call the application, in a span if tracing is set up.

        Args:
            app: what is behind the door.
            scope: of an HTTP request.
            receive: its messages.
            send: takes the answer's.
            attributes: of the request.
        """
        provider = self._find_provider()
        if provider is None:
            await app(scope, receive, send)
            return
        span = provider.get_tracer(_NAME).start_span(
            f"{scope['method']} {scope['path']}", _propagator.extract(_trace_headers(scope), Context()), SpanKind.SERVER
        )
        # Last: a client that says it is a part of another's request has been believed by `on_start`.
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
            # Without the exception itself: its text may quote the request.
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            del self._open[own.trace_id, own.span_id]
            span.end()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Give a span that starts within one of the door's spans that one's attributes; OpenTelemetry calls this."""
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
    """The request as it goes on: its trace headers name this span."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, Context()))
    others = [header for header in scope["headers"] if header[0].decode("latin-1").lower() not in _propagator.fields]
    ours = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in carrier.items()]
    return {**scope, "headers": [*others, *ours]}
