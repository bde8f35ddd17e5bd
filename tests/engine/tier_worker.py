"""Stands in for the workers of an engine with tiers: memory is names of what would be in it, copies take their time.

What a block holds is named by who computed it and where in its tokens. The hash of these, which says whose they are, is
compared with the one of whatever a request reads; so a block that was given to another before a copy from it was made is
noticed, too.
"""

from random import Random

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
)
from vllm.v1.outputs import KVConnectorOutput

from hack.harness.scheduler import BLOCK_TOKENS

FOREIGN = "memory that nobody computed"


class TierWorker:
    """Copies what the scheduler says, some steps later than it could.

    Args:
        driver: whose steps they are.
        chunks: of the memory tier.
        chance: says how many steps a copy takes.
        slowest: steps that a copy takes at the most.
    """

    def __init__(self, driver, chance=None, slowest=0):
        self.scheduler = driver.scheduler
        self.chance = chance or Random(0)
        self.slowest = slowest
        self.blocks = {}
        self.chunks = {}
        self.stored = self.loaded = 0
        """Blocks."""
        self._deferred = {}
        self._under_way = {}
        """By job: the copy, whether it is a load, whose it is, and the steps until it is done."""
        self._done = []
        driver.copy = self.step

    def step(self, output):
        """One step of the workers: copies that must not wait, zeroing, what is computed, and copies that are done."""
        meta = output.kv_connector_metadata
        for job_id in meta.jobs_to_flush:
            if (job := meta.store_jobs.pop(job_id, None)) is not None:
                self._deferred[job_id] = job
        self._submit_stores()
        for job_id in meta.jobs_to_flush:
            self._finish(job_id)
        for block_id in output.new_block_ids_to_zero or ():
            self.blocks[block_id] = FOREIGN
        self._compute(output)
        for job_id, job in meta.load_jobs.items():
            self._begin(job_id, job, is_load=True)
        self._deferred.update(meta.store_jobs)
        return self._tell()

    def _submit_stores(self):
        deferred, self._deferred = self._deferred, {}
        for job_id, job in deferred.items():
            self._begin(job_id, job, is_load=False)

    def _begin(self, job_id, job, *, is_load):
        self._under_way[job_id] = [job, is_load, self.chance.randint(0, self.slowest)]

    def _finish(self, job_id):
        if job_id in self._under_way:
            job, is_load, _ = self._under_way.pop(job_id)
            self._copy(job, is_load)
            self._done.append((job_id, job.req_id if is_load else None))

    def _copy(self, job, is_load):
        of_engine, of_tier = (job.dst_spec, job.src_spec) if is_load else (job.src_spec, job.dst_spec)
        pairs = zip(of_engine.block_ids.tolist(), of_tier.block_ids.tolist(), strict=True)
        for block_id, chunk_id in pairs:
            if is_load:
                self.blocks[block_id] = self.chunks.get(chunk_id, FOREIGN)
                self.loaded += 1
            else:
                self.chunks[chunk_id] = self.blocks.get(block_id, FOREIGN)
                self.stored += 1

    def _compute(self, output):
        manager = self.scheduler.kv_cache_manager
        for name, count in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[name]
            # The scheduler has counted the step's tokens already.
            end = request.num_computed_tokens
            begin = end - count
            table = manager.get_block_ids(name)[0]
            for index in range(min(begin // BLOCK_TOKENS, len(request.block_hashes))):
                if table[index]:
                    read = self._hash(self.blocks.get(table[index], FOREIGN))
                    assert read == request.block_hashes[index], f"{name} reads another's memory at block {index}"
            for index in range(begin // BLOCK_TOKENS, -(-end // BLOCK_TOKENS)):
                is_full = (index + 1) * BLOCK_TOKENS <= end
                self.blocks[table[index]] = (request, index) if is_full else FOREIGN

    @staticmethod
    def _hash(content):
        if content is FOREIGN:
            return FOREIGN
        request, index = content
        return request.block_hashes[index]

    def _tell(self):
        for job_id, job in list(self._under_way.items()):
            job[2] -= 1
            if job[2] < 0:
                self._finish(job_id)
        done, self._done = self._done, []
        completed = {job_id: 1 for job_id, _ in done}
        return KVConnectorOutput(
            finished_recving={name for _, name in done if name is not None},
            kv_connector_worker_meta=OffloadingWorkerMetadata(completed_jobs=completed) if completed else None,
        )
