"""Bounds the processor time that the parsers of one request's answers may take.

vLLM's parsers find tool calls and reasoning in an answer. They run on the API server's event loop, where all requests
wait meanwhile, and for some texts their time grows with the square or the cube of the length.
"""

from typing import Final

BASE_SECONDS: Final = 0.05
SECONDS_OF_TOKEN: Final = 0.001
"""A request's parsers may take `BASE_SECONDS`, and this for each token of its answers."""
EXCESS_SECONDS: Final = 0.01
"""What parsers may take between two turns of the event loop, beyond what a linear parser takes for the same text."""
LINEAR_SECONDS: Final = 10e-6
"""What a linear parser takes for one character of an answer, on a slow processor."""
LINEAR_SECONDS_OF_ID: Final = 0.2e-6
"""What a loop takes to look at one token id, of an answer or of a prompt."""
_TURNS_AHEAD: Final = 3
"""Turns that the budget should still have time for: the last one of a stream may take longer than the others."""


class ParsingBudget:
    """How long the parsers of one request may still run. Times are seconds of a processor."""

    def __init__(self) -> None:
        self.tokens = 0
        """Of the request's answers so far."""
        self._spent = 0.0
        """By all calls of the request's parsers so far."""
        self._excess = 0.0
        """By the calls of this turn, beyond what a linear parser would have taken."""
        self._of_turn = 0.0
        """By all calls of this turn."""

    def begin_turn(self, tokens: int) -> None:
        """Note that the engine has generated more of the answers, and that the event loop has served other requests.

        Args:
            tokens: new ones.
        """
        self.tokens += tokens
        self._excess = self._of_turn = 0.0

    def has_time_for(self, tokens: int) -> bool:
        """Return whether the request has time for another turn like the last one, and for some more of them.

        Many parsers read all of an answer again for each piece of a stream. Where that takes more than the tokens of
        the pieces are worth, larger pieces take less.

        Args:
            tokens: new ones, which that turn would begin with.
        """
        return _TURNS_AHEAD * self._of_turn <= self._of_request(tokens)

    def limit(self, characters: int, ids: int) -> float:
        """Return the seconds that a parser's next call may take; 0 or less if none are left.

        Args:
            characters: of the text that the call gets.
            ids: token ids that the call gets.
        """
        return min(self._of_request(), EXCESS_SECONDS - self._excess + _linear(characters, ids))

    def spend(self, seconds: float, characters: int, ids: int) -> None:
        """Count a call that has ended, with the sizes that `limit` had."""
        self._spent += seconds
        self._of_turn += seconds
        self._excess += max(0.0, seconds - _linear(characters, ids))

    def _of_request(self, new_tokens: int = 0) -> float:
        return BASE_SECONDS + SECONDS_OF_TOKEN * (self.tokens + new_tokens) - self._spent


def _linear(characters: int, ids: int) -> float:
    return LINEAR_SECONDS * characters + LINEAR_SECONDS_OF_ID * ids
