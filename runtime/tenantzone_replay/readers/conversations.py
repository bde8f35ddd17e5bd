"""What prompts have in common of which a trace tells nothing but their session and their lengths."""

from collections import OrderedDict

from tenantzone_replay.load import content_id

CONTENT_TOKENS = 16
_REMEMBERED = 100_000
"""Conversations; one that was not gone on with for so many others is forgotten, and begins anew."""


class Conversations:
    """Each prompt of a session is taken to begin with the prompt and the answer before it, as in a chat.

    A prompt that is shorter than what was said before it can't begin with that: it begins anew.
    """

    def __init__(self) -> None:
        self._said: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """By session: how often it began anew, and how many tokens were said since then."""

    def content(self, session: str, prompt_tokens: int, answer_tokens: int) -> tuple[int, ...]:
        """The ids of a request's prompt and answer, as ``Asked.content`` has them."""
        begun, said = self._said.pop(session, (0, 0))
        if prompt_tokens < said:
            begun += 1
        said = prompt_tokens + answer_tokens
        self._said[session] = begun, said
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        first = content_id(f"{session}/{begun}")
        # What follows the first part is told apart by its place: no other conversation begins with the same.
        return tuple(first + number for number in range(said // CONTENT_TOKENS))
