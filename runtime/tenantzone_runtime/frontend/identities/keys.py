"""Identifies tenants by API keys: a request belongs to the tenant whose API key its headers contain."""

from tenantzone_runtime.frontend.identities.asking import Headers, unauthorized
from tenantzone_runtime.frontend.identities.key_ring import KeyRing
from tenantzone_runtime.frontend.responses.answers import Scope


class KeyIdentity:
    """Identifies tenants by the API keys of a key ring.

    Args:
        keys: the key ring. Its owner must refresh it.
    """

    secret_headers: frozenset[bytes] = frozenset()

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    @property
    def problem(self) -> str:
        return self._keys.problem

    def refresh(self) -> None:
        """Do nothing, because `ActiveConfig` refreshes the key ring for all identities."""

    def tenant_of(self, scope: Scope) -> str:
        """Returns the tenant whose API key the request has.

        Raises:
            Refusal: the request has no API key, several different API keys, or an unknown API key.
        """
        tenant = self._keys.tenant_of(_shown_key(scope["headers"]))
        if tenant is None:
            raise unauthorized(
                "unknown_key",
                "This server does not know this API key; check it, or ask the server's administrator for a key",
            )
        return tenant


def _shown_key(headers: Headers) -> bytes:
    """Returns the API key in the request's headers.

    Raises:
        Refusal: the headers contain no key, or several different keys.
    """
    shown = set()
    for name, value in headers:
        match name.lower():
            case b"authorization":
                scheme, _, key = value.partition(b" ")
                if scheme.lower() == b"bearer":
                    shown.add(key.strip())
            case b"x-api-key" | b"api-key":
                shown.add(value.strip())
    if len(shown) != 1:
        problem = "has several API keys" if shown else "has no API key"
        raise unauthorized(
            "several_keys" if shown else "no_key",
            f"The request {problem}; send one in the header 'Authorization: Bearer KEY'",
        )
    return shown.pop()
