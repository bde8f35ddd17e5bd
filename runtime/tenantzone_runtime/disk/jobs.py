"""The jobs of a disk tier: chunks that the caller stores or loads together, and their outcomes."""

import time
from math import inf

from tenantzone_runtime.disk.transfers import Job, JobEnd, Transfer, end_of


class Jobs:
    """The jobs of one disk: the jobs in progress, and the outcomes of ended jobs."""

    def __init__(self) -> None:
        self._going_on: dict[int, Job[Transfer]] = {}
        self._ended: list[JobEnd] = []
        self._moved_at = dict.fromkeys((False, True), -inf)
        """Time at which a chunk was last moved, by direction (whether it was a load)."""

    def begin(self, job: Job[Transfer]) -> None:
        """Start a job. A job without chunks in transfer ends at once."""
        self._going_on[job.number] = job
        self._end_if_over(job)

    def chunk_ended(self, job: Job[Transfer], key: bytes, error: Exception | None) -> bool:
        """Record the outcome of a chunk. Returns whether it was the last chunk for which the job waited."""
        self._moved_at[job.is_load] = time.monotonic()
        if not job.ended(key, error):
            return False
        self._end_if_over(job)
        return not job.left

    def late(self, now: float, seconds: float) -> list[Job[Transfer]]:
        """Returns the jobs that are overdue, or in whose direction no chunk was moved for ``seconds``."""
        still = {way: now - seconds > moved_at for way, moved_at in self._moved_at.items()}
        return [
            job
            for job in self._going_on.values()
            if now > job.until or (still[job.is_load] and now - seconds > job.began)
        ]

    def give_up(self, job: Job[Transfer]) -> None:
        """End a job. Its transfers may continue, but do not access the caller's memory."""
        job.give_up()
        self._end_if_over(job)

    def give_up_all(self) -> None:
        """End all jobs immediately. Afterwards, no thread accesses the caller's memory."""
        for job in list(self._going_on.values()):
            self.give_up(job)

    def take_ended(self) -> list[JobEnd]:
        """Returns the outcomes of the jobs that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _end_if_over(self, job: Job[Transfer]) -> None:
        if not job.left:
            del self._going_on[job.number]
            self._ended.append(end_of(job, time.monotonic()))
