"""TokenReview requests from a pod to its own API server."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import aiohttp

from tenantzone_contract.keys.renewed import Renewed
from tenantzone_contract.keys.tls import TlsFiles, client_context
from tenantzone_manager.server.access import Reviewed

_PREFIX: Final = "system:serviceaccount:"
_POD: Final = "authentication.kubernetes.io/pod-name"


class ApiServerReview:
    """Sends TokenReviews over HTTPS with the pod's own token and CA file. Both files may be replaced at any time.

    Args:
        server: URL of the API server.
        credentials: folder with ``token`` and ``ca.crt``.
    """

    def __init__(self, server: str, credentials: Path) -> None:
        self._url = f"{server}/apis/authentication.k8s.io/v1/tokenreviews"
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        authorities = TlsFiles(authorities=credentials / "ca.crt")
        self._tls = Renewed(
            authorities.paths, lambda: client_context(authorities), about="TLS to the Kubernetes API server"
        )

    async def __call__(self, token: str, audience: str) -> Reviewed:
        own, tls = await asyncio.to_thread(self._read)
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        headers = {"Authorization": f"Bearer {own.strip()}"}
        try:
            async with self._opened().post(self._url, json=review, headers=headers, ssl=tls) as answer:
                answer.raise_for_status()
                status = (await answer.json()).get("status", {})
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OSError(f"the API server did not review a token: {error}") from error
        # An API server that does not support audiences returns no audiences, and has not checked the token's audience.
        if not status.get("authenticated") or audience not in status.get("audiences", ()):
            return Reviewed()
        user = status.get("user", {})
        name = str(user.get("username", ""))
        if not name.startswith(_PREFIX):
            return Reviewed()
        pod = (user.get("extra") or {}).get(_POD) or [""]
        return Reviewed(name.removeprefix(_PREFIX).replace(":", "/", 1), str(pod[0]))

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _read(self) -> tuple[str, ssl.SSLContext]:
        """Returns the pod's own token, and the TLS context for connections to the API server."""
        try:
            return (self._credentials / "token").read_text(), self._tls.newest()
        except ValueError as error:
            raise OSError(f"can't ask the API server to review a token: {error}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))
        return self._session
