"""Simulates the tenants of a load as clients of an engine, in virtual time."""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tenantzone_replay.simulation.clock import UNIX_TIME
from tenantzone_replay.simulation.measures import Target, TenantMeasures
from tenantzone_replay.simulation.policies import BUCKET_SECONDS, Policy
from tenantzone_replay.traces.load import Asked
from tenantzone_runtime.engine.modelless.engine_shape import Prompt
from tenantzone_runtime.engine.modelless.schedulers import ModellessScheduler


class TokenBucket:
    """The token bucket of one tenant. Requests that exceed the tenant's rate wait in the frontend.

    (Turner, *New Directions in Communications*, IEEE Communications Magazine 24(10), 1986.)

    Args:
        rate: the number of tokens that the bucket gains per second.
        depth: the maximum number of tokens in the bucket.
    """

    def __init__(self, rate: float, depth: float) -> None:
        self._rate = rate
        self._depth = depth
        self._saved = depth
        self._filled = 0.0
        """Time of the last refill, in seconds. It is in the future while an earlier request waits for tokens."""

    def passes_at(self, arrival: float, tokens: int) -> float:
        """Returns the time at which a request may proceed, and takes the request's tokens out of the bucket.

        A request that is larger than the depth waits until the bucket is full. If the rate is 0, returns
        ``math.inf``, because no request may ever proceed.
        """
        if not self._rate:
            return math.inf
        now = max(arrival, self._filled)
        self._saved = min(self._depth, self._saved + (now - self._filled) * self._rate)
        missing = min(tokens, self._depth) - self._saved
        if missing > 0:
            now += missing / self._rate
            self._saved += missing
        self._saved = max(0.0, self._saved - tokens)
        self._filled = now
        return now


@dataclass(slots=True)
class _UnderWay:
    """A request in flight, that is, sent to the scheduler and not finished."""

    tenant: str
    arrival: float
    prompt_tokens: int
    output_tokens: int
    """Number of answer tokens that the request asks for."""
    tokens: int = 0
    """Number of answer tokens received so far."""
    hit_tokens: int = 0
    first_token: float = 0.0
    """Time at which the first answer token was received, in seconds on the virtual clock."""


