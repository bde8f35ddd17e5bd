"""One annotation of a pool's pods, which makes kubelet sync their volumes at once."""

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
    """Writes the annotation where it differs; a pod that can't be annotated delays no other.

    Args:
        annotation: the annotation's name.
        read: returns the annotation's value of a pod as last seen.
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
        """The number of writes since the start."""

    async def annotate(self, wanted: Sequence[tuple[Pod, str]]) -> None:
        """Annotate the pods that have another value.

        Args:
            wanted: all pods of the pool, each with the value that it should have; empty to keep its own.

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
        """Have the next call of :meth:`annotate` compare with what the pods have: others may have changed it."""
        self._written = {}

    @property
    def retry_seconds(self) -> float | None:
        """Seconds after which to retry a refused write; None if none was refused."""
        return self._refusals.retry_seconds(time.monotonic())

    async def _annotate(self, pod: Pod, value: str) -> None:
        try:
            await self._api.annotate(pod, self._annotation, value)
        except RestError as error:
            if not error.is_lasting:
                raise
            # Kubelet syncs without the annotation, too, only later.
            if self._refusals.note(pod.meta.uid, value, time.monotonic()):
                self._log.warning("pod %s can't be annotated: %s", pod.meta.name, explain(error))
            return
        self.writes += 1
        self._written[pod.meta.uid] = value
