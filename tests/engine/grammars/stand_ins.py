"""Grammars that take as long as a test says, and steps that make masks of them."""

import hashlib
import threading
import time
from concurrent.futures import Future

import torch
from vllm.v1.request import Request

from hack.harness.scheduler import AnyToken, Driver, prompt


class Grammar(AnyToken):
    """A grammar that accepts every answer, and whose masks are its name."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.thread: int | None = None

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        self.thread = threading.get_ident()
        rows[row].fill_(self.name)

    def rollback(self, count: int) -> None:
        pass


class Slow(Grammar):
    """A grammar whose mask keeps a processor busy until the test stops it."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.over = threading.Event()
        self.turns = 0

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        while not self.over.is_set():
            self.turns += 1
            # It lets other threads run meanwhile, as grammar libraries do.
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)
        super().fill_bitmask(rows, row)


class Dear(Grammar):
    """A grammar that takes a part of a processor's time without ever being given up."""

    def __init__(self, name: int, seconds: float = 0.05) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.validated = 0

    def fill_bitmask(self, rows: torch.Tensor, row: int) -> None:
        self._work()
        super().fill_bitmask(rows, row)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        self.validated += 1
        self._work()
        return tokens

    def _work(self) -> None:
        began = time.thread_time()
        while time.thread_time() - began < self.seconds:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)


def rows_of_masks() -> torch.Tensor:
    """Room for the masks of a step."""
    return torch.zeros((64, 4), dtype=torch.int32)


def send(driver: Driver, tenant: str, grammar: Grammar, max_tokens: int = 2) -> Request:
    ready: Future[Grammar] = Future()
    ready.set_result(grammar)
    return driver.send(tenant, prompt(1), grammar=ready, max_tokens=max_tokens)


def step(driver: Driver) -> dict[str, list[int]]:
    """Makes one step, with masks for the requests with structured output."""
    output, result = driver.schedule()
    reported = driver.scheduler.get_grammar_bitmask(output)
    masks = (
        {}
        if reported is None
        else dict(zip(reported.structured_output_request_ids, reported.grammar_bitmask, strict=False))
    )
    driver.update(output, result)
    return {name: sorted(set(mask.tolist())) for name, mask in masks.items()}


def busy(driver: Driver) -> bool:
    return any(worker.is_alive() for worker in driver.scheduler._masks._left.values())
