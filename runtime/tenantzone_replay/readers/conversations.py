"""Derives shared prefixes for traces that give only the session and the lengths of requests."""

from collections import OrderedDict

from tenantzone_replay.load import content_id

CONTENT_TOKENS = 16
_REMEMBERED = 100_000
"""Conversations that are remembered; one not continued within this many others is forgotten, and restarts."""


class Conversations:
    """Assumes that each prompt of a session begins with the previous prompt and answer, as in a chat.

    A prompt shorter than the conversation so far can't begin with it: the session restarts.
    """

    def __init__(self) -> None:
        self._said: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """By session: how often it restarted, and the tokens since then."""

    def content(self, session: str, prompt_tokens: int, answer_tokens: int) -> tuple[int, ...]:
        """Returns the ids of a request's prompt and answer, as in ``Asked.content``."""
        begun, said = self._said.pop(session, (0, 0))
        if prompt_tokens < said:
            begun += 1
        said = prompt_tokens + answer_tokens
        self._said[session] = begun, said
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        first = content_id(f"{session}/{begun}")
        # Later parts are identified by their position: no other conversation begins with the same first part.
        return tuple(first + number for number in range(said // CONTENT_TOKENS))
