"""What of a prompt a trace tells by ids of its parts."""

from collections.abc import Mapping
from typing import Any

from tenantzone_replay.load import TraceError
from tenantzone_replay.readers.doubts import Doubts


def known_prompt(
    place: str, fields: Mapping[str, Any], prompt_tokens: int, answer_tokens: int, content_tokens: int, doubts: Doubts
) -> tuple[int, ...]:
    """The ids of ``hash_ids``, as many as the prompt has parts.

    The last one may be of a part that the prompt does not fill: what the answer adds to it nobody else has, which
    whoever makes blocks of the ids sees to.

    Raises:
        TraceError: they are no list of whole numbers of at least 0 that 63 bits have room for.
    """
    ids = fields.get("hash_ids")
    if ids is None:
        return ()
    if not isinstance(ids, list) or not all(isinstance(each, int) and 0 <= each < 2**63 for each in ids):
        raise TraceError(
            f"{place}: hash_ids is {repr(ids)[:50]!r}; expected a list of whole numbers from 0 to 2^63 - 1"
        )
    doubts.look_at_ids(place, len(ids), prompt_tokens, answer_tokens, content_tokens)
    return tuple(ids[: -(-prompt_tokens // content_tokens)])
