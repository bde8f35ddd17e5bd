"""Jobs: chunks that the caller gave together, to store or to load, and what became of them."""

import time
from dataclasses import dataclass, field

from tenantzone_runtime.disk.transfers import Transfer


@dataclass(slots=True)
class Job:
    """Chunks that the caller gave together."""

    number: int
    is_load: bool
    began: float
    chunk_bytes: int
    left: dict[bytes, Transfer] = field(default_factory=dict)
    moved: list[bytes] = field(default_factory=list)
    failed: int = 0

    def ended(self, key: bytes, error: Exception | None) -> bool:
        """Note what became of a chunk; returns whether the job waited for it."""
        if self.left.pop(key, None) is None:
            return False
        if error is None:
            self.moved.append(key)
        else:
            self.failed += 1
        return True

    def give_up(self) -> None:
        """Take back the memory of all that is not done."""
        self.failed += len(self.left)
        for transfer in self.left.values():
            transfer.memory.take_back()
        self.left.clear()


@dataclass(frozen=True, slots=True)
class JobEnd:
    """What became of a job."""

    number: int
    is_whole: bool
    """Whether each chunk that was on its way has arrived."""
    moved: list[bytes]
    """The keys of those that have."""
    seconds: float
    moved_bytes: int


class Jobs:
    """The jobs of one disk: those that go on, and what became of others."""

    def __init__(self) -> None:
        self._going_on: dict[int, Job] = {}
        self._ended: list[JobEnd] = []

    def begin(self, job: Job) -> None:
        """Note a job that was given; one without chunks on their way has ended."""
        self._going_on[job.number] = job
        self._end_if_over(job)

    def chunk_ended(self, job: Job, key: bytes, error: Exception | None) -> None:
        """Note what became of a chunk, whoever waits for it."""
        if job.ended(key, error):
            self._end_if_over(job)

    def begun_before(self, then: float) -> list[Job]:
        """The jobs that go on and began before some time."""
        return [job for job in self._going_on.values() if job.began < then]

    def give_up(self, job: Job) -> None:
        """End a job; what is on its way goes on without the caller's memory."""
        job.give_up()
        self._end_if_over(job)

    def give_up_all(self) -> None:
        """End all jobs at once: no memory of the caller's is touched when this returns."""
        for job in list(self._going_on.values()):
            self.give_up(job)

    def take_ended(self) -> list[JobEnd]:
        """What became of the jobs that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _end_if_over(self, job: Job) -> None:
        if job.left:
            return
        del self._going_on[job.number]
        seconds = time.monotonic() - job.began
        self._ended.append(JobEnd(job.number, not job.failed, job.moved, seconds, len(job.moved) * job.chunk_bytes))
