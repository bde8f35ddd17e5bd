"""Limits the CPU time that vLLM's parsers may take for the answers to one request.

vLLM's parsers find tool calls and reasoning in an answer. They run on the API server's event loop, and so block all
other requests. For some texts, their time grows with the square or the cube of the length. If a call would block the
event loop for too long, it is moved to another process.
"""

from typing import Final

BASE_SECONDS: Final = 0.05
SECONDS_OF_TOKEN: Final = 0.001
"""Seconds of CPU time that each token of the answers adds to a request's budget, which starts at `BASE_SECONDS`."""
EXCESS_SECONDS: Final = 0.01
"""Seconds for which parsers may block the event loop. They are interrupted at most 4 ms later."""
LINEAR_SECONDS: Final = 10e-6
"""Seconds that a parser with linear cost needs for one character on a slow CPU. If a call can't be moved to another
process, it may block the event loop for `EXCESS_SECONDS` and this time per character."""
LINEAR_SECONDS_OF_ID: Final = 0.2e-6
"""Time that a parser with linear cost needs for one token id of an answer or a prompt."""
_TURNS_AHEAD: Final = 3
"""Another turn begins only if the budget has time for this number of turns that take as long as the last turn. Time for
one turn is not enough, because a stream's final turn may take longest."""


class ParsingBudget:
    """The remaining CPU time of one request's parsers, in seconds."""

    def __init__(self) -> None:
        self.tokens = 0
        """Number of tokens of the request's answers so far."""
        self._spent = 0.0
        """Seconds that all parser calls of the request have taken so far."""
        self._excess = 0.0
        """Seconds that parser calls have taken beyond linear cost since the event loop last served other requests."""
        self._of_turn = 0.0
        """Seconds that all parser calls for the engine's last output have taken."""

    def begin_turn(self, tokens: int) -> None:
        """Begin to count the parser calls for a new output of the engine.

        Call this method only when the event loop has served other requests since the previous output.

        Args:
            tokens: the number of new tokens in the output.
        """
        self.tokens += tokens
        self._excess = self._of_turn = 0.0

    def has_time_for(self, tokens: int) -> bool:
        """Returns whether the budget is sufficient for several more turns that take as long as the last turn.

        Many parsers read the whole answer again for each piece of a stream. So if this method returns False, the caller
        should wait for larger pieces, which need less time in total.

        Args:
            tokens: the number of new tokens in the next turn.
        """
        return _TURNS_AHEAD * self._of_turn <= self._of_request(tokens)

    @property
    def total(self) -> float:
        """Seconds that all parser calls of the request may take together, given the tokens of its answers so far."""
        return BASE_SECONDS + SECONDS_OF_TOKEN * self.tokens

    @property
    def left(self) -> float:
        """Remaining seconds of :attr:`total`; 0 or less if the budget is used up."""
        return self._of_request()

    @property
    def is_turn_over(self) -> bool:
        """Whether the event loop should serve other requests before the next parser call."""
        return self._excess > EXCESS_SECONDS / 2

    def have_others_served(self) -> None:
        """Record that the event loop has served other requests."""
        self._excess = 0.0

    def limit(self, characters: int = 0, ids: int = 0) -> float:
        """Returns the seconds for which the next parser call may block the event loop; 0 or less if none are left.

        Args:
            characters: number of characters that the call parses; 0 if the call can be moved to another process.
            ids: number of token ids that the call parses; 0 if the call can be moved to another process.
        """
        return min(self._of_request(), EXCESS_SECONDS - self._excess + _linear(characters, ids))

    def spend_elsewhere(self, seconds: float) -> None:
        """Count the seconds of a parser call that another process has finished."""
        self._spent += seconds
        self._of_turn += seconds

    def spend(self, seconds: float, characters: int = 0, ids: int = 0) -> None:
        """Count the seconds of a parser call that ran on the event loop. The sizes are those passed to `limit`."""
        self._spent += seconds
        self._of_turn += seconds
        self._excess += max(0.0, seconds - _linear(characters, ids))

    def _of_request(self, new_tokens: int = 0) -> float:
        return self.total + SECONDS_OF_TOKEN * new_tokens - self._spent


def _linear(characters: int, ids: int) -> float:
    return LINEAR_SECONDS * characters + LINEAR_SECONDS_OF_ID * ids
