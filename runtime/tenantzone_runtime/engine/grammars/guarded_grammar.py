"""Wraps a tenant's grammar so that the thread that runs the steps never calls the grammar library.

Accepting sampled tokens and validating drafted tokens may take the library as long as computing a mask. So sampled
tokens are only recorded. The thread that computes the next mask accepts them, and their CPU time is measured there.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from vllm.v1.request import Request
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from tenantzone_runtime.engine.grammars.grammar_work import Work

Validate = Callable[["GuardedGrammar", list[int]], list[int]]


class Endless(StructuredOutputGrammar):
    """Replaces the grammar of an ended request, because an abandoned thread may still use it. Accepts every token."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def rollback(self, num_tokens: int) -> None:
        pass

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """Never called, because ``is_terminated`` returns True."""

    def is_terminated(self) -> bool:
        return True

    def reset(self) -> None:
        pass


class GuardedGrammar(StructuredOutputGrammar):
    """Wraps a tenant's grammar.

    Args:
        grammar: the library's grammar.
        request: the request whose answer must match the grammar.
        tenant: the tenant of the request.
        validate: validates drafted tokens on another thread.
    """

    def __init__(self, grammar: StructuredOutputGrammar, request: Request, tenant: str, validate: Validate) -> None:
        self.request = request
        self.tenant = tenant
        self.work: Work | None = None
        """Work of the step whose masks are being computed, or None if no masks are being computed."""
        self.rows: list[int] = []
        """Rows of this grammar's masks in the current step. The first row is for the next token."""
        self.led_nowhere = False
        """Whether a mask of the last step allowed no token."""
        self.is_rejected = False
        """Whether the grammar has rejected a sampled token."""
        self._grammar = grammar
        self._validate = validate
        self._chosen: list[int] = []
        """Sampled tokens that the grammar has not accepted yet."""
        self._drafted = 0
        """Number of drafted tokens that the grammar has accepted, only to compute the masks after these tokens."""

    def begin(self, work: Work) -> None:
        """Prepare for a step's masks. The computation of the previous masks may have been given up."""
        self.rows, self.work = [], work

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Accept drafted tokens while masks are being computed. Otherwise, record sampled tokens to accept later."""
        if self.work is None:
            self._chosen += tokens
            return True
        return self.work.do(self, partial(self._accept_drafted, request_id, tokens))

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Returns the matching leading tokens. While masks are being computed, the caller is on another thread."""
        return self._validate(self, tokens) if self.work is None else self.work.do(self, partial(self._valid, tokens))

    def rollback(self, num_tokens: int) -> None:
        assert self.work is not None
        self.work.do(self, partial(self._roll_back, num_tokens))

    def catch_up(self, row: int) -> None:
        """Accept the recorded sampled tokens before a mask is computed, and record the mask's row."""
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
