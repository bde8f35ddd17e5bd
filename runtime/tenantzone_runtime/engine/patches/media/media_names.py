"""Adds a prefix per tenant to the names of images, sounds and videos, because vLLM's caches find media by name alone.

vLLM caches media that the API server has processed, media that the API server has sent to the engine, and encoder
outputs. A hit makes a request faster, which would reveal that another tenant sent the same image. If clients choose the
names (``uuid``), a hit could even return another tenant's image.

Upstream change that would make this module unnecessary: a prefix per request for the hashes and ``uuid`` names of
media.
"""

import hashlib
from collections.abc import Mapping
from functools import wraps
from typing import Any, Final

from vllm.v1.request import Request

_SALT: Final = "tenantzone"
"""Key under which the salt is passed in vLLM's ``media_io_kwargs``. The other keys there are modalities."""


def owner_in(salt: str) -> str:
    """Returns the prefix for the names of a tenant's media.

    Args:
        salt: the tenant's cache salt. Different tenants have different salts.
    """
    return hashlib.sha256(b"media of " + salt.encode()).hexdigest()[:32] + "."


def has_foreign_media(request: Request) -> bool:
    """Returns whether the name of any of a request's media lacks the prefix for the request's salt."""
    owner = owner_in(request.cache_salt or "")
    adapter = "" if request.lora_request is None else f"{request.lora_request.lora_name}:"
    return not all(
        feature.identifier.removeprefix(adapter).startswith(owner) for feature in getattr(request, "mm_features", ())
    )


def name_media_by_tenant() -> None:
    """Make vLLM's API server add the tenant's prefix to the names of media, except in requests without a salt."""
    # Imported here, because only the API server needs it.
    from vllm.multimodal.processing.inputs import ProcessorInputs
    from vllm.renderers.base import BaseRenderer

    if hasattr(ProcessorInputs.get_mm_hashes, "__wrapped__"):
        return
    ProcessorInputs.get_mm_hashes = _with_owners(ProcessorInputs.get_mm_hashes)
    for name in ("_process_tokens", "_process_tokens_async"):
        setattr(BaseRenderer, name, _with_salts(getattr(BaseRenderer, name)))


def _with_salts(process: Any) -> Any:
    """Returns a wrapper of a renderer's method that passes a prompt's salt to the code that names its media."""

    @wraps(process)
    def process_with_salt(renderer: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        if prompt.get("multi_modal_data") and (salt := prompt.get("cache_salt")):
            # vLLM uses these arguments only in the code that names media, which may run on another thread.
            given: Mapping[str, Any] = prompt.get("media_io_kwargs") or {}
            prompt = {**prompt, "media_io_kwargs": {**given, _SALT: {"salt": salt}}}
        return process(renderer, prompt, *args, **kwargs)

    return process_with_salt


def _with_owners(get_names: Any) -> Any:
    """Returns a wrapper of vLLM's method that names media. The wrapper adds the owner's prefix to each name."""

    @wraps(get_names)
    def get_owned_names(inputs: Any, *args: Any, **kwargs: Any) -> dict[str, list[str]]:
        salt = inputs.media_io_kwargs.get(_SALT)
        if salt is None:
            names: dict[str, list[str]] = get_names(inputs, *args, **kwargs)
            return names
        # Remove the salt before hashing, so that names of the same image differ only in their prefixes.
        inputs.media_io_kwargs = {key: value for key, value in inputs.media_io_kwargs.items() if key != _SALT}
        owner = owner_in(salt["salt"])
        try:
            names = get_names(inputs, *args, **kwargs)
        finally:
            inputs.media_io_kwargs = {**inputs.media_io_kwargs, _SALT: salt}
        return {modality: [owner + name for name in given] for modality, given in names.items()}

    return get_owned_names
