"""The interface of all ways to identify tenants, and helpers that read headers, check names and make refusals."""

import re
from collections.abc import Sequence
from typing import Protocol

from tenantzone_runtime.frontend.responses.answers import Refusal, Scope
from tenantzone_runtime.frontend.responses.refusals import Reason

ABOUT = "the frontend's identity"
"""Prefix of log lines about an identity's files."""

Headers = Sequence[tuple[bytes, bytes]]

_TENANT = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,251}[A-Za-z0-9])?")
"""The names that the CRD accepts for a TenantZone's ``tenant``."""


class Identity(Protocol):
    """One way to identify the tenant of a request."""

    @property
    def problem(self) -> str:
        """The reason why this identity can identify no tenant; empty if it can."""

    @property
    def secret_headers(self) -> frozenset[bytes]:
        """Lower-case names of headers with secrets, which the frontend does not pass on to vLLM."""

    def refresh(self) -> None:
        """Reload the identity's files if they have changed."""

    def tenant_of(self, scope: Scope) -> str:
        """Returns the tenant of a request.

        Raises:
            Refusal: the request names no valid tenant, or has no valid credentials.
        """


def only_header(headers: Headers, name: bytes) -> bytes | None:
    """Returns the value of a header that may not be repeated; None if the request does not have the header.

    Args:
        headers: the request's headers.
        name: the header's name in lower case.

    Raises:
        Refusal: the header is repeated. The client and a gateway may have set different values.
    """
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        raise Refusal(
            400, "repeated_header", f"The request has the header {name.decode()} {len(values)} times; send it once"
        )
    return values[0].strip() if values else None


def check_tenant_name(name: str) -> str:
    """Check that a name is valid for a tenant, and return the name.

    Raises:
        Refusal: the name is invalid.
    """
    if _TENANT.fullmatch(name) is None:
        raise unauthorized(
            "malformed_tenant",
            "The tenant's name must have 1 to 253 letters, digits, '-', '_' and '.', and begin and end "
            "with a letter or digit",
        )
    return name


def without_headers(scope: Scope, names: frozenset[bytes]) -> Scope:
    """Returns the request without the headers in ``names``. The names must be in lower case."""
    if not names:
        return scope
    return {**scope, "headers": [header for header in scope["headers"] if header[0].lower() not in names]}


def unauthorized(reason: Reason, message: str) -> Refusal:
    """Returns a refusal with status 401, for a request whose tenant could not be verified."""
    return Refusal(401, reason, message, headers={"www-authenticate": "Bearer"})


def unusable() -> Refusal:
    """Returns the refusal for all requests while the frontend can identify no tenant. The admin port shows why."""
    return Refusal(
        503,
        "identity_unusable",
        "This server can't identify tenants at the moment, so it serves no request; ask its administrator",
    )
