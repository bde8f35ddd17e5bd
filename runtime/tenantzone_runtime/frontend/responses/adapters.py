"""Restricts a tenant to the base model and the LoRA adapters that the tenant's zone lists.

A tenant gets the same answer for an adapter that it may not use as for a model that does not exist.
"""

import json
from collections.abc import Mapping
from typing import Any

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Refusal, Scope, Send

MODELS_PATH = "/v1/models"


def usable_models(scope: Scope, zone: ZoneConfig | None) -> frozenset[str] | None:
    """Returns the model names that a tenant may use.

    Args:
        scope: the request's ASGI scope. Its application has the base model's names.
        zone: the tenant's zone; None if the tenant has no zone.

    Returns:
        The allowed names; None if any name is allowed, because the tenant has no zone or the zone has no ``adapters``.
    """
    if zone is None or zone.adapters is None:
        return None
    served = scope["app"].state.openai_serving_models.base_model_paths
    return frozenset(zone.adapters).union(model.name for model in served)


def check_model(body: Mapping[str, Any], usable: frozenset[str] | None) -> None:
    """Check that the model in a request's body is one that the tenant may use.

    Raises:
        Refusal: the tenant may not use the model.
    """
    model = body.get("model")
    # Check only names. vLLM uses the base model if the name is missing or empty, and refuses values of other types.
    if usable is not None and isinstance(model, str) and model and model not in usable:
        raise Refusal(
            404, "model", f"The model `{model}` does not exist, or this tenant may not use it (adapters)", param="model"
        )


def listing(app: App, usable: frozenset[str] | None) -> App:
    """Wrap the application so that its list of models has only the models in ``usable``; None for all models."""
    if usable is None:
        return app

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, _Listing(usable, send).send)

    return call


class _Listing:
    """Collects the response to one request, and filters the complete response.

    Args:
        names: the names of the models to keep.
        send: sends the response's ASGI messages to the client.
    """

    def __init__(self, names: frozenset[str], send: Send) -> None:
        self._names = names
        self._send = send
        self._head: Message = {}
        self._body = b""

    async def send(self, message: Message) -> None:
        """Collect a message from the application. After the last message, send the filtered response."""
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
