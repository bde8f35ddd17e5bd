"""Reads the content ids of a prompt from a line of a trace."""

from collections.abc import Mapping
from typing import Any

from tenantzone_replay.traces.load import TraceError
from tenantzone_replay.traces.readers.doubts import Doubts


def known_prompt(
    place: str, fields: Mapping[str, Any], prompt_tokens: int, answer_tokens: int, content_tokens: int, doubts: Doubts
) -> tuple[int, ...]:
    """Returns the ids in ``hash_ids`` for the parts of the prompt, or no ids if the member is missing.

    The prompt may end within the part of the last id. The other tokens of that part belong to the answer and are
    unique, so callers must exclude them from ``Asked.known_tokens``.

    Raises:
        TraceError: ``hash_ids`` is not a list of integers from 0 to 2^63 - 1.
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
