"""What a recording says of one request: when it came, whose it was, its lengths, what it has in common with others.

No text and no token is in it. What prompts have in common is told by a hash of each of their blocks with all before it,
keyed with the pool's salt key: who does not have that key can't tell from a recording what anybody wrote.
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
"""Of a line."""
HASH_BYTES: Final = 6
"""Of a block's hash, which are 8 letters of base64."""


@dataclass(slots=True)
class Generation:
    """One prompt on its way through the engine, and what was heard of it."""

    arrival: float
    """Unix time, when the engine was given it."""
    tenant: str
    """Empty: no tenants are known."""
    caller: str
    """Whose API key it came with, as a salted hash, where no tenants are known; empty: with none."""
    key: bytes
    """Of the hashes."""
    block_tokens: int
    prompt: Sequence[int] = ()
    """Its tokens."""
    apart: tuple[str, ...] = ()
    """What keeps its prefixes from being another's with the same tokens: an adapter's name, the client's own salt."""
    media: tuple[tuple[int, str], ...] = ()
    """Where in the prompt images and the like begin, and their hashes, in the order of the prompt."""
    answers: dict[int, list[int]] = field(default_factory=dict)
    """The tokens of each."""
    cached_tokens: int = 0
    first_token_seconds: float | None = None
    finish: str = ""
    """Why it ended, in vLLM's words; empty: nobody waited for it any more."""


def line_of(generation: Generation, seconds: float, oldest: float, lost: int) -> str:
    """The line of a request that has ended.

    Args:
        generation: the request.
        seconds: since its arrival.
        oldest: no line that is written later is of a request that arrived before this, in unix time.
        lost: requests since the line before that no line was written of.
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
    """Whose API key a request came with, so that nobody can tell the key; empty if it came with none."""
    if not authorization:
        return ""
    return hmac.digest(key, b"caller " + authorization, hashlib.sha256).hex()[:16]


def recording_key(salt_key: bytes) -> bytes:
    """The key of a recording's hashes: of the pool's salt key, from which nothing else is told by it."""
    return hmac.digest(salt_key, b"hashes of recorded blocks", hashlib.sha256)


def apart_of(prompt: Any, adapter: Any) -> tuple[str, ...]:
    """What keeps a prompt's prefixes from those of others with the same tokens.

    Args:
        prompt: as the engine is given it, with the salt that the door has put there.
        adapter: a LoRA adapter; None: the model alone.
    """
    salt = prompt.get("cache_salt") if isinstance(prompt, Mapping) else None
    return tuple(filter(None, (salt, getattr(adapter, "lora_name", None))))


def media_of(prompt: Any) -> tuple[tuple[int, str], ...]:
    """Where images and the like begin in a prompt, and the hashes that the engine knows them by."""
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
        # vLLM's protocol lets such tokens through, and the engine refuses them: no model has any.
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
    # JSON may have half a letter in it.
    return text.encode(errors="surrogatepass")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
