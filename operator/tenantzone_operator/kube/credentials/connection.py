"""The cluster and the credentials, which kopf's client and the operator's own client share."""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, fields

import kopf

from tenantzone_contract.extras import install_command
from tenantzone_operator.kube.credentials.service_account import CredentialsError, from_service_account
from tenantzone_operator.kube.credentials.tls_files import check_tls

_SECONDS = 60.0

__all__ = ["Connection", "CredentialsError", "LenientConnection"]


class LenientConnection(kopf.ConnectionInfo):
    """A connection that accepts certificates without key identifiers, as Python before 3.13 does."""

    def as_ssl_context(self) -> ssl.SSLContext:
        """Returns the context that validates certificates, without the checks that Python 3.13 added."""
        context = super().as_ssl_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


@dataclass(slots=True)
class Connection:
    """The configured cluster and credentials."""

    kubeconfig: str | None
    """The kubeconfig's path; None to use the service account of the pod in which this process runs."""
    is_lenient: bool = False
    """Whether the API server's certificate may lack key identifiers."""

    _reading: Future[kopf.ConnectionInfo] | None = field(default=None, init=False, repr=False, compare=False)
    _deadline: float = field(default=0.0, init=False, repr=False, compare=False)

    async def for_kopf(self) -> kopf.ConnectionInfo:
        """Read the credentials for kopf and for the operator's own client.

        Raises:
            CredentialsError: the kubeconfig or the pod's service account can't be used, or reading takes too long.
        """
        # Callers share one attempt, because each attempt with an exec plugin that hangs leaves a thread behind.
        # Callers also share the attempt's deadline, so that a later caller does not wait for another full timeout.
        if self._reading is None or self._reading.done():
            self._reading, self._deadline = _in_thread(self._read), time.monotonic() + _SECONDS
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                return await asyncio.wrap_future(self._reading)
        except TimeoutError:
            hint = "; its exec plugin may hang" if self.kubeconfig else ""
            raise CredentialsError(f"{self._source} could not be read within {_SECONDS:g} s{hint}") from None

    @property
    def _source(self) -> str:
        return f"kubeconfig {self.kubeconfig}" if self.kubeconfig else "the pod's service account"

    def _read(self) -> kopf.ConnectionInfo:
        if self.kubeconfig:
            # Import late, because the official client is not installed in pods, where it would only use memory.
            try:
                from tenantzone_operator.kube.credentials.kubeconfig import from_kubeconfig
            except ImportError as error:
                raise CredentialsError(
                    f"a kubeconfig needs the official Kubernetes client; run {install_command('kubeconfig')}: {error}"
                ) from None

            found = from_kubeconfig(self.kubeconfig)
        else:
            found = from_service_account()
        try:
            check_tls(found)
        except (OSError, ValueError) as error:
            raise CredentialsError(f"{self._source}: {error}") from None
        if self.is_lenient:
            return LenientConnection(**{field.name: getattr(found, field.name) for field in fields(found)})
        return found


def _in_thread(read: Callable[[], kopf.ConnectionInfo]) -> Future[kopf.ConnectionInfo]:
    """Start a function in a daemon thread, which does not delay the end of the process if an exec plugin hangs."""
    future: Future[kopf.ConnectionInfo] = Future()
    # Mark the future as running, so that a caller that times out cancels only its own wait.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(read())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="read credentials", daemon=True).start()
    return future
