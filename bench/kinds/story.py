"""Runs the demo's flood on one engine, and records the answers with their cached tokens."""

import base64
import io
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

import httpx

PROMPT_TOKENS: Final = 960
_FLOOD_TOKENS: Final = 512
_ANSWER_TOKENS: Final = 16
_FLOOD_ANSWER_TOKENS: Final = 4
_AT_A_TIME: Final = 4
_WORDS: Final = 4000
_PICTURE_PIXELS: Final = 112
_TIMEOUT_SECONDS: Final = 300.0

ACME: Final = 0
BURST: Final = 1


class Target(Protocol):
    """An engine, with zones or without."""

    @property
    def url(self) -> str: ...

    @property
    def model(self) -> str: ...

    def headers_of(self, tenant: int) -> dict[str, str]:
        """Returns the credentials of this tenant's requests; if empty, requests have the tenant's salt instead."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A tenant's request."""

    words: str
    picture: bytes | None = None
    """Picture of the question, as PNG."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question."""

    tokens: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    """Number of prompt tokens that were cached."""


@dataclass(frozen=True, slots=True)
class Story:
    """The answers of one engine."""

    first: Answer
    before: Answer
    """Answer to acme's prompt when sent again."""
    across: Answer
    """Answer to the same prompt when sent by burst."""
    after: Answer
    """Answer to acme's prompt when sent after burst's flood."""
    flood: tuple[Answer, ...]

    @property
    def alone(self) -> tuple[Answer, ...]:
        """Answers to questions that ran alone, with the same prompts cached on each engine."""
        return self.first, self.before, self.across

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All answers, in the order of the questions."""
        return (self.first, self.before, self.across, self.after, *self.flood)

    @property
    def flooded_tokens(self) -> int:
        """Number of tokens in the flood's prompts."""
        return sum(answer.prompt_tokens for answer in self.flood)


def record(target: Target, flood_tokens: int, *, pictures: bool, say: Callable[[str], None]) -> Story:
    """Send the prompts, flood, and send them again.

    Args:
        target: the engine, which must have no other clients.
        flood_tokens: the minimum total tokens of burst's prompts.
        pictures: whether each prompt has a picture.
        say: called with progress.

    Raises:
        RuntimeError: the engine refuses a request or answers with an error.
    """
    with httpx.Client(base_url=target.url, timeout=_TIMEOUT_SECONDS) as client:
        prompt = question("handbook", PROMPT_TOKENS, pictures=pictures)
        first, before = (_ask(client, target, ACME, prompt, _ANSWER_TOKENS) for _ in range(2))
        across = _ask(client, target, BURST, prompt, _ANSWER_TOKENS)
        asked = list(_flood(flood_tokens, pictures=pictures))
        with ThreadPoolExecutor(_AT_A_TIME) as askers:
            flood = []
            for answer in askers.map(lambda each: _ask(client, target, BURST, each, _FLOOD_ANSWER_TOKENS), asked):
                flood.append(answer)
                say(f"flood: {len(flood)} of {len(asked)} prompts")
        after = _ask(client, target, ACME, prompt, _ANSWER_TOKENS)
    return Story(first, before, across, after, tuple(flood))


def question(seed: str, tokens: int, *, pictures: bool) -> Question:
    """Returns a question with random words and an optional picture; other seeds give no common prefix."""
    rng = random.Random(seed)
    words = " ".join(f"w{rng.randrange(_WORDS)}" for _ in range(tokens))
    return Question(words, picture(rng) if pictures else None)


def picture(rng: random.Random) -> bytes:
    """Returns a picture of random squares, as PNG."""
    from PIL import Image

    squares = Image.frombytes("RGB", (8, 8), rng.randbytes(8 * 8 * 3))
    written = io.BytesIO()
    squares.resize((_PICTURE_PIXELS, _PICTURE_PIXELS), Image.Resampling.NEAREST).save(written, "PNG")
    return written.getvalue()


def _flood(tokens: int, *, pictures: bool) -> Iterator[Question]:
    for number in range(-(-tokens // _FLOOD_TOKENS)):
        yield question(f"flood {number}", _FLOOD_TOKENS, pictures=pictures)


def _ask(client: httpx.Client, target: Target, tenant: int, asked: Question, answer_tokens: int) -> Answer:
    path, body = request(asked)
    headers = target.headers_of(tenant)
    body |= {
        "model": target.model, "max_tokens": answer_tokens, "temperature": 0,
        # Ignore end tokens, which are meaningless with random weights, so that answers have equal length.
        "ignore_eos": True, "return_token_ids": True,
    }  # fmt: skip
    if not headers:
        body["cache_salt"] = f"tenant-{tenant}"
    response = client.post(path, json=body, headers=headers)
    if response.status_code != 200:
        raise RuntimeError(f"the engine answers {response.status_code}: {response.text[:300]}")
    answer = response.json()
    details = answer["usage"].get("prompt_tokens_details") or {}
    return Answer(
        tokens=tuple(answer["choices"][0]["token_ids"]),
        prompt_tokens=answer["usage"]["prompt_tokens"],
        cached_tokens=details.get("cached_tokens") or 0,
    )


def request(asked: Question) -> tuple[str, dict[str, Any]]:
    """Returns the route of a question, and the part of the body that has it."""
    if asked.picture is None:
        return "/v1/completions", {"prompt": asked.words}
    url = f"data:image/png;base64,{base64.b64encode(asked.picture).decode()}"
    content: Sequence[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": asked.words},
    ]
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]}
