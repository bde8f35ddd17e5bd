"""A plan of load: streams of requests that several processes send, and what comes back."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bench.gpu.results import MOST_ERRORS


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant as an engine's clients name it."""

    headers: dict[str, str]
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of random token ids.

    Attributes:
        vocabulary: tokens are drawn from below this number.
        prefix: tokens that all prompts of one `seed` share.
        own: tokens that no other prompt shares.
        seed: of all prompts; the same seed gives the same prompts in the same order.
    """

    vocabulary: int
    prefix: int
    own: int
    seed: str

    @property
    def tokens(self) -> int:
        """The length of each prompt."""
        return self.prefix + self.own

    def prompt(self, number: int) -> list[int]:
        """One prompt as token ids; the lowest ids, which tokenizers use for special tokens, are left out."""
        return [*self._tokens("prefix", self.prefix), *self._tokens(str(number), self.own)]

    def _tokens(self, name: str, count: int) -> list[int]:
        rng = random.Random(f"{self.seed}/{name}")
        return [rng.randrange(_FIRST_TOKEN, self.vocabulary) for _ in range(count)]


_FIRST_TOKEN = 8


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one kind.

    Attributes:
        name: of the stream in its plan.
        url: of the engine.
        callers: each request comes from one of them, drawn at random.
        prompts: of the requests.
        answer: tokens of each answer.
        arrivals: seconds after the plan's begin at which requests are sent, however many are unanswered; or else
        at_once: requests that are always unanswered, each followed by the next.
        first: the number of the first prompt.
        step: from the number of one prompt to the next.
        stagger: whether the first answers have random lengths, so that later ones do not end together.
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
        streams: with distinct names.
        window: seconds after the plan's begin between which tokens and completed requests are counted. Streams with
            `at_once` go on until the window has passed and all requests with arrivals are answered.
    """

    streams: tuple[Stream, ...]
    window: tuple[float, float]


@dataclass(slots=True)
class Answered:
    """The requests of one stream.

    Attributes:
        requests: that were sent and ended.
        failed: requests without a complete answer.
        errors: the first reasons, at most `MOST_ERRORS`.
        first_token_seconds: of each complete answer, from sending the request; only for requests with arrivals.
        token_seconds: between events with tokens, of all complete answers; only for requests with arrivals.
        cached_tokens: of the prompts of complete answers.
        prompt_tokens: of complete answers.
        window_tokens: of prompts and answers in the window; a prompt counts when its first token comes.
        window_generated: tokens of answers in the window.
        window_requests: completed in the window.
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
        """Add the requests of another process."""
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
        plan: to divide.
        processes: at least 1.
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
    """Random arrival times of a Poisson process.

    Args:
        rate: arrivals per second.
        begin: of the interval, in seconds.
        end: of the interval, in seconds.
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
    """An upper bound of the unanswered requests, for choosing a number of processes."""
    return sum(stream.at_once or len(stream.arrivals) for stream in streams)
