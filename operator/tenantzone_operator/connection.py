"""Which cluster, and as whom: one answer for both clients, kopf's and ours."""

from dataclasses import dataclass

import kopf
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration


class CredentialsError(Exception):
    """No cluster is named, or the credentials can't be used."""


@dataclass(frozen=True, slots=True)
class Connection:
    kubeconfig: str | None
    """None: the cluster in which this process runs in a pod."""

    async def configuration(self) -> Configuration:
        """
        Raises:
            CredentialsError: the kubeconfig or the pod's service account can't be used.
        """
        configuration = Configuration()
        try:
            if self.kubeconfig:
                await config.load_kube_config(self.kubeconfig, client_configuration=configuration, persist_config=False)
            else:
                config.load_incluster_config(client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            where = f"kubeconfig {self.kubeconfig}" if self.kubeconfig else "not in a pod"
            advice = "" if self.kubeconfig else "; name a cluster with --kubeconfig or KUBECONFIG"
            raise CredentialsError(f"{where}: {error}{advice}") from None
        return configuration

    async def for_kopf(self) -> kopf.ConnectionInfo:
        configuration = await self.configuration()
        authorization = await configuration.get_api_key_with_prefix("BearerToken")
        scheme, _, token = (authorization or "").rpartition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            scheme=scheme or None,
            token=token or None,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
        )
