"""Writes a request's binding to its tenant into the request's body."""

import json
from collections.abc import Mapping
from typing import Any

from tenantzone_contract.keys.salt import tenant_salt
from tenantzone_runtime.frontend.body.values import refuse_depth
from tenantzone_runtime.frontend.request_context import RequestContext
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.routes import MACHINERY
from tenantzone_runtime.seal import SEAL_ARGUMENT, seal

_EXTRA_ARGUMENTS = "vllm_xargs"
_CACHE_SALT = "cache_salt"
_JSON_SPACE = b" \t\n\r"


def parse_body(body: bytes) -> dict[str, Any]:
    """Parse a request's body into the object that it contains.

    Raises:
        Refusal: the body is not a JSON object, or nests too deep for Python's parser.
    """
    try:
        parsed = json.loads(body)
    except RecursionError:
        raise refuse_depth("complex_body", "The request's body") from None
    # A ValueError means malformed JSON, bytes that are not text, or numbers that are too long to convert.
    except ValueError as error:
        raise Refusal(400, "malformed_body", f"The request's body is not valid JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise Refusal(400, "malformed_body", "The request's body must be a JSON object")
    return parsed


def check_fields(body: Mapping[str, Any], refused: Mapping[str, str]) -> None:
    """Check that a request sets no field that would bypass the binding.

    Raises:
        Refusal: such a field is set; the message names it.
    """
    for name, reason in refused.items():
        if body.get(name) not in (None, False):
            raise _unsupported(name, reason)


def _unsupported(name: str, reason: str) -> Refusal:
    message = f"'{name}' is not supported together with tenant zones: {reason}"
    return Refusal(400, "unsupported_field", message, param=name)


def bind(
    raw: bytes,
    body: dict[str, Any],
    seal_key: bytes,
    salt_key: bytes,
    tenant: str,
    user: str = "",
    *,
    context: RequestContext | None = None,
    takes_arguments: bool = True,
) -> bytes:
    """Returns the request's body with the tenant's cache salt and the seal in it, as JSON.

    The client's own salt and seal are replaced, even if the client sent them twice.

    Args:
        raw: the body as received.
        body: the same, parsed.
        seal_key: the key that the scheduler also has.
        salt_key: the pool's salt key.
        tenant: the tenant of the request.
        user: the digest of the tenant's user; empty if unknown.
        context: the request's context, in which the seal is also set.
        takes_arguments: whether the route's body has a field for the seal.

    Raises:
        Refusal: the client's own salt or extra arguments are malformed, or name the engine's machinery.
    """
    arguments = _other_arguments(body)
    salt = tenant_salt(salt_key, tenant, _client_salt(body))
    arguments[SEAL_ARGUMENT] = sealed = seal(seal_key, tenant, salt, user)
    if context is not None:
        context.seal = sealed
    ours = {_CACHE_SALT: salt, _EXTRA_ARGUMENTS: arguments} if takes_arguments else {_CACHE_SALT: salt}
    if _can_be_extended(raw, body, ours):
        return _extended(raw, body, ours)
    return json.dumps({**body, **ours}).encode()


def _can_be_extended(raw: bytes, body: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    """Returns whether fields can be appended to a body: the client sent none of them, and the body is UTF-8."""
    return not (more.keys() & body.keys()) and json.detect_encoding(raw) == "utf-8"


def _extended(raw: bytes, body: Mapping[str, Any], more: Mapping[str, Any]) -> bytes:
    """Returns a JSON object with more fields.

    Serializing a large body again would hold the interpreter's lock for longer than parsing it did.

    Args:
        raw: the object as received.
        body: the same, parsed.
        more: fields that are not in it.
    """
    opened = raw.rstrip(_JSON_SPACE).removesuffix(b"}")
    return opened + (b"," if body else b"") + json.dumps(more).encode().removeprefix(b"{")


def without_seal(raw: bytes, body: dict[str, Any]) -> bytes:
    """Returns the request's body as JSON, without a seal from the client, which would be invalid.

    Args:
        raw: the body as received.
        body: the same, parsed.

    Raises:
        Refusal: the client's own extra arguments are malformed, or name the engine's machinery.
    """
    arguments = _other_arguments(body)
    if _EXTRA_ARGUMENTS not in body:
        return raw
    others = {name: value for name, value in body.items() if name != _EXTRA_ARGUMENTS}
    return json.dumps({**others, _EXTRA_ARGUMENTS: arguments} if arguments else others).encode()


def _other_arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    arguments = body.get(_EXTRA_ARGUMENTS)
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise Refusal(400, "malformed_body", f"'{_EXTRA_ARGUMENTS}' must be an object", param=_EXTRA_ARGUMENTS)
    # vLLM copies some of a body's own fields into these arguments, and reads them from here.
    for name, reason in MACHINERY.items():
        if name in arguments:
            raise _unsupported(f"{_EXTRA_ARGUMENTS}.{name}", reason)
    return {name: value for name, value in arguments.items() if name != SEAL_ARGUMENT}


def _client_salt(body: Mapping[str, Any]) -> str:
    salt = body.get(_CACHE_SALT)
    if salt is None:
        return ""
    if not isinstance(salt, str) or not salt:
        raise Refusal(400, "malformed_body", f"'{_CACHE_SALT}' must be a non-empty string", param=_CACHE_SALT)
    return salt
