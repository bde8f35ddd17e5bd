"""Channels other than times, order and usage that may reveal a victim's prompt: logprobs, errors, metrics.

- Logprobs: a cached prefix changes the chunks in which a prompt is computed, which may change the last digits. The
  attacker compares each answer with an answer to the same prompt under a salt that was never used.
- Errors: the attacker sends the prompt with each kind of mistake, and compares the texts of the answers.
- Metrics: the attacker reads the public routes before and after the victim's request, with a key and without.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.attacks.findings import Distinction, distinguish
from bench.attacks.probing import Probe, Target, two_prompts

_TIMEOUT_SECONDS = 60.0
_MISTAKES: tuple[dict[str, Any], ...] = (
    {"max_tokens": 10**9}, {"n": 0}, {"logprobs": 10**4}, {"prompt_logprobs": 10**4}, {"temperature": -1},
    {"min_tokens": 9, "max_tokens": 1}, {"truncate_prompt_tokens": 10**9}, {"structured_outputs": {"regex": "("}},
    {"model": "another"}, {"stream_options": {}}, {"logit_bias": {"999999999": 1}},
)  # fmt: skip
PUBLIC = ("/metrics", "/load", "/server_info", "/version", "/v1/models", "/tokenizer_info", "/health", "/ping")
_IDS = re.compile(r"\b(?:cmpl-)?[0-9a-f]{16,}\b")


@dataclass(frozen=True, slots=True)
class ChannelFindings:
    """The attacker's findings by these channels."""

    by_logprobs: Distinction
    """Distinction by the difference between log probabilities with the shared salt and with a fresh salt."""
    error_texts: int
    """Number of error texts that occurred only for the victim's prompts, or only for other prompts."""
    figures: int
    """Number of figures on the serving port that changed with the victim's requests, but not by themselves."""


@dataclass(slots=True)
class _Seen:
    sent: list[float] = field(default_factory=list)
    unsent: list[float] = field(default_factory=list)
    errors_of_sent: set[str] = field(default_factory=set)
    errors_of_unsent: set[str] = field(default_factory=set)
    figures: set[str] = field(default_factory=set)


async def listen(target: Target, how: Probe) -> ChannelFindings:
    """Attack an engine through these channels.

    Args:
        target: the engine; see `probe`.
        how: the settings of the attack; see `probe`.

    Raises:
        RuntimeError: the engine refuses a valid request.
    """
    rng, seen = random.Random(how.seed), _Seen()
    async with httpx.AsyncClient(base_url=target.url, timeout=_TIMEOUT_SECONDS) as client:
        victim = _Asker(client, target.model, target.headers_of(0), how.salt)
        attacker = _Asker(client, target.model, target.headers_of(1), how.salt)
        for number in range(how.samples):
            sent, unsent = two_prompts(rng, how.prompt_words)
            await _watch_figures(seen, client, target.headers_of(1), victim, sent)
            for prompt, distances in ((sent, seen.sent), (unsent, seen.unsent)):
                first = await attacker.logprob(prompt)
                fresh = await attacker.logprob(prompt, salt=f"fresh-{how.seed}-{number}-{prompt == sent}")
                distances.append(-abs(first - fresh))
            # Draw new prompts, because the attacker has sent the earlier ones.
            sent, unsent = two_prompts(rng, how.prompt_words)
            await victim.logprob(sent)
            for prompt, errors in ((sent, seen.errors_of_sent), (unsent, seen.errors_of_unsent)):
                errors.update([await attacker.error(prompt, mistake) for mistake in _MISTAKES])
    return ChannelFindings(
        by_logprobs=distinguish(seen.sent, seen.unsent),
        error_texts=len(seen.errors_of_sent ^ seen.errors_of_unsent),
        figures=len(seen.figures),
    )


class _Asker:
    def __init__(self, client: httpx.AsyncClient, model: str, headers: Mapping[str, str], salt: str | None) -> None:
        self._client = client
        self._model = model
        self._headers = headers
        self._salt = salt

    async def logprob(self, prompt: str, salt: str | None = None) -> float:
        """Returns the log probability of the answer's first token."""
        answer = await self._ask(prompt, {"logprobs": 1}, salt or self._salt)
        if answer.status_code != 200:
            raise RuntimeError(f"the engine answers {answer.status_code}: {answer.text[:300]}")
        return float(answer.json()["choices"][0]["logprobs"]["token_logprobs"][0])

    async def error(self, prompt: str, mistake: Mapping[str, Any]) -> str:
        """Returns status and text of the answer to an invalid request, without ids and the prompt; "" if served."""
        answer = await self._ask(prompt, mistake, self._salt)
        if answer.status_code == 200:
            return ""
        return f"{answer.status_code} {_IDS.sub('', answer.text.replace(prompt, ''))}"

    async def _ask(self, prompt: str, more: Mapping[str, Any], salt: str | None) -> httpx.Response:
        body = {"model": self._model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        salted = {"cache_salt": salt} if salt else {}
        return await self._client.post("/v1/completions", json={**body, **salted, **more}, headers=self._headers)


async def _watch_figures(
    seen: _Seen, client: httpx.AsyncClient, headers: Mapping[str, str], victim: _Asker, prompt: str
) -> None:
    """Have the victim send a prompt, and record the figures that changed now but not just before."""
    first, second = await _figures(client, headers), await _figures(client, headers)
    await victim.logprob(prompt)
    third = await _figures(client, headers)
    by_themselves = {name for name, value in second.items() if first.get(name) != value}
    seen.figures |= {name for name, value in third.items() if second.get(name) != value} - by_themselves


async def _figures(client: httpx.AsyncClient, headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the last word of each line on public routes, with and without a key, by the rest of the line."""
    figures = {}
    for path in PUBLIC:
        for shown in (headers, {}):
            answer = await client.get(path, headers=shown)
            if answer.status_code == 200:
                for line in answer.text.splitlines():
                    name, _, value = line.rpartition(" ")
                    figures[f"{path} {name}"] = value
    return figures
