"""The protocol of identities, and helpers that read headers, check tenants' names and make refusals."""

import re
from collections.abc import Sequence
from typing import Protocol

from tenantzone_runtime.frontend.responses.answers import Refusal, Scope
from tenantzone_runtime.frontend.responses.refusals import Reason

ABOUT = "the frontend's identity"
"""The purpose of an identity's files, for log lines."""

Headers = Sequence[tuple[bytes, bytes]]

_TENANT = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,251}[A-Za-z0-9])?")
"""Pattern of the names that the CRD accepts for a TenantZone's ``tenant``."""


class Identity(Protocol):
    """One way to identify the tenant of a request."""

    @property
    def problem(self) -> str:
        """The reason why no tenant can be identified; empty if tenants can be identified."""

    @property
    def secret_headers(self) -> frozenset[bytes]:
        """Names, in lower case, of the headers that the frontend does not pass on to vLLM."""

    def refresh(self) -> None:
        """Reload the identity's files if they have changed."""

    def tenant_of(self, scope: Scope) -> str:
        """Returns the tenant of a request.

        Raises:
            Refusal: the request names no known tenant, or has no valid proof.
        """


def only_header(headers: Headers, name: bytes) -> bytes | None:
    """Returns the value of a header; None if the request does not have the header.

    Args:
        headers: the request's headers.
        name: the header's name in lower case.

    Raises:
        Refusal: the header is repeated, so its values may come from different parties.
    """
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        raise Refusal(400, "repeated_header", f"The header {name.decode()} is there {len(values)} times; send it once")
    return values[0].strip() if values else None


def check_tenant_name(name: str) -> str:
    """Returns ``name`` if it is a valid tenant's name.

    Raises:
        Refusal: the name is invalid.
    """
    if _TENANT.fullmatch(name) is None:
        raise unauthorized(
            "malformed_tenant",
            "The tenant's name must have 1 to 253 letters, digits, '-', '_' and '.', a letter or digit at both ends",
        )
    return name


def without_headers(scope: Scope, names: frozenset[bytes]) -> Scope:
    """Returns the request without the headers in ``names``, which are in lower case."""
    if not names:
        return scope
    return {**scope, "headers": [header for header in scope["headers"] if header[0].lower() not in names]}


def unauthorized(reason: Reason, message: str) -> Refusal:
    """Returns a 401 refusal, for a client that is unknown or not trusted."""
    return Refusal(401, reason, message, headers={"www-authenticate": "Bearer"})


def unusable() -> Refusal:
    """Returns the refusal of all requests while no tenant can be identified; the admin port reports the reason."""
    return Refusal(
        503,
        "identity_unusable",
        "This server can't identify tenants at the moment, so it serves no request; ask its administrator",
    )
