"""A plan of load: streams of requests that several processes send, and the counts and times of their answers."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bench.gpu.results import MOST_ERRORS


@dataclass(frozen=True, slots=True)
class Caller:
    """The headers and body fields that mark a request as a tenant's."""

    headers: dict[str, str]
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of random token ids.

    Attributes:
        vocabulary: the upper bound of token ids.
        prefix: the number of tokens that all prompts of one `seed` begin with.
        own: the number of tokens after the prefix, which are random for each prompt.
        seed: the seed of all prompts; the same seed gives the same prompts in the same order.
    """

    vocabulary: int
    prefix: int
    own: int
    seed: str

    @property
    def tokens(self) -> int:
        """Length of each prompt, in tokens."""
        return self.prefix + self.own

    def prompt(self, number: int) -> list[int]:
        """Returns one prompt as token ids, without the lowest ids, which tokenizers use for special tokens."""
        return [*self._tokens("prefix", self.prefix), *self._tokens(str(number), self.own)]

    def _tokens(self, name: str, count: int) -> list[int]:
        rng = random.Random(f"{self.seed}/{name}")
        return [rng.randrange(_FIRST_TOKEN, self.vocabulary) for _ in range(count)]


_FIRST_TOKEN = 8


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one kind.

    Attributes:
        name: the name of the stream in its plan.
        url: the URL of the engine.
        callers: the callers; each request uses a random one of them.
        prompts: the prompts of the requests.
        answer: the length of each answer, in tokens.
        arrivals: times at which requests are sent, in seconds after the plan's start, regardless of how many requests
            are in flight; empty if `at_once` is set.
        at_once: the number of requests in flight at all times, each followed by another one; 0 if `arrivals` is set.
        first: the number of the first prompt.
        step: the difference between the numbers of consecutive prompts.
        stagger: whether the first answers have random lengths, so that later answers do not all end together.
    """

    name: str
    url: str
    callers: tuple[Caller, ...]
    prompts: Prompts
    answer: int
    arrivals: tuple[float, ...] = ()
    at_once: int = 0
    first: int = 0
    step: int = 1
    stagger: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Streams that run at the same time.

    Attributes:
        streams: the streams, with distinct names.
        window: the start and end of the interval in which tokens and completed requests are counted, in seconds after
            the plan's start. Streams with `at_once` go on until the window has passed and all requests with arrival
            times are answered.
    """

    streams: tuple[Stream, ...]
    window: tuple[float, float]


@dataclass(slots=True)
class Answered:
    """Counts and times of one stream's requests.

    Attributes:
        requests: the number of requests that were sent and have ended.
        failed: the number of requests without a complete answer.
        errors: the first errors, at most `MOST_ERRORS`.
        first_token_seconds: the time to first token of each complete answer; only for requests with arrival times.
        token_seconds: the times between events with tokens, over all complete answers; only for requests with arrival
            times.
        cached_tokens: the number of cached prompt tokens, over all complete answers.
        prompt_tokens: the number of prompt tokens, over all complete answers.
        window_tokens: the number of prompt and answer tokens in the window; a prompt counts when the first token of its
            answer arrives.
        window_generated: the number of answer tokens in the window.
        window_requests: the number of requests completed in the window.
    """

    requests: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)
    first_token_seconds: list[float] = field(default_factory=list)
    token_seconds: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    prompt_tokens: int = 0
    window_tokens: int = 0
    window_generated: int = 0
    window_requests: int = 0

    def add(self, other: "Answered") -> None:
        """Add the counts and times of another process."""
        self.requests += other.requests
        self.failed += other.failed
        self.errors = (self.errors + other.errors)[:MOST_ERRORS]
        self.first_token_seconds += other.first_token_seconds
        self.token_seconds += other.token_seconds
        self.cached_tokens += other.cached_tokens
        self.prompt_tokens += other.prompt_tokens
        self.window_tokens += other.window_tokens
        self.window_generated += other.window_generated
        self.window_requests += other.window_requests


def split(plan: Plan, processes: int) -> list[Plan]:
    """Divide a plan's requests among processes; parts without requests are left out.

    Args:
        plan: the plan to divide.
        processes: the number of processes, at least 1.
    """
    parts = []
    for number in range(processes):
        streams = tuple(
            part for stream in plan.streams if (part := _part(stream, number, processes)).arrivals or part.at_once
        )
        if streams:
            parts.append(replace(plan, streams=streams))
    return parts


def _part(stream: Stream, number: int, processes: int) -> Stream:
    share = stream.at_once // processes + (number < stream.at_once % processes)
    return replace(
        stream,
        arrivals=stream.arrivals[number::processes],
        at_once=share,
        first=stream.first + number * stream.step,
        step=stream.step * processes,
    )


def poisson(rate: float, begin: float, end: float, seed: str) -> tuple[float, ...]:
    """Returns random arrival times of a Poisson process.

    Args:
        rate: the mean number of arrivals per second.
        begin: the start of the interval, in seconds.
        end: the end of the interval, in seconds.
        seed: the same seed gives the same times.
    """
    rng = random.Random(seed)
    times: list[float] = []
    now = begin + rng.expovariate(rate)
    while now < end:
        times.append(now)
        now += rng.expovariate(rate)
    return tuple(times)


def concurrency(streams: Sequence[Stream]) -> int:
    """Returns an upper bound of the requests in flight, from which the number of processes is chosen."""
    return sum(stream.at_once or len(stream.arrivals) for stream in streams)
