"""The recorded data of one request: its arrival, tenant, lengths, and the prefix that it shares with others.

It contains no text and no tokens. Shared prefixes are recorded as a hash of each block with all blocks before it, keyed
with the pool's salt key: without that key a recording does not reveal what was written.
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
"""The version of a line's format."""
HASH_BYTES: Final = 6
"""Number of bytes of a block's hash, which are 8 characters in base64."""


@dataclass(slots=True)
class Generation:
    """One prompt on its way through the engine, and its recorded data so far."""

    arrival: float
    """The Unix time when the engine got the prompt."""
    tenant: str
    """The tenant; empty if tenants are not identified."""
    caller: str
    """The keyed hash of the request's API key if tenants are not identified; empty if the request has no key."""
    key: bytes
    """The key of the hashes."""
    block_tokens: int
    prompt: Sequence[int] = ()
    """The tokens of the prompt."""
    apart: tuple[str, ...] = ()
    """The properties that separate its prefixes from others with the same tokens: adapter name and client salt."""
    media: tuple[tuple[int, str], ...] = ()
    """The positions of images and the like, and their hashes, in the order of the prompt."""
    answers: dict[int, list[int]] = field(default_factory=dict)
    """The tokens of each answer."""
    cached_tokens: int = 0
    first_token_seconds: float | None = None
    finish: str = ""
    """vLLM's finish reason; empty if the client disconnected."""


def line_of(generation: Generation, seconds: float, oldest: float, lost: int) -> str:
    """Returns the line of a request that has ended.

    Args:
        generation: the request.
        seconds: seconds since the arrival of the request.
        oldest: Unix time before which no request of a later line arrived.
        lost: number of lines lost since the previous line.
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
    """Returns a keyed hash of a request's API key, which does not reveal the key; empty if it has none."""
    if not authorization:
        return ""
    return hmac.digest(key, b"caller " + authorization, hashlib.sha256).hex()[:16]


def recording_key(salt_key: bytes) -> bytes:
    """Returns the key of a recording's hashes, derived from the pool's salt key, which it does not reveal."""
    return hmac.digest(salt_key, b"hashes of recorded blocks", hashlib.sha256)


def apart_of(prompt: Any, adapter: Any) -> tuple[str, ...]:
    """Returns the properties that separate a prompt's prefixes from others with the same tokens.

    Args:
        prompt: as the engine gets it, with the salt that the frontend has set.
        adapter: a LoRA adapter; None: the model alone.
    """
    salt = prompt.get("cache_salt") if isinstance(prompt, Mapping) else None
    return tuple(filter(None, (salt, getattr(adapter, "lora_name", None))))


def media_of(prompt: Any) -> tuple[tuple[int, str], ...]:
    """Returns the positions of images and the like in a prompt, and the hashes by which the engine identifies them."""
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
        # vLLM's protocol accepts such tokens, and the engine refuses them: they are in no model's vocabulary.
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
    # JSON may contain half of a surrogate pair.
    return text.encode(errors="surrogatepass")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
