"""Sets one annotation of a pool's pods, which makes kubelet sync the pods' volumes immediately."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.resources import Pod
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.logs import About
from tenantzone_operator.writing.refusals import Refusals
from tenantzone_operator.writing.write_all import write_all


class Annotating:
    """Sets an annotation on pods on which its value differs. A pod that can't be annotated does not delay other pods.

    Args:
        annotation: the annotation's name.
        read: returns the annotation's value from a pod in the store.
        api: writes the annotation.
        log: logs that a pod can't be annotated.
    """

    def __init__(self, annotation: str, read: Callable[[Pod], str], api: Api, log: logging.Logger | About) -> None:
        self._annotation = annotation
        self._read = read
        self._api = api
        self._log = log
        self._written: dict[str, str] = {}
        self._refusals = Refusals()
        self.writes = 0
        """Number of writes since the start."""

    async def annotate(self, wanted: Sequence[tuple[Pod, str]]) -> None:
        """Annotate the pods on which the annotation has a different value.

        Args:
            wanted: all pods of the pool, each with the wanted value; an empty value leaves the pod unchanged.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: a write failed.
        """
        self._written = {pod.meta.uid: self._written.get(pod.meta.uid, self._read(pod)) for pod, _ in wanted}
        self._refusals.keep(self._written)
        now = time.monotonic()
        outdated = [
            (pod, value)
            for pod, value in wanted
            if value and value != self._written[pod.meta.uid] and self._refusals.may_try(pod.meta.uid, value, now)
        ]
        await write_all([partial(self._annotate, pod, value) for pod, value in outdated])

    def look_again(self) -> None:
        """Discard the last written values, so that :meth:`annotate` corrects changes by other clients."""
        self._written = {}

    @property
    def retry_seconds(self) -> float | None:
        """Seconds after which to retry a refused write; None if no write was refused."""
        return self._refusals.retry_seconds(time.monotonic())

    async def _annotate(self, pod: Pod, value: str) -> None:
        try:
            await self._api.annotate(pod, self._annotation, value)
        except RestError as error:
            if not error.is_lasting:
                raise
            # Only log the refusal, because kubelet also syncs without the annotation, but later.
            if self._refusals.note(pod.meta.uid, value, time.monotonic()):
                self._log.warning("pod %s can't be annotated: %s", pod.meta.name, explain(error))
            return
        self.writes += 1
        self._written[pod.meta.uid] = value
