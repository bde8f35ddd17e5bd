"""Authentication and authorization of the callers of requests."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from tenantzone_contract.keys.renewed import Renewed
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core.settings import Instance, Namespace


class Unauthenticated(Exception):
    """The caller is unknown."""


class Denied(Exception):
    """The caller is known, but is not allowed to make this call."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request."""

    name: str
    pool: str = ""
    """Pool whose instances the caller may access, as NAMESPACE/POOL; empty for none."""
    is_admin: bool = False
    """Whether the caller is an administrator, who may access all instances, groups, storages and service accounts."""
    pod: str = ""
    """Name of the pod to which the token is bound, or empty. It distinguishes engines that share a service account."""
    namespace: str = ""
    """The only namespace for which an administrator may make changes, or empty if all namespaces are allowed."""

    @property
    def turns(self) -> str:
        """Name under which the caller's requests wait for turns. All callers of a pool share one name."""
        return self.pool or self.name

    def require_admin(self) -> None:
        """Refuse a caller that is not an administrator.

        Raises:
            Denied: the caller is not an administrator.
        """
        if not self.is_admin:
            raise Denied(f"{self.name} is not an administrator; make this call with the token of an administrator")

    def require_namespace(self, namespace: str) -> None:
        """Refuse an administrator that may not make changes for a namespace.

        Args:
            namespace: the namespace of the change, or empty for a change for all namespaces.

        Raises:
            Denied: the administrator is limited to another namespace.
        """
        if self.namespace not in ("", namespace):
            whom = f"the namespace {namespace}" if namespace else "all namespaces"
            raise Denied(f"{self.name} may make changes for the namespace {self.namespace} only, not for {whom}")

    def may_touch(self, instance: Instance) -> bool:
        """Returns whether the caller may access an instance."""
        return self.is_admin or (bool(self.pool) and instance.pool == self.pool)


class Authenticator(Protocol):
    """Identifies callers by their tokens."""

    async def authenticate(self, token: str) -> Caller:
        """Returns the caller that a bearer token identifies.

        Args:
            token: bearer token, or empty if the request has no token.

        Raises:
            Unauthenticated: the token is unknown.
        """


class Anyone:
    """Treats every caller as an administrator. Only for trials on the loopback interface."""

    async def authenticate(self, token: str) -> Caller:
        return Caller("anyone", is_admin=True)


class _Known(msgspec.Struct, forbid_unknown_fields=True):
    """The rights of a caller, as given in a file of tokens or service accounts."""

    pool: str = ""
    admin: bool = False
    namespace: Namespace = ""

    def __post_init__(self) -> None:
        if self.namespace and not self.admin:
            raise ValueError("namespace requires admin: true; remove namespace, or make the caller an administrator")


def _caller(name: str, known: _Known) -> Caller:
    return Caller(name, known.pool, known.admin, namespace=known.namespace)


class StaticTokens:
    """Tokens in a file. Its JSON object maps each token to ``{"pool": "NAMESPACE/POOL"}`` or to ``{"admin": true}``.

    An administrator with a ``namespace`` may make changes for that namespace only.

    The file is reloaded when it has changed. While the file is missing or invalid, the previous tokens stay valid. The
    tokens are kept as hashes in memory, so that the duration of a lookup reveals nothing about the tokens.

    Args:
        path: path of the file.

    Raises:
        ValueError: the file can't be read or has another format.
    """

    def __init__(self, path: Path) -> None:
        self._callers = Renewed([path], lambda: _callers_by_token(path), about="the callers' tokens")
        self._callers.newest()

    async def authenticate(self, token: str) -> Caller:
        try:
            return self._callers.newest()[_digest(token)]
        except KeyError:
            raise Unauthenticated(
                "the token is missing or unknown; send a valid token in the header Authorization: Bearer TOKEN"
            ) from None


def _callers_by_token(path: Path) -> dict[bytes, Caller]:
    return {
        _digest(token): _caller(known.pool or f"administrator {number}", known)
        for number, (token, known) in enumerate(_read(path).items())
    }


def _read(path: Path) -> dict[str, _Known]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _Known])
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error


class Reviewed(NamedTuple):
    """The owner of a token."""

    account: str = ""
    """``NAMESPACE/NAME`` of the service account. Empty for an invalid token, another audience or another user."""
    pod: str = ""
    """Name of the pod to which the token is bound; empty if the token is not bound to a pod."""


class Review(Protocol):
    """Lets a Kubernetes API server review tokens."""

    async def __call__(self, token: str, audience: str) -> Reviewed:
        """Returns the owner of a token. The account is empty if the token is not valid for this audience.

        Raises:
            OSError: the API server does not answer.
        """


_REMEMBERED_SECONDS: Final = 60.0
_REMEMBERED_REFUSAL_SECONDS: Final = 5.0
"""Seconds for which a refused token is remembered. A short time, because the API server may accept the token later."""
_MOST: Final = 10_000


class ReviewedTokens:
    """Projected tokens of service accounts, which the API server reviews (TokenReview).

    Args:
        review: reviews tokens.
        audience: required audience of tokens.
        known: returns the caller for a service account, ``NAMESPACE/NAME``, or None for an unknown service account.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        review: Review,
        audience: str,
        known: Callable[[str], Caller | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._review = review
        self._audience = audience
        self._caller = known
        self._clock = clock
        self._reviewed: dict[bytes, tuple[float, Reviewed]] = {}

    async def authenticate(self, token: str) -> Caller:
        account, pod = await self._whose(token) if token else Reviewed()
        caller = self._caller(account) if account else None
        if caller is None:
            raise Unauthenticated(
                "the token is missing or invalid; send a token of a registered service account, with the audience "
                f"{self._audience}"
            )
        return replace(caller, pod=pod) if pod else caller

    async def _whose(self, token: str) -> Reviewed:
        digest, now = _digest(token), self._clock()
        until, whose = self._reviewed.get(digest, (0.0, Reviewed()))
        if now >= until:
            whose = await self._review(token, self._audience)
            if len(self._reviewed) >= _MOST:
                self._reviewed.clear()
            seconds = _REMEMBERED_SECONDS if whose.account else _REMEMBERED_REFUSAL_SECONDS
            self._reviewed[digest] = now + seconds, whose
        return whose


def service_accounts(fixed: Callable[[], Mapping[str, Caller]], catalog: Catalog) -> Callable[[str], Caller | None]:
    """Returns a function that looks up the caller for a service account, first in ``fixed`` and then in the catalog."""

    def caller(name: str) -> Caller | None:
        registered = catalog.service_accounts.get(name)
        return fixed().get(name) or (Caller(name, registered.pool) if registered is not None else None)

    return caller


def read_service_accounts(path: Path) -> dict[str, Caller]:
    """Read the callers in a JSON file, by the name of their service account.

    The file is one object. Its keys are ``NAMESPACE/NAME``, and each value is ``{"pool": "NAMESPACE/POOL"}`` or
    ``{"admin": true}``. An administrator with a ``namespace`` may make changes for that namespace only.

    Raises:
        ValueError: the file can't be read or has another format.
    """
    return {name: _caller(name, known) for name, known in _read(path).items()}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
