"""Who asks: what is shown with a request, whose it is, and what that one may touch."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from tenantzone_contract.renewed import Renewed
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.core.settings import Instance, Namespace


class Unauthenticated(Exception):
    """It is not known who asks."""


class Denied(Exception):
    """It is known, and may not."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    name: str
    pool: str = ""
    """NAMESPACE/POOL, whose instances it may touch."""
    is_admin: bool = False
    """Whether it may touch all of them, and what they share."""
    pod: str = ""
    """The pod that its token is bound to, which tells engines with one service account apart; empty: to none."""
    namespace: str = ""
    """Of an administrator, the only one for which it speaks; empty: for all."""

    @property
    def turns(self) -> str:
        """Whose turns its requests take: those of its pool's instances."""
        return self.pool or self.name

    def require_admin(self) -> None:
        """Refuse whoever is no administrator.

        Raises:
            Denied: it is none.
        """
        if not self.is_admin:
            raise Denied(f"{self.name} may not change what pools share")

    def require_namespace(self, namespace: str) -> None:
        """Refuse an administrator that speaks for another namespace than its own.

        Args:
            namespace: for which it speaks; empty: for all.

        Raises:
            Denied: it is not its own.
        """
        if self.namespace not in ("", namespace):
            whom = f"the namespace {namespace}" if namespace else "all namespaces"
            raise Denied(f"{self.name} speaks for the namespace {self.namespace}, and not for {whom}")

    def may_touch(self, instance: Instance) -> bool:
        """Whether an instance is the caller's."""
        return self.is_admin or (bool(self.pool) and instance.pool == self.pool)


class Authenticator(Protocol):
    """Knows callers by what they show."""

    async def authenticate(self, token: str) -> Caller:
        """Whose a bearer token is; empty: none was shown.

        Raises:
            Unauthenticated: nobody's.
        """


class Anyone:
    """Takes everybody for an administrator: for playing, on loopback."""

    async def authenticate(self, token: str) -> Caller:
        return Caller("anyone", is_admin=True)


class _Known(msgspec.Struct, forbid_unknown_fields=True):
    """Who has a token, or which service account is whose."""

    pool: str = ""
    admin: bool = False
    namespace: Namespace = ""

    def __post_init__(self) -> None:
        if self.namespace and not self.admin:
            raise ValueError("namespace is for an administrator: it says for which one it speaks")


def _caller(name: str, known: _Known) -> Caller:
    return Caller(name, known.pool, known.admin, namespace=known.namespace)


class StaticTokens:
    """Tokens in a file: a JSON object of ``{token: {"pool": "NAMESPACE/POOL"}}`` or ``{token: {"admin": true}}``.

    An administrator with a ``namespace`` beside it speaks for that one only.

    The file is read again when it has changed. While it is missing or broken, the tokens before it stay in force.
    They are held as hashes, so that how long a look-up takes tells nothing of them.

    Args:
        path: of the file.

    Raises:
        ValueError: it is no such file.
    """

    def __init__(self, path: Path) -> None:
        self._callers = Renewed([path], lambda: _callers_by_token(path), about="the callers' tokens")
        self._callers.newest()

    async def authenticate(self, token: str) -> Caller:
        try:
            return self._callers.newest()[_digest(token)]
        except KeyError:
            raise Unauthenticated("show a token that is known: Authorization: Bearer TOKEN") from None


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
    """Whose a token is."""

    account: str = ""
    """``NAMESPACE/NAME`` of a service account; empty: of none, or of another audience."""
    pod: str = ""
    """Name of the pod that it is bound to; empty: to none."""


class Review(Protocol):
    """Asks a Kubernetes API server whose a token is."""

    async def __call__(self, token: str, audience: str) -> Reviewed:
        """Whose a token of this audience is.

        Raises:
            OSError: the API server does not answer.
        """


_REMEMBERED_SECONDS: Final = 60.0
_REMEMBERED_REFUSAL_SECONDS: Final = 5.0
"""Of a token that is nobody's: what the API server needs to know it by may come back."""
_MOST: Final = 10_000


class ReviewedTokens:
    """Projected tokens of service accounts, which the API server reviews (TokenReview).

    Args:
        review: asks the API server.
        audience: that tokens must be made for.
        known: whose pool, or an administrator, a ``NAMESPACE/NAME`` is; None: nobody's.
        clock: monotonic, in seconds.
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
                f"show a token of a service account that is known, made for the audience {self._audience}"
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
    """Whose each service account is: as ``fixed`` says now, else as administrators have registered it."""

    def caller(name: str) -> Caller | None:
        registered = catalog.service_accounts.get(name)
        return fixed().get(name) or (Caller(name, registered.pool) if registered is not None else None)

    return caller


def read_service_accounts(path: Path) -> dict[str, Caller]:
    """Whose each service account is: ``{"NAMESPACE/NAME": {"pool": "NAMESPACE/POOL"}}`` or ``{"admin": true}``.

    An administrator with a ``namespace`` beside it speaks for that one only.

    Raises:
        ValueError: it is no such file.
    """
    return {name: _caller(name, known) for name, known in _read(path).items()}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
