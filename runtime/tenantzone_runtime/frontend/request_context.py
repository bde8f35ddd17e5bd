"""Propagates a request's seal and limits through the API server with a context variable.

Most request bodies have a field for the seal. But some bodies have none (for example for embeddings), and vLLM drops
the field when it makes several engine requests from one body (for example for beam search). Then the engine's hooks
read the seal from the context variable of the task that serves the request. That task's child tasks inherit the
variable.

The context also has totals over all engine requests of one body, and the limits of the body's media.
"""

from contextvars import ContextVar
from typing import Protocol

from tenantzone_runtime.frontend.body.media import MediaUse
from tenantzone_runtime.frontend.body.parsing_budget import ParsingBudget
from tenantzone_runtime.frontend.responses.answers import App, Receive, Scope, Send


class Closing(Protocol):
    """A resource that must be closed when its request has ended."""

    def close(self) -> None:
        """Release the resource."""


class RequestContext:
    """The data of one request that must be available wherever the API server works for this request.

    Args:
        media: the request's use of memory for images, sounds and videos; None if the use is not limited.
        tenant: the request's tenant.
    """

    def __init__(self, media: MediaUse | None = None, tenant: str = "") -> None:
        self.media = media
        self.tenant = tenant
        self.seal = ""
        """The request's seal; empty if it has none."""
        self.answers_in_one_piece = 0
        """Number of answers to the request if each is sent in one piece; 0 if the answers are streamed."""
        self.prompt_logprobs_field = ""
        """Name of the body's field that requests log probabilities of the prompts."""
        self.prompt_logprobs = 0
        """Number of log probabilities of the prompts that were tokenized so far."""
        self.parsing = ParsingBudget()
        """The remaining CPU time for parsing the request's answers."""
        self.held: list[Closing] = []
        """Resources to close when the request has ended."""
        self._has_ended = False

    def hold(self, closing: Closing) -> None:
        """Close a resource when the request ends. If the request has already ended, close the resource at once."""
        if self._has_ended:
            closing.close()
        else:
            self.held.append(closing)

    def carried_through(self, app: App) -> App:
        """Wrap the application so that this context is set while it serves the request."""

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
    """Returns the context of the current request; None if the request did not pass through the frontend."""
    return _current.get()


def current_seal() -> str:
    """Returns the seal of the current request; empty if the request has none or did not pass through the frontend."""
    context = current_context()
    return "" if context is None else context.seal
