"""Bears what is known of a request past the parts of vLLM that drop it, to where it is handed to the engine.

That is its seal. Most bodies have a field for it. Where vLLM makes several requests of one, as for beam search, or has
no such field, as for embeddings, it goes along with the task in which the request is served, and with those that are
begun in there. So does what all the engine's requests of one body come to together, and what its media may still take.
"""

from contextvars import ContextVar
from typing import Protocol

from tenantzone_runtime.door.answers import App, Receive, Scope, Send
from tenantzone_runtime.door.media import MediaUse
from tenantzone_runtime.door.parsing_budget import ParsingBudget


class Closing(Protocol):
    """Something that is held for a request."""

    def close(self) -> None:
        """Give it up."""


class Bearing:
    """What goes along with one request, known when its body has been read.

    Args:
        media: what the request's images, sounds and videos come to; None: they are not bounded.
        tenant: whose request it is.
    """

    def __init__(self, media: MediaUse | None = None, tenant: str = "") -> None:
        self.media = media
        self.tenant = tenant
        self.seal = ""
        """Empty: it has none."""
        self.answers_in_one_piece = 0
        """How many answers the body comes to that are made in one piece each; 0: they are streamed."""
        self.prompt_logprobs_field = ""
        """The body's field that asks for log probabilities of its prompts."""
        self.prompt_logprobs = 0
        """How many of them those prompts come to that have become tokens."""
        self.parsing = ParsingBudget()
        """What the parsers of the request's answers may still take."""
        self.held: list[Closing] = []
        """What is closed once the request has ended."""
        self._has_ended = False

    def hold(self, closing: Closing) -> None:
        """Hold something until the request has ended. If it has, close it at once: a task of the request's goes on."""
        if self._has_ended:
            closing.close()
        else:
            self.held.append(closing)

    def carried_through(self, app: App) -> App:
        """The application, for that request."""

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


_current: ContextVar[Bearing | None] = ContextVar("tenantzone_bearing", default=None)


def borne() -> Bearing | None:
    """What goes along with the request that this is called for; None: it did not come through the door."""
    return _current.get()


def borne_seal() -> str:
    """The seal of the request that this is called for; empty: it has none, or did not come through the door."""
    bearing = borne()
    return "" if bearing is None else bearing.seal
