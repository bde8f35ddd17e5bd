"""Bounds the CPU time that the parsers of one request's answers may take.

vLLM's parsers find tool calls and reasoning in an answer. They run on the API server's event loop and block all
requests meanwhile, and for some texts their time grows with the square or the cube of the length. Calls that take
longer than a turn of the event loop may last are moved to another process.
"""

from typing import Final

BASE_SECONDS: Final = 0.05
SECONDS_OF_TOKEN: Final = 0.001
"""CPU time for each token of a request's answers, in addition to `BASE_SECONDS`."""
EXCESS_SECONDS: Final = 0.01
"""The time that parsers may take between two turns of the event loop. They are interrupted up to 4 ms later."""
LINEAR_SECONDS: Final = 10e-6
"""The time of a linear parser for one character of an answer, on a slow CPU. A call that can't be moved to
another process may take this in addition."""
LINEAR_SECONDS_OF_ID: Final = 0.2e-6
"""The time of a linear parser for one token id of an answer or a prompt."""
_TURNS_AHEAD: Final = 3
"""Turns that the budget should still have time for: the last one of a stream may take longer than the others."""


class ParsingBudget:
    """The remaining CPU time of one request's parsers, in seconds."""

    def __init__(self) -> None:
        self.tokens = 0
        """The tokens of the request's answers so far."""
        self._spent = 0.0
        """The time of all calls of the request's parsers so far."""
        self._excess = 0.0
        """The time of this turn's calls beyond that of a linear parser."""
        self._of_turn = 0.0
        """The time of all calls for the engine's last output."""

    def begin_turn(self, tokens: int) -> None:
        """Note that the engine has generated more of the answers, and that the event loop has served other requests.

        Args:
            tokens: the number of new tokens.
        """
        self.tokens += tokens
        self._excess = self._of_turn = 0.0

    def has_time_for(self, tokens: int) -> bool:
        """Return whether the request has time for another turn like the last one, and for some more of them.

        Many parsers read the whole answer again for each piece of a stream. If that takes longer than the budget of the
        pieces' tokens, larger pieces take less time.

        Args:
            tokens: the number of new tokens that the turn would begin with.
        """
        return _TURNS_AHEAD * self._of_turn <= self._of_request(tokens)

    @property
    def total(self) -> float:
        """The seconds that all parsers of the request may take, by the tokens of its answers so far."""
        return BASE_SECONDS + SECONDS_OF_TOKEN * self.tokens

    @property
    def left(self) -> float:
        """The seconds that are left of that total; 0 or less if none are."""
        return self._of_request()

    @property
    def is_turn_over(self) -> bool:
        """Whether the event loop should serve other requests before a parser's next call."""
        return self._excess > EXCESS_SECONDS / 2

    def have_others_served(self) -> None:
        """Note that the event loop has served other requests."""
        self._excess = 0.0

    def limit(self, characters: int = 0, ids: int = 0) -> float:
        """Return the seconds that a parser's next call may take on the event loop; 0 or less if none are left.

        Args:
            characters: of the text that the call gets, if it can't go on in another process.
            ids: token ids that the call gets, if it can't.
        """
        return min(self._of_request(), EXCESS_SECONDS - self._excess + _linear(characters, ids))

    def spend_elsewhere(self, seconds: float) -> None:
        """Count a call that has ended in another process."""
        self._spent += seconds
        self._of_turn += seconds

    def spend(self, seconds: float, characters: int = 0, ids: int = 0) -> None:
        """Count a call that has ended, with the sizes that `limit` had."""
        self._spent += seconds
        self._of_turn += seconds
        self._excess += max(0.0, seconds - _linear(characters, ids))

    def _of_request(self, new_tokens: int = 0) -> float:
        return self.total + SECONDS_OF_TOKEN * new_tokens - self._spent


def _linear(characters: int, ids: int) -> float:
    return LINEAR_SECONDS * characters + LINEAR_SECONDS_OF_ID * ids
