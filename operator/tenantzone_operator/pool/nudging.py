"""Tells kubelet of Secrets that have changed: it looks at a pod's volumes at once when the pod's annotations change."""

import hashlib
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.resources import Pod
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.logs import About
from tenantzone_operator.writing.refusals import Refusals
from tenantzone_operator.writing.write_all import write_all


class Nudging:
    """Annotates pods with a hash of the versions of the Secrets that they mount.

    Args:
        api: for writing it.
        log: where it says that a pod can't be annotated.
    """

    def __init__(self, api: Api, log: logging.Logger | About) -> None:
        self._api = api
        self._log = log
        self._told: dict[str, str] = {}
        self._refusals = Refusals()
        self.writes = 0
        """How many were made since the start."""

    async def tell(self, pods: Sequence[Pod], versions: Mapping[str, str], unwatched: Collection[str]) -> None:
        """Annotate the pods whose kubelet has not been told of these versions.

        Args:
            pods: of the pool.
            versions: of the Secrets that are known, by name.
            unwatched: those that won't be.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: something could not be written.
        """
        self._told = {pod.meta.uid: self._told.get(pod.meta.uid, pod.secrets_hash) for pod in pods}
        self._refusals.keep(self._told)
        now = time.monotonic()
        wanted = [(pod, secrets_hash(pod, versions, unwatched)) for pod in pods]
        untold = [
            (pod, hash_)
            for pod, hash_ in wanted
            if hash_ and hash_ != self._told[pod.meta.uid] and self._refusals.may_try(pod.meta.uid, hash_, now)
        ]
        await write_all([partial(self._annotate, pod, hash_) for pod, hash_ in untold])

    @property
    def retry_seconds(self) -> float | None:
        """Seconds after which to try again a write that was refused; None if none was."""
        return self._refusals.retry_seconds(time.monotonic())

    async def _annotate(self, pod: Pod, hash_: str) -> None:
        try:
            await self._api.annotate_secrets(pod, hash_)
        except RestError as error:
            if not error.is_lasting:
                raise
            if self._refusals.note(pod.meta.uid, hash_, time.monotonic()):
                self._log.warning("pod %s can't be annotated: %s", pod.meta.name, explain(error))
            return
        self.writes += 1
        self._told[pod.meta.uid] = hash_


def secrets_hash(pod: Pod, versions: Mapping[str, str], unwatched: Collection[str]) -> str:
    """The hash of the versions of the Secrets that a pod mounts; empty if it mounts none, or some are not known yet."""
    watched = [name for name in pod.secrets if name not in unwatched]
    if not watched or not all(name in versions for name in watched):
        return ""
    text = "".join(f"{name}={versions[name]}\n" for name in watched)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
