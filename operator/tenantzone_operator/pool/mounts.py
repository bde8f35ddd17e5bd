"""Publishes the config and the Secrets that a pool's engine pods mount, and makes kubelet sync these volumes."""

from collections.abc import Callable, Sequence
from functools import partial

from tenantzone_contract.keys.admin_token import admin_secret_name
from tenantzone_contract.keys.salt import salt_secret_name
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.identity import SECRETS_HASH_ANNOTATION
from tenantzone_operator.engines.admin_key import AdminKey
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.resources import Pod, Pool
from tenantzone_operator.kube.rest import REQUEST_ERRORS
from tenantzone_operator.kube.secret_watch import SecretWatches, most_mounted
from tenantzone_operator.kube.store import Key
from tenantzone_operator.logs import About
from tenantzone_operator.pool.admin_secret import ensure_admin_secret
from tenantzone_operator.pool.annotating import Annotating
from tenantzone_operator.pool.delivery import Delivery
from tenantzone_operator.pool.pool_secret import PoolSecret
from tenantzone_operator.pool.salt_secret import ensure_salt_secret


class Mounts:
    """Publishes the config and the Secrets that the pods of one pool mount.

    Args:
        key: the pool's key.
        api: writes the objects.
        delivery: publishes the pool's config.
        admin_key: derives the pool's admin tokens.
        changed: called when a Secret that a pod mounts has changed.
        log: logs problems.
    """

    def __init__(
        self, key: Key, api: Api, delivery: Delivery, admin_key: AdminKey, changed: Callable[[], None], log: About
    ) -> None:
        self._key = key
        self._delivery = delivery
        self._admin_key = admin_key
        self._salt = PoolSecret(api, log, "a new salt key")
        self._admin = PoolSecret(api, log, "the pool's admin token")
        self._secrets = SecretWatches(key[0], api, changed=changed, log=log)
        self._annotating = Annotating(SECRETS_HASH_ANNOTATION, lambda pod: pod.secrets_hash, api, log)

    @property
    def writes(self) -> int:
        """Number of writes of the ConfigMap and of annotations since the start."""
        return self._delivery.writes + self._annotating.writes

    @property
    def retry_seconds(self) -> list[float | None]:
        """For each kind of write, the seconds until its retry, or None if this kind needs no retry."""
        return [each.retry_seconds for each in (self._delivery, self._salt, self._admin, self._annotating)]

    @property
    def salt_not_made(self) -> str:
        """Why the Secret with the pool's salt key can't be created; empty if nothing prevents it."""
        return self._salt.not_made

    @property
    def token_not_made(self) -> str:
        """Why the Secret with the pool's admin token can't be created; empty if nothing prevents it."""
        return self._admin_key.problem or self._admin.not_made

    def unwatched(self, pool: Pool) -> list[str]:
        """Returns the names of Secrets that the pool's pods mount but the operator can't watch.

        The pool's salt and admin Secrets are left out, because no condition depends on changes to them.
        """
        name = pool.meta.name
        return sorted(set(self._secrets.unwatched) - {salt_secret_name(name), admin_secret_name(name)})

    def follow(self, pods: Sequence[Pod]) -> None:
        """Watch exactly the Secrets that these pods mount."""
        self._secrets.follow(most_mounted(pods))

    def look_again(self) -> None:
        """Make the next :meth:`bring` check the annotations again, because other clients may have changed them."""
        self._annotating.look_again()

    def stop(self) -> None:
        self._secrets.stop()

    async def bring(
        self,
        pool: Pool,
        pods: Sequence[Pod],
        config: RuntimeConfig,
        observations: Sequence[Observation],
        delivered: Callable[[], None],
    ) -> Exception | None:
        """Create missing Secrets, publish the config, and annotate pods. A failed step does not prevent later steps.

        Args:
            pool: the pool.
            pods: all pods of the pool.
            config: the pool's config.
            observations: one observation for each ready engine of the pool.
            delivered: called after the ConfigMap was written.

        Returns:
            The error of the first failed request that may succeed in a retry; None if there was none.
        """

        async def deliver() -> None:
            if await self._delivery.deliver(pool, pods, config):
                delivered()

        failure: Exception | None = None
        for step in (
            # Create Secrets before setting the annotation, so that kubelet projects them together with the config.
            partial(ensure_salt_secret, self._salt, pool, observations),
            partial(ensure_admin_secret, self._admin, pool, observations, self._admin_key.tokens(*self._key)),
            deliver,
            partial(self._annotating.annotate, [(pod, self._secrets.hash_for(pod)) for pod in pods]),
        ):
            try:
                await step()
            except REQUEST_ERRORS as error:
                failure = failure or error
        return failure
