"""The cluster and the credentials that both clients use: kopf's and ours."""

import asyncio
import ssl
from dataclasses import dataclass, fields

import kopf

from tenantzone_operator.kube.kubeconfig import CredentialsError, from_kubeconfig, from_service_account
from tenantzone_operator.kube.tls_files import check_tls

__all__ = ["Connection", "CredentialsError", "LenientConnection"]


class LenientConnection(kopf.ConnectionInfo):
    """A connection that accepts certificates without key identifiers, as Python before 3.13 does."""

    def as_ssl_context(self) -> ssl.SSLContext:
        """Returns the context that validates certificates, without the checks that Python 3.13 added."""
        context = super().as_ssl_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


@dataclass(frozen=True, slots=True)
class Connection:
    """The configured cluster and credentials."""

    kubeconfig: str | None
    """The kubeconfig's path; None for the cluster in which this process runs in a pod."""
    is_lenient: bool = False
    """Whether the API server's certificate may lack key identifiers."""

    async def for_kopf(self) -> kopf.ConnectionInfo:
        """Read the credentials, for kopf and for our own requests.

        Raises:
            CredentialsError: the kubeconfig or the pod's service account can't be used.
        """
        # In a thread: a kubeconfig may name a program that takes long.
        return await asyncio.to_thread(self._read)

    def _read(self) -> kopf.ConnectionInfo:
        found = from_kubeconfig(self.kubeconfig) if self.kubeconfig else from_service_account()
        try:
            check_tls(found)
        except (OSError, ValueError) as error:
            where = f"kubeconfig {self.kubeconfig}" if self.kubeconfig else "the pod's service account"
            raise CredentialsError(f"{where}: {error}") from None
        if self.is_lenient:
            return LenientConnection(**{field.name: getattr(found, field.name) for field in fields(found)})
        return found
