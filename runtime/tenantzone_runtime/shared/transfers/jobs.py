"""The caller's store and load jobs, and how the caller's memory is taken from late jobs."""

import time
from collections.abc import Callable

from tenantzone_runtime.disk.transfers import Job, JobEnd, end_of
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.spaces import SharedZone
from tenantzone_runtime.shared.transfers.reading import LoadedChunk
from tenantzone_runtime.shared.transfers.writing import StoredChunk

AnyJob = Job[StoredChunk] | Job[LoadedChunk]


class Jobs:
    """All jobs in progress.

    Args:
        settings: the time limits of jobs.
    """

    def __init__(self, settings: SharedSettings) -> None:
        self._patience = {True: settings.load_seconds, False: settings.store_seconds}
        self._under_way: dict[int, tuple[AnyJob, SharedZone, Callable[[bool], object]]] = {}
        self._ends: list[JobEnd] = []

    def begin(self, job: AnyJob, zone: SharedZone | None, giving_up: Callable[[bool], object] = bool) -> None:
        """Start a job. A job without chunks ends at once.

        ``giving_up`` is called before the job is given up. Its argument is whether the job is late.
        """
        if job.left and zone is not None:
            self._under_way[job.number] = job, zone, giving_up
        else:
            self._ends.append(end_of(job, time.monotonic()))

    def ended(self, job: AnyJob, key: bytes, error: Exception | None) -> None:
        """Record that a chunk of a job was moved or has failed. Ignored if the job was given up."""
        if job.ended(key, error) and not job.left:
            self._end(job)

    def give_up_late(self) -> None:
        """Give up late jobs, so that no request waits for them."""
        now = time.monotonic()
        for job, zone, giving_up in list(self._under_way.values()):
            if now - job.began > self._patience[job.is_load]:
                zone.counts.late += len(job.left)
                giving_up(True)
                self._give_up(job)

    def give_up_all(self) -> None:
        """Give up all jobs. Afterwards, no thread accesses the caller's memory."""
        for job, _, giving_up in list(self._under_way.values()):
            giving_up(False)
            self._give_up(job)

    def take_ends(self) -> list[JobEnd]:
        """Returns the jobs that have ended since the last call."""
        ends, self._ends = self._ends, []
        return ends

    def _give_up(self, job: AnyJob) -> None:
        job.give_up()
        self._end(job)

    def _end(self, job: AnyJob) -> None:
        del self._under_way[job.number]
        self._ends.append(end_of(job, time.monotonic()))
