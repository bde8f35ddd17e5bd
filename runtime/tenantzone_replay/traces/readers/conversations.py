"""Derives shared prefixes for traces that record only each request's session and lengths, but no content."""

from collections import OrderedDict

from tenantzone_replay.traces.load import content_id

CONTENT_TOKENS = 16
_REMEMBERED = 100_000
"""Maximum number of conversations in memory. The least recently continued conversation is dropped first."""


class Conversations:
    """Assumes that each prompt of a session begins with the previous prompt and answer, as in a chat.

    A prompt that is shorter than the previous prompt and answer begins a new conversation.
    """

    def __init__(self) -> None:
        self._said: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Number of restarts of the conversation, and number of tokens since the last restart, by session."""

    def content(self, session: str, prompt_tokens: int, answer_tokens: int) -> tuple[int, ...]:
        """Returns the content ids of a request's prompt and answer, for ``Asked.content``."""
        begun, said = self._said.pop(session, (0, 0))
        if prompt_tokens < said:
            begun += 1
        said = prompt_tokens + answer_tokens
        self._said[session] = begun, said
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        first = content_id(f"{session}/{begun}")
        # Consecutive ids are enough to identify later parts, because each conversation has a different first id.
        return tuple(first + number for number in range(said // CONTENT_TOKENS))
