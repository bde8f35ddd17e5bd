"""The recorded data of one request: its arrival, tenant and lengths, and hashes that reveal shared prefixes.

A recording contains no text and no tokens. Each block is recorded as a hash of the block and all blocks before it. The
hashes are keyed with the pool's salt key, so that a recording does not reveal the prompts to readers without that key.
"""

import base64
import hashlib
import hmac
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

FORMAT: Final = 1
"""The version of the format of a recording's lines."""
HASH_BYTES: Final = 6
"""Number of bytes of a block's hash. In base64, they are 8 characters."""


@dataclass(slots=True)
class Generation:
    """One prompt that the engine is processing, and the data recorded about it so far."""

    arrival: float
    """Unix time when the engine got the prompt."""
    tenant: str
    """The request's tenant; empty if tenants are not identified."""
    caller: str
    """Keyed hash of the request's API key; empty if tenants are identified or the request has no API key."""
    key: bytes
    """The key of the recorded hashes."""
    block_tokens: int
    """Number of tokens per block."""
    prompt: Sequence[int] = ()
    """The tokens of the prompt."""
    apart: tuple[str, ...] = ()
    """The client's cache salt and the adapter's name. Prompts with different salts or adapters share no prefixes."""
    media: tuple[tuple[int, str], ...] = ()
    """The position and hash of each image, sound or video, in the order of the prompt."""
    answers: dict[int, list[int]] = field(default_factory=dict)
    """The tokens of each answer."""
    cached_tokens: int = 0
    first_token_seconds: float | None = None
    finish: str = ""
    """vLLM's finish reason; empty if the client disconnected."""


def line_of(generation: Generation, seconds: float, oldest: float, lost: int) -> str:
    """Returns the line of a recording for a prompt whose processing has ended.

    Args:
        generation: the prompt and its recorded data.
        seconds: seconds from the arrival of the prompt to its end.
        oldest: Unix time. No prompt of a later line arrived before this time.
        lost: number of lines that were lost since the previous line.
    """
    tokens = [len(answer) for answer in generation.answers.values()]
    whole = [*generation.prompt, *(generation.answers.get(0, ()) if len(tokens) == 1 else ())]
    fields: dict[str, Any] = {
        "recorded": FORMAT,
        "time": round(generation.arrival, 6),
        "oldest": round(oldest, 6),
        "tenant": generation.tenant,
        "caller": generation.caller,
        "prompt_tokens": len(generation.prompt),
        "cached_tokens": generation.cached_tokens,
        "output_tokens": max(tokens, default=0),
        "answers": max(1, len(tokens)),
        "finish": generation.finish,
        "first_token_seconds": _rounded(generation.first_token_seconds),
        "seconds": _rounded(seconds),
        "lost": lost,
        "block_tokens": generation.block_tokens,
        "hashes": "".join(_hashes(generation, _ids(whole))),
    }
    return json.dumps({name: value for name, value in fields.items() if value not in (None, "", 0)})


def caller_of(authorization: bytes | None, key: bytes) -> str:
    """Returns a keyed hash of a request's ``Authorization`` header; empty if the request does not have the header."""
    if not authorization:
        return ""
    return hmac.digest(key, b"caller " + authorization, hashlib.sha256).hex()[:16]


def recording_key(salt_key: bytes) -> bytes:
    """Derives the key of a recording's hashes from the pool's salt key, without revealing the salt key."""
    return hmac.digest(salt_key, b"hashes of recorded blocks", hashlib.sha256)


def apart_of(prompt: Any, adapter: Any) -> tuple[str, ...]:
    """Returns the cache salt and the adapter's name. Prompts with different salts or adapters share no prefixes.

    Args:
        prompt: the prompt as the engine gets it, with the salt that the frontend has set.
        adapter: the LoRA adapter; None for the base model.
    """
    salt = prompt.get("cache_salt") if isinstance(prompt, Mapping) else None
    return tuple(filter(None, (salt, getattr(adapter, "lora_name", None))))


def media_of(prompt: Any) -> tuple[tuple[int, str], ...]:
    """Returns the position of each image, sound or video in a prompt, and the engine's hash of it."""
    if not isinstance(prompt, Mapping):
        return ()
    places, hashes = prompt.get("mm_placeholders") or {}, prompt.get("mm_hashes") or {}
    return tuple(
        sorted(
            (int(place.offset), str(digest))
            for kind, of_kind in places.items()
            for place, digest in zip(of_kind, hashes.get(kind, ()), strict=False)
        )
    )


def _ids(tokens: Sequence[int]) -> "array[int]":
    try:
        return array("I", tokens)
    except OverflowError:
        # A token id is negative or too large. vLLM's API accepts such ids, but the engine refuses them.
        return array("I")


def _hashes(generation: Generation, tokens: "array[int]") -> Iterable[str]:
    size = generation.block_tokens
    chain = hashlib.blake2b(_bytes("\0".join(generation.apart)), key=generation.key)
    media = list(generation.media)
    for end in range(size, len(tokens) + 1, size):
        while media and media[0][0] < end:
            chain.update(_bytes(media.pop(0)[1]))
        chain.update(tokens[end - size : end].tobytes())
        yield base64.b64encode(chain.digest()[:HASH_BYTES]).decode()


def _bytes(text: str) -> bytes:
    # Accept half of a surrogate pair, which JSON may contain.
    return text.encode(errors="surrogatepass")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
