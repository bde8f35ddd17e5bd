"""Gives images, sounds and videos names that begin with their tenant's: vLLM's caches find media by name alone.

There are three such caches: of what the API server has processed, of what it has sent to the engine, and of what the
encoder has made of it. A hit is faster, and with a name that the client chose (``uuid``) it is somebody's image.
"""

import hashlib
from collections.abc import Mapping
from functools import wraps
from typing import Any, Final

from vllm.v1.request import Request

_SALT: Final = "tenantzone"
"""The key under which a salt travels beside what vLLM hashes of media: no modality has this name."""


def owner_in(salt: str) -> str:
    """What the names of a tenant's media begin with.

    Args:
        salt: of the tenant's prefixes, which is nobody else's.
    """
    return hashlib.sha256(b"media of " + salt.encode()).hexdigest()[:32] + "."


def has_foreign_media(request: Request) -> bool:
    """Whether any of the request's media has a name that was not made for the request's own salt."""
    owner = owner_in(request.cache_salt or "")
    adapter = "" if request.lora_request is None else f"{request.lora_request.lora_name}:"
    return not all(
        feature.identifier.removeprefix(adapter).startswith(owner) for feature in getattr(request, "mm_features", ())
    )


def name_media_by_tenant() -> None:
    """Have vLLM's API server name media so; those of requests without a salt keep vLLM's names."""
    # Imported here: only the API server has need of it.
    from vllm.multimodal.processing.inputs import ProcessorInputs
    from vllm.renderers.base import BaseRenderer

    if hasattr(ProcessorInputs.get_mm_hashes, "__wrapped__"):
        return
    ProcessorInputs.get_mm_hashes = _with_owners(ProcessorInputs.get_mm_hashes)
    for name in ("_process_tokens", "_process_tokens_async"):
        setattr(BaseRenderer, name, _with_salts(getattr(BaseRenderer, name)))


def _with_salts(process: Any) -> Any:
    """A renderer's method that passes a prompt's salt on to where its media are named."""

    @wraps(process)
    def process_with_salt(renderer: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        if prompt.get("multi_modal_data") and (salt := prompt.get("cache_salt")):
            # vLLM passes these on to where it makes the names, on another thread, and does nothing else with them.
            given: Mapping[str, Any] = prompt.get("media_io_kwargs") or {}
            prompt = {**prompt, "media_io_kwargs": {**given, _SALT: {"salt": salt}}}
        return process(renderer, prompt, *args, **kwargs)

    return process_with_salt


def _with_owners(get_names: Any) -> Any:
    """The method of vLLM's that names media, with the owner before each name."""

    @wraps(get_names)
    def get_owned_names(inputs: Any, *args: Any, **kwargs: Any) -> dict[str, list[str]]:
        salt = inputs.media_io_kwargs.get(_SALT)
        if salt is None:
            names: dict[str, list[str]] = get_names(inputs, *args, **kwargs)
            return names
        # Not in what is hashed: the same image's name is to differ in its beginning only.
        inputs.media_io_kwargs = {key: value for key, value in inputs.media_io_kwargs.items() if key != _SALT}
        owner = owner_in(salt["salt"])
        try:
            names = get_names(inputs, *args, **kwargs)
        finally:
            inputs.media_io_kwargs = {**inputs.media_io_kwargs, _SALT: salt}
        return {modality: [owner + name for name in given] for modality, given in names.items()}

    return get_owned_names
