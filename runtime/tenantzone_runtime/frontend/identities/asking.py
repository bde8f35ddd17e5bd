"""What all identities share: the protocol, and how headers and names are read."""

import re
from collections.abc import Sequence
from typing import Protocol

from tenantzone_runtime.frontend.answers import Refusal, Scope
from tenantzone_runtime.frontend.refusals import Reason

ABOUT = "the frontend's identity"
"""The purpose of an identity's files, as in the log."""

Headers = Sequence[tuple[bytes, bytes]]

_TENANT = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,251}[A-Za-z0-9])?")
"""The names that the CRD accepts for a TenantZone's ``tenant``."""


class Identity(Protocol):
    """One way to identify the tenant of a request."""

    @property
    def problem(self) -> str:
        """Why no tenant can be identified; empty if that is possible."""

    @property
    def secret_headers(self) -> frozenset[bytes]:
        """The headers, in lower case, that are not passed on behind the frontend."""

    def refresh(self) -> None:
        """Read changes of the identity's files."""

    def tenant_of(self, scope: Scope) -> str:
        """Returns the tenant of a request.

        Raises:
            Refusal: the request names no known tenant, or has no valid proof.
        """


def only_header(headers: Headers, name: bytes) -> bytes | None:
    """Returns the value of a header; None if the request does not have it.

    Args:
        headers: of the request.
        name: in lower case.

    Raises:
        Refusal: the header is repeated: the second value may come from another party than the first.
    """
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        raise Refusal(400, "repeated_header", f"The header {name.decode()} is there {len(values)} times; send it once")
    return values[0].strip() if values else None


def check_tenant_name(name: str) -> str:
    """Returns the name, if a tenant can have it.

    Raises:
        Refusal: no tenant can have it.
    """
    if _TENANT.fullmatch(name) is None:
        raise unauthorized(
            "malformed_tenant",
            "The tenant's name must have 1 to 253 letters, digits, '-', '_' and '.', a letter or digit at both ends",
        )
    return name


def without_headers(scope: Scope, names: frozenset[bytes]) -> Scope:
    """Returns the request without the headers that have the lower-case names."""
    if not names:
        return scope
    return {**scope, "headers": [header for header in scope["headers"] if header[0].lower() not in names]}


def unauthorized(reason: Reason, message: str) -> Refusal:
    """Returns the refusal of a client that is unknown or not trusted."""
    return Refusal(401, reason, message, headers={"www-authenticate": "Bearer"})


def unusable() -> Refusal:
    """Returns the refusal of all clients while tenants can't be identified; the admin port names what is missing."""
    return Refusal(
        503,
        "identity_unusable",
        "This server can't identify tenants at the moment, so it serves no request; ask its administrator",
    )
