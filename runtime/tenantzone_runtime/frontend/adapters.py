"""The models that a tenant may name: the base model, and those of the engine's LoRA adapters that its zone lists.

A tenant that may not use an adapter gets the same answer as for a name that does not exist.
"""

import json
from collections.abc import Mapping
from typing import Any

from tenantzone_contract.config import ZoneConfig
from tenantzone_runtime.frontend.answers import App, Message, Receive, Refusal, Scope, Send

MODELS_PATH = "/v1/models"


def usable_models(scope: Scope, zone: ZoneConfig | None) -> frozenset[str] | None:
    """Returns the names that a tenant may give as ``model``.

    Args:
        scope: of the request; vLLM's application in it knows the name of the base model.
        zone: of the tenant; None: no bounds.

    Returns:
        None if the zone lists no adapters, so that any name may be given.
    """
    if zone is None or zone.adapters is None:
        return None
    served = scope["app"].state.openai_serving_models.base_model_paths
    return frozenset(zone.adapters).union(model.name for model in served)


def check_model(body: Mapping[str, Any], usable: frozenset[str] | None) -> None:
    """Check that a request names a model that its tenant may use.

    Raises:
        Refusal: the tenant may not use it.
    """
    model = body.get("model")
    # Without a name the base model is used; vLLM refuses names that are not texts.
    if usable is not None and isinstance(model, str) and model and model not in usable:
        raise Refusal(
            404, "model", f"The model `{model}` does not exist, or this tenant may not use it (adapters)", param="model"
        )


def listing(app: App, usable: frozenset[str] | None) -> App:
    """Returns the application for requests that list models: its answer has only the models that the tenant may use."""
    if usable is None:
        return app

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, _Listing(usable, send).send)

    return call


class _Listing:
    """The answer to one request, which is changed once it is complete.

    Args:
        names: of the models to keep.
        send: takes the answer's messages.
    """

    def __init__(self, names: frozenset[str], send: Send) -> None:
        self._names = names
        self._send = send
        self._head: Message = {}
        self._body = b""

    async def send(self, message: Message) -> None:
        """Collect a message of the application's; the last one sends the answer."""
        if message["type"] == "http.response.start":
            self._head = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        body = self._listed() if self._head["status"] == 200 and self._body else self._body
        headers = [(name, value) for name, value in self._head["headers"] if name.lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**self._head, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _listed(self) -> bytes:
        models = json.loads(self._body)
        return json.dumps({**models, "data": [each for each in models["data"] if each["id"] in self._names]}).encode()
