"""The two tenants of the bench in virtual time, with the same requests, which go directly to a scheduler."""

import random
from collections import deque

from vllm.v1.engine import EngineCoreOutput

from bench.noisy_neighbour.arms import FLOOD, QUIET, Arm
from bench.noisy_neighbour.asking import Answer, Shape
from hack.harness.clock import Clock
from hack.harness.scheduler import Driver

_TOKENS = range(3, 128)
"""Token ids that prompts consist of."""


class VirtualTenants:
    """A quiet tenant and a flood, whose requests an engine in virtual time fetches.

    Args:
        driver: the driver of the scheduler that gets the requests.
        clock: the engine's clock.
        arm: the arm, which determines the fields of requests.
        shape: the shape of the requests.
        seed: the seed of prompts and times.
    """

    def __init__(self, driver: Driver, clock: Clock, arm: Arm, shape: Shape, seed: int) -> None:
        self.answers: list[Answer] = []
        """The quiet tenant's answers, in the order of the requests."""
        self.flood_answers = 0
        """Number of the flood's complete answers."""
        self._driver = driver
        self._clock = clock
        self._arm = arm
        self._shape = shape
        self._rng = random.Random(seed)
        self._prefix = random.Random(0).choices(_TOKENS, k=shape.prefix_tokens)
        self._due: deque[float] = deque()
        self._quiet: dict[str, Answer] = {}
        self._flood: dict[str, int] = {}
        """Number of answer tokens of each running request of the flood, by request."""
        self._flood_tokens = 0

    @property
    def is_quiet_done(self) -> bool:
        """Whether all requests of the quiet tenant have been sent and answered."""
        return not self._due and not self._quiet

    @property
    def flood_tokens(self) -> int:
        """Number of flood tokens computed so far; a prompt counts when its answer's first token arrives."""
        return self._flood_tokens + sum(map(self._computed, self._flood.values()))

    def ask_quietly(self, requests: int | None = None) -> None:
        """Schedule the quiet tenant's requests as a Poisson process that starts now.

        Args:
            requests: the number of requests; if None, the shape's number.
        """
        at = self._clock.seconds
        for _ in range(self._shape.requests if requests is None else requests):
            at += self._rng.expovariate(self._shape.rate)
            self._due.append(at)

    def flood(self, at_once: int) -> None:
        """Start the flood, with a number of concurrent requests."""
        for _ in range(at_once):
            self._send_of_flood(self._clock.seconds)

    def send_due(self, now: float) -> None:
        while self._due and self._due[0] <= now:
            own = self._rng.choices(_TOKENS, k=self._shape.own_tokens)
            answer = Answer(self._due.popleft())
            self.answers.append(answer)
            self._quiet[self._send(QUIET, self._prefix + own, self._shape.answer_tokens, answer.sent_at)] = answer

    def next_arrival(self) -> float | None:
        return self._due[0] if self._due else None

    def receive(self, output: EngineCoreOutput, now: float) -> None:
        request_id, tokens = output.request_id, len(output.new_token_ids)
        if (answer := self._quiet.get(request_id)) is not None:
            answer.tokens_at += [now] * tokens
            if len(answer.tokens_at) >= self._shape.answer_tokens:
                del self._quiet[request_id]
        elif request_id in self._flood:
            self._flood[request_id] += tokens
            if self._flood[request_id] >= self._shape.flood_answer_tokens:
                self._flood_tokens += self._computed(self._flood.pop(request_id))
                self.flood_answers += 1
                self._send_of_flood(now)

    def _computed(self, answered: int) -> int:
        return self._shape.flood_tokens + answered if answered else 0

    def _send_of_flood(self, now: float) -> None:
        prompt = self._rng.choices(_TOKENS, k=self._shape.flood_tokens)
        self._flood[self._send(FLOOD, prompt, self._shape.flood_answer_tokens, now)] = 0

    def _send(self, tenant: str, prompt: list[int], tokens: int, now: float) -> str:
        fields = self._arm.fields.get(tenant, {})
        request = self._driver.send(
            tenant if self._arm.zones else None,
            prompt,
            max_tokens=tokens,
            arrival_time=now,
            priority=fields.get("priority", 0),
            client_salt=fields.get("cache_salt", ""),
        )
        return str(request.request_id)
