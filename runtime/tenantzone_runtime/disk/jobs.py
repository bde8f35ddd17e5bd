"""The jobs of a tier. A job is a group of chunks that the caller stores or loads together."""

import time
from collections.abc import Callable
from math import inf
from typing import Any

from tenantzone_runtime.disk.transfers import Job, JobEnd, end_of


class Jobs:
    """The jobs of one tier that are in progress, and the outcomes of jobs that have ended.

    Args:
        seconds: a job is late if the tier moved no chunk in the job's direction for this time, even before the job's
            own deadline.
    """

    def __init__(self, seconds: float = inf) -> None:
        self._seconds = seconds
        self._going_on: dict[int, tuple[Job[Any], Callable[[bool], object]]] = {}
        self._ended: list[JobEnd] = []
        self._moved_at = dict.fromkeys((False, True), -inf)
        """Time at which a chunk was last moved, by direction: True for loads, False for stores."""

    def begin(self, job: Job[Any], giving_up: Callable[[bool], object] = bool) -> None:
        """Start tracking a job. If the job has no chunks in transfer, it ends at once.

        Args:
            job: the job.
            giving_up: called before the job is given up. The argument is True if the job is late.
        """
        self._going_on[job.number] = job, giving_up
        self._end_if_over(job)

    def chunk_ended(self, job: Job[Any], key: bytes, error: Exception | None) -> bool:
        """Record the outcome of a chunk. Returns True if the job waited only for this chunk, and so has ended."""
        self._moved_at[job.is_load] = time.monotonic()
        if not job.ended(key, error):
            return False
        self._end_if_over(job)
        return not job.left

    def give_up_late(self, now: float) -> None:
        """Give up late jobs, so that no request waits for them. Late transfers may continue.

        A job is late after its deadline, or if the tier moved no chunk in the job's direction for ``seconds``.
        """
        since = now - self._seconds
        is_stalled = {way: since > moved_at for way, moved_at in self._moved_at.items()}
        for job, giving_up in list(self._going_on.values()):
            if now > job.until or (is_stalled[job.is_load] and since > job.began):
                giving_up(True)
                self._give_up(job)

    def give_up_all(self) -> None:
        """Give up all jobs. After this call, no thread accesses the caller's memory."""
        for job, giving_up in list(self._going_on.values()):
            giving_up(False)
            self._give_up(job)

    def take_ended(self) -> list[JobEnd]:
        """Returns the outcomes of the jobs that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _give_up(self, job: Job[Any]) -> None:
        job.give_up()
        self._end_if_over(job)

    def _end_if_over(self, job: Job[Any]) -> None:
        if not job.left:
            del self._going_on[job.number]
            self._ended.append(end_of(job, time.monotonic()))
