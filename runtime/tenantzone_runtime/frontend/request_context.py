"""Context propagation: carries a request's seal and limits past the parts of vLLM that drop them, to the engine.

Most bodies have a field for the seal. Where vLLM makes several requests of one, as for beam search, or has no such
field, as for embeddings, the seal travels with the task that serves the request, and with the tasks that it starts. So
do the totals of all the engine's requests of one body, and the limits of its media.
"""

from contextvars import ContextVar
from typing import Protocol

from tenantzone_runtime.frontend.answers import App, Receive, Scope, Send
from tenantzone_runtime.frontend.media import MediaUse
from tenantzone_runtime.frontend.parsing_budget import ParsingBudget


class Closing(Protocol):
    """A resource that is held for a request."""

    def close(self) -> None:
        """Release it."""


class RequestContext:
    """The context of one request, known when its body has been read.

    Args:
        media: the use of images, sounds and videos by the request; None: they are not bounded.
        tenant: whose request it is.
    """

    def __init__(self, media: MediaUse | None = None, tenant: str = "") -> None:
        self.media = media
        self.tenant = tenant
        self.seal = ""
        """The seal; empty: it has none."""
        self.answers_in_one_piece = 0
        """The number of the body's answers that are each sent in one piece; 0: they are streamed."""
        self.prompt_logprobs_field = ""
        """The body's field that requests log probabilities of its prompts."""
        self.prompt_logprobs = 0
        """The number of log probabilities for the prompts tokenized so far."""
        self.parsing = ParsingBudget()
        """The processor time that the parsers of the request's answers may still use."""
        self.held: list[Closing] = []
        """Resources to close when the request has ended."""
        self._has_ended = False

    def hold(self, closing: Closing) -> None:
        """Hold a resource until the request has ended; if it has (a task may outlive it), close it at once."""
        if self._has_ended:
            closing.close()
        else:
            self.held.append(closing)

    def carried_through(self, app: App) -> App:
        """Returns the application with this context set while it serves the request."""

        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            token = _current.set(self)
            try:
                await app(scope, receive, send)
            finally:
                _current.reset(token)
                self._has_ended = True
                while self.held:
                    self.held.pop().close()

        return call


_current: ContextVar[RequestContext | None] = ContextVar("tenantzone_request_context", default=None)


def current_context() -> RequestContext | None:
    """Returns the context of the current request; None: it did not come through the frontend."""
    return _current.get()


def current_seal() -> str:
    """Returns the seal of the current request; empty: it has none, or did not come through the frontend."""
    context = current_context()
    return "" if context is None else context.seal
