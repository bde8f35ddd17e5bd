"""Hides requests from vLLM's offloading in steps in which it has nothing to do for them, to save time."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import RequestOffloadState
from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput


class QuietRequests:
    """Finds quiet requests: those that get no block and fill no storable chunk in a step, or that do not use tiers.

    vLLM's offloading scans all given requests several times in each step, although most of them are quiet.

    Args:
        chunk_tokens: a common divisor of the groups' chunk sizes, in tokens.
    """

    def __init__(self, chunk_tokens: int) -> None:
        self._chunk_tokens = chunk_tokens
        self._full_at: dict[str, int] = {}
        """For each request id, the number of tokens at which the request's next chunk is full."""

    def leave_out(
        self,
        output: SchedulerOutput,
        statuses: Mapping[str, RequestOffloadState],
        may_store: Callable[[RequestOffloadState, int], bool],
        given: set[int],
    ) -> SchedulerOutput:
        """Returns the scheduler's output without the quiet requests.

        Args:
            output: the scheduler's output, which stays unchanged.
            statuses: the requests that use tiers, by id. All other requests are quiet.
            may_store: returns whether a request has new chunks to store, given its number of computed tokens.
            given: a set to which this method adds the ids of blocks that requests outside ``statuses`` get. Before the
                requests use the blocks, pending stores from the blocks must be completed.
        """
        # When a preempted request resumes, its stored chunks may be evicted, so recomputed chunks are stored again.
        for name in chain(output.finished_req_ids, output.scheduled_cached_reqs.resumed_req_ids):
            self._full_at.pop(name, None)
        if not statuses:
            none = CachedRequestData.make_empty()
            return replace(output, scheduled_new_reqs=[], scheduled_cached_reqs=none, num_scheduled_tokens={})
        cached, tokens, full_at = output.scheduled_cached_reqs, output.num_scheduled_tokens, self._full_at
        new, full, busy = [], [], []
        for each in output.scheduled_new_reqs:
            if each.req_id in statuses:
                new.append(each)
                full.append(each.req_id)
            else:
                given.update(chain.from_iterable(each.block_ids))
        for place, (name, blocks, computed) in enumerate(
            zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True)
        ):
            is_full = computed + tokens[name] >= full_at.get(name, 0)
            if not is_full and blocks is None:
                continue
            if name in statuses:
                busy.append(place)
                if is_full:
                    full.append(name)
            elif blocks is not None:
                given.update(chain.from_iterable(blocks))
        rest = copy(output)
        rest.scheduled_new_reqs, rest.scheduled_cached_reqs = new, copy(cached)
        for lists in ("req_ids", "new_token_ids", "new_block_ids", "num_computed_tokens", "num_output_tokens"):
            setattr(rest.scheduled_cached_reqs, lists, _at(busy, getattr(cached, lists)))
        rest.num_scheduled_tokens = {}
        for name in full:
            status = statuses[name]
            computed = status.req.num_computed_tokens + tokens[name]
            # A chunk with tokens that a step in flight generates has no hash yet, so it can't be stored.
            known = min(computed, status.req.num_tokens)
            full_at[name] = known - known % self._chunk_tokens + self._chunk_tokens
            if may_store(status, computed):
                rest.num_scheduled_tokens[name] = tokens[name]
        return rest


def _at(places: list[int], values: list[Any]) -> list[Any]:
    # `new_token_ids` is empty without pipeline parallelism.
    return [values[place] for place in places] if values else []
