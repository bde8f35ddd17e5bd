"""A tenant's grammar, of which nothing is asked in the thread that makes the steps.

To take in a token that was chosen, or to look at drafted ones, may take a grammar library as long as to say which token
may come next. So the token is taken in where the next mask is made: on a thread beside the step, where it is counted.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from vllm.v1.request import Request
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from tenantzone_runtime.engine.grammar_work import Work

Validate = Callable[["GuardedGrammar", list[int]], list[int]]


class Endless(StructuredOutputGrammar):
    """Takes the place of a grammar that is still at work, which nobody else may touch: anything goes."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def rollback(self, num_tokens: int) -> None:
        pass

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """Never called: it is terminated."""

    def is_terminated(self) -> bool:
        return True

    def reset(self) -> None:
        pass


class GuardedGrammar(StructuredOutputGrammar):
    """Takes the place of a tenant's grammar.

    Args:
        grammar: of the library's.
        request: whose answer has this form.
        tenant: who asks.
        validate: looks at drafted tokens, beside the step.
    """

    def __init__(self, grammar: StructuredOutputGrammar, request: Request, tenant: str, validate: Validate) -> None:
        self.request = request
        self.tenant = tenant
        self.work: Work | None = None
        """That of the step for which masks are made; None: it is between two."""
        self.rows: list[int] = []
        """Its masks in that step, the next token's first."""
        self.led_nowhere = False
        """Whether in the last step there was a mask by which no token may come."""
        self.is_rejected = False
        """Whether a token was chosen that does not fit."""
        self._grammar = grammar
        self._validate = validate
        self._chosen: list[int] = []
        """Tokens of the answer that were not taken in yet."""
        self._drafted = 0
        """Tokens that were taken in to see what might come after them."""

    def begin(self, work: Work) -> None:
        """Begin with the masks of a step, from what the answer is: the last ones may have been given up midway."""
        self.rows, self.work = [], work

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Take in tokens: drafted ones while masks are made, else those that were chosen, and these later."""
        if self.work is None:
            self._chosen += tokens
            return True
        return self.work.do(self, partial(self._accept_drafted, request_id, tokens))

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Say which tokens fit, from the first on; while masks are made vLLM asks so beside the step already."""
        return self._validate(self, tokens) if self.work is None else self.work.do(self, partial(self._valid, tokens))

    def rollback(self, num_tokens: int) -> None:
        assert self.work is not None
        self.work.do(self, partial(self._roll_back, num_tokens))

    def catch_up(self, row: int) -> None:
        """Take in what was chosen, before a mask is made."""
        assert self.work is not None
        self.rows.append(row)
        if self._chosen or self._drafted:
            self.work.do(self, self._catch_up)

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        assert self.work is not None
        self.work.do(self, partial(self._grammar.fill_bitmask, bitmask, batch_index))

    def is_terminated(self) -> bool:
        return self.is_rejected or bool(self._grammar.is_terminated())

    def reset(self) -> None:
        self._grammar.reset()

    def _catch_up(self) -> None:
        if self._drafted and not self.rows[1:]:
            self._roll_back(self._drafted)
        chosen, self._chosen = self._chosen, []
        if chosen and not self.is_rejected:
            self.is_rejected = not self._grammar.accept_tokens(self.request.request_id, chosen)

    def _accept_drafted(self, request_id: str, tokens: list[int]) -> bool:
        is_accepted = bool(self._grammar.accept_tokens(request_id, tokens))
        self._drafted += len(tokens) if is_accepted else 0
        return is_accepted

    def _roll_back(self, count: int) -> None:
        self._grammar.rollback(count)
        self._drafted -= count

    def _valid(self, tokens: list[int]) -> list[int]:
        self._catch_up()
        return [] if self.is_rejected else list(self._grammar.validate_tokens(tokens))
