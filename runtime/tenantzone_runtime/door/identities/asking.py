"""What all ways of knowing a tenant have in common: the port, and how headers and names are read."""

import re
from collections.abc import Sequence
from typing import Protocol

from tenantzone_runtime.door.answers import Refusal, Scope
from tenantzone_runtime.door.refusals import Reason

ABOUT = "the front door's identity"
"""What the files are for that an identity goes by, as the log says it."""

Headers = Sequence[tuple[bytes, bytes]]

_TENANT = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,251}[A-Za-z0-9])?")
"""As the CRD has it of a TenantZone's ``tenant``."""


class Identity(Protocol):
    """One way of knowing the tenant of a request."""

    @property
    def problem(self) -> str:
        """Why nobody can be let in; empty if that is not so."""

    @property
    def secret_headers(self) -> frozenset[bytes]:
        """The headers, in small letters, that go no further than the door."""

    def refresh(self) -> None:
        """Read what has changed of the files that it goes by."""

    def tenant_of(self, scope: Scope) -> str:
        """The tenant who asks.

        Raises:
            Refusal: nobody that is known, or not in a way that can be believed.
        """


def only_header(headers: Headers, name: bytes) -> bytes | None:
    """The value of a header; None if the request does not have it.

    Args:
        headers: of the request.
        name: in small letters.

    Raises:
        Refusal: it is there twice. Whoever has put it there second may not be who put it there first.
    """
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        raise Refusal(400, "repeated_header", f"The header {name.decode()} is there {len(values)} times; send it once")
    return values[0].strip() if values else None


def check_tenant_name(name: str) -> str:
    """The name, if it can be a tenant's.

    Raises:
        Refusal: it can't.
    """
    if _TENANT.fullmatch(name) is None:
        raise unauthorized(
            "malformed_tenant",
            "The tenant's name must have 1 to 253 letters, digits, '-', '_' and '.', a letter or digit at both ends",
        )
    return name


def without_headers(scope: Scope, names: frozenset[bytes]) -> Scope:
    """The request without the headers of these names, which are in small letters."""
    if not names:
        return scope
    return {**scope, "headers": [header for header in scope["headers"] if header[0].lower() not in names]}


def unauthorized(reason: Reason, message: str) -> Refusal:
    """A refusal of somebody who is not known, or not believed."""
    return Refusal(401, reason, message, headers={"www-authenticate": "Bearer"})


def unusable() -> Refusal:
    """The refusal of everybody, where tenants can't be known. What is missing is told on the admin port."""
    return Refusal(
        503,
        "identity_unusable",
        "This server can't tell tenants apart at the moment, and serves nobody; ask whoever runs it",
    )
