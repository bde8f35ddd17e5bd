"""Bears a request's seal past the parts of vLLM that drop it, to where the request is handed to the engine.

Most bodies have a field for it. Where vLLM makes several requests of one, as for beam search, or has no such field, as
for embeddings, it goes along with the task in which the request is served, and with those that are begun in there.
"""

from contextvars import ContextVar

from tenantzone_runtime.door.answers import App, Receive, Scope, Send

_current: ContextVar[str] = ContextVar("tenantzone_seal", default="")


def borne_seal() -> str:
    """The seal of the request that this is called for; empty: it has none, or did not come through the door."""
    return _current.get()


class Bearing:
    """The seal of one request, which is made when its body has been read."""

    def __init__(self) -> None:
        self.seal = ""

    def carried_through(self, app: App) -> App:
        """The application, for that request."""

        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            token = _current.set(self.seal)
            try:
                await app(scope, receive, send)
            finally:
                _current.reset(token)

        return call
