"""Binds a request to its tenant: writes the tenant's cache salt and seal into the request's body."""

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
    """Parse a request's body, which must be a JSON object.

    Raises:
        Refusal: the body is not a JSON object, or nests too deep for Python's parser.
    """
    try:
        parsed = json.loads(body)
    except RecursionError:
        raise refuse_depth("complex_body", "The request's body") from None
    # json.loads raises ValueError for malformed JSON, bytes that are not text, and numbers with too many digits.
    except ValueError as error:
        raise Refusal(400, "malformed_body", f"The request's body is not valid JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise Refusal(400, "malformed_body", "The request's body must be a JSON object")
    return parsed


def check_fields(body: Mapping[str, Any], refused: Mapping[str, str]) -> None:
    """Check that a request's body sets none of the refused fields. A field that is null or false counts as not set.

    Args:
        body: the parsed body.
        refused: the refused fields, each with the reason for the client.

    Raises:
        Refusal: a refused field is set. The message names the field.
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
    """Returns the request's body as JSON, with the tenant's cache salt and the seal.

    The tenant's salt and the seal replace the client's own values, even if the client sent these fields twice.

    Args:
        raw: the body as received.
        body: the parsed body.
        seal_key: the key of the seal, which the scheduler also has.
        salt_key: the pool's salt key.
        tenant: the tenant of the request.
        user: the digest of the tenant's user; empty if unknown.
        context: the request's context, which also gets the seal; None for no context.
        takes_arguments: whether the route's body has a field for the seal.

    Raises:
        Refusal: the client's salt or extra arguments are malformed, or an extra argument controls engine internals.
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
    """Returns True if a body is UTF-8 and has none of the fields ``more``, so that they can be appended to the body."""
    return not (more.keys() & body.keys()) and json.detect_encoding(raw) == "utf-8"


def _extended(raw: bytes, body: Mapping[str, Any], more: Mapping[str, Any]) -> bytes:
    """Returns a JSON object with the fields ``more`` appended to its text.

    The object is not serialized again, because that would hold the interpreter's lock for longer than parsing did.

    Args:
        raw: the object as received.
        body: the parsed object.
        more: fields that the object does not have.
    """
    opened = raw.rstrip(_JSON_SPACE).removesuffix(b"}")
    return opened + (b"," if body else b"") + json.dumps(more).encode().removeprefix(b"{")


def without_seal(raw: bytes, body: dict[str, Any]) -> bytes:
    """Returns the request's body as JSON. A seal from the client is removed, because it would be invalid.

    Args:
        raw: the body as received.
        body: the parsed body.

    Raises:
        Refusal: the client's extra arguments are malformed, or one of them controls engine internals.
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
    # vLLM reads these fields from the extra arguments. It also copies body fields with these names into the arguments.
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
