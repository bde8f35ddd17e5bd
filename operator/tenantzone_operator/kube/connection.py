"""Which cluster to use, and as whom: one answer for both clients, kopf's and ours."""

import asyncio
from dataclasses import dataclass

import kopf

from tenantzone_operator.kube.kubeconfig import CredentialsError, from_kubeconfig, from_service_account

__all__ = ["Connection", "CredentialsError"]


@dataclass(frozen=True, slots=True)
class Connection:
    """The cluster and the credentials that the operator was told to use."""

    kubeconfig: str | None
    """None: the cluster in which this process runs in a pod."""

    async def for_kopf(self) -> kopf.ConnectionInfo:
        """Read the credentials, for kopf and for our own requests.

        Raises:
            CredentialsError: the kubeconfig or the pod's service account can't be used.
        """
        # In a thread: a kubeconfig may name a program that takes its time.
        if self.kubeconfig:
            return await asyncio.to_thread(from_kubeconfig, self.kubeconfig)
        return await asyncio.to_thread(from_service_account)