class TenantsAtWork:
    """Sends a load to a scheduler, and measures the answers.

    Args:
        load: the requests, in the order of arrival.
        scheduler: the scheduler that serves the requests.
        policy: the policy that the scheduler runs.
        measures: the measures of each tenant of the load. This object updates them.
        target: the latency target for each request.
        begin: the time on the virtual clock at which the load begins, in seconds.
        in_flight: the number of concurrent requests, regardless of arrival times. If None, each request is sent at its
            arrival time.
        outside_seconds: the part of the time to first token that passes outside the engine, in seconds.
        answered: called with the number, the tenant, the prompt tokens and the hit tokens of each served request.
    """

    def __init__(
        self,
        load: Iterator[Asked],
        scheduler: ModellessScheduler,
        policy: Policy,
        measures: dict[str, TenantMeasures],
        target: Target,
        begin: float,
        in_flight: int | None = None,
        outside_seconds: float = 0.0,
        answered: Callable[[int, str, int, int], None] = lambda *_: None,
    ) -> None:
        self.under_way: dict[str, _UnderWay] = {}
        """Requests in flight, by request id."""
        self._load = enumerate(load)
        self._scheduler = scheduler
        self._policy = policy
        self._measures = measures
        self._target = target
        self._begin = begin
        self._in_flight = in_flight
        self._outside_seconds = outside_seconds
        self._answered = answered
        self._owner = {tenant: number + 1 if policy.salted else 0 for number, tenant in enumerate(measures)}
        self._buckets = {
            tenant: TokenBucket(rate, rate * BUCKET_SECONDS) for tenant, rate in (policy.bucket or {}).items()
        }
        self._at_frontend: list[tuple[float, int, Asked]] = []
        """Heap of the requests that have arrived but were not sent yet.

        An entry consists of the time at which the request may be sent, the request's number, and the request.
        """
        self._next = next(self._load, None)

    @property
    def longest(self) -> int:
        """Maximum number of tokens, including the answer, of a request that the engine accepts."""
        shape = self._scheduler.shape
        return min(shape.longest, shape.blocks * shape.block_tokens)

    def send_due(self, now: float) -> None:
        while self._next is not None and self._comes(self._next[1], now):
            number, asked = self._next
            self._next = next(self._load, None)
            if self._in_flight is not None:
                asked = asked.at(now - self._begin)
            # Check the length first, because a request that is too long must take no tokens from the bucket.
            is_too_long = asked.prompt_tokens + asked.output_tokens > self.longest
            if is_too_long or (passes := self._passes_frontend(asked, now)) == math.inf:
                self._measures[asked.tenant].refused += 1
            else:
                heapq.heappush(self._at_frontend, (passes, number, asked))
        while self._at_frontend and self._at_frontend[0][0] <= now:
            _, number, asked = heapq.heappop(self._at_frontend)
            self._send(number, asked)

    def next_arrival(self) -> float | None:
        coming = [self._at_frontend[0][0]] if self._at_frontend else []
        if self._next is not None and self._in_flight is None:
            coming.append(self._begin + self._next[1].arrival)
        return min(coming, default=None)

    def _comes(self, asked: Asked, now: float) -> bool:
        if self._in_flight is not None:
            # Requests that wait for the token bucket also count as concurrent requests.
            return len(self.under_way) + len(self._at_frontend) < self._in_flight
        return self._begin + asked.arrival <= now

    def receive(self, output: Any, now: float) -> None:
        request = self.under_way.get(output.request_id)
        if request is None:
            return
        if output.prefill_stats is not None:
            request.hit_tokens = output.prefill_stats.num_cached_tokens
        if output.new_token_ids and not request.tokens:
            request.first_token = now
        request.tokens += len(output.new_token_ids)
        if output.finish_reason is not None:
            del self.under_way[output.request_id]
            if not request.tokens or str(output.finish_reason) == "error":
                self._measures[request.tenant].refused += 1
                return
            self._served(request, now)
            self._answered(int(output.request_id), request.tenant, request.prompt_tokens, request.hit_tokens)

    def give_up(self) -> None:
        """End the replay, and count all unfinished requests as refused."""
        rest = [] if self._next is None else [self._next]
        waiting = [asked.tenant for _, _, asked in self._at_frontend] + [
            each.tenant for each in self.under_way.values()
        ]
        for tenant in chain(waiting, (asked.tenant for _, asked in chain(rest, self._load))):
            self._measures[tenant].refused += 1

    def _passes_frontend(self, asked: Asked, now: float) -> float:
        # Use the current time if the arrival, because of rounding, is slightly later.
        arrival = min(self._begin + asked.arrival, now)
        bucket = self._buckets.get(asked.tenant)
        if bucket is None:
            return arrival
        tokens = asked.prompt_tokens + asked.output_tokens
        passes = bucket.passes_at(arrival, tokens)
        if passes > arrival:
            self._measures[asked.tenant].withheld_tokens += tokens
        return passes

    def _send(self, number: int, asked: Asked) -> None:
        arrival = self._begin + asked.arrival
        # Pad the number with zeros, because vLLM's priority queue sorts requests with equal arrival times by id.
        name = f"{number:012}"
        self.under_way[name] = _UnderWay(asked.tenant, arrival, asked.prompt_tokens, asked.output_tokens)
        self._scheduler.send(
            name,
            asked.tenant,
            Prompt(number, asked.prompt_tokens, asked.content, asked.content_tokens, asked.known_tokens),
            asked.output_tokens,
            arrival=UNIX_TIME + arrival,
            owner=self._owner[asked.tenant],
        )

    def _served(self, request: _UnderWay, now: float) -> None:
        measures = self._measures[request.tenant]
        measures.requests += 1
        measures.prompt_tokens += request.prompt_tokens
        measures.hit_tokens += request.hit_tokens
        measures.output_tokens += request.tokens
        first_token = request.first_token - request.arrival + self._outside_seconds
        measures.first_token.add(first_token)
        token = (now - request.first_token) / (request.tokens - 1) if request.tokens > 1 else 0.0
        if request.tokens > 1:
            measures.token.add(token)
        is_whole = request.tokens >= request.output_tokens
        measures.cut_short += not is_whole
        measures.attained += is_whole and first_token <= self._target.first_token and token <= self._target.token
