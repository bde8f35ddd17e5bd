"""Counts how tokens are processed a second time, step by step and token by token, for any vLLM scheduler.

The runtime reads positions from time to time. This reads the contents of each step, and the model's results.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request


@dataclass(eq=False)
class _Life:
    """One request from its arrival to its end."""

    request: Request
    owner: Hashable
    reached: set[int] = field(default_factory=set)
    """Positions that were ever computed, loaded or found."""


@dataclass(eq=False)
class _Stay:
    """One request from an admission to its preemption or end."""

    life: _Life
    preemptions: int
    position: int

    @property
    def is_over(self) -> bool:
        return bool(self.life.request.is_finished()) or self.life.request.num_preemptions != self.preemptions


class TokenTally:
    """Tokens by how they were processed, for each owner of requests.

    ``found`` are tokens that a request began with: prefix hits, and what a tier had.

    Args:
        scheduler: whose steps.
        owner_of: whom a request's tokens are counted for; None: they are not counted.
    """

    def __init__(self, scheduler: Scheduler, owner_of: Callable[[Request], Hashable | None]) -> None:
        self._scheduler = scheduler
        self._owner_of = owner_of
        self._lives: dict[str, _Life] = {}
        self._stays: dict[str, _Stay] = {}
        self._steps: dict[int, dict[str, tuple[_Stay, int]]] = {}
        """By the id of the step's output: its stays, each with its tokens that are not drafted."""
        self.counts: dict[Hashable, Counter[str]] = {}
        self.scheduled_tokens: Counter[Hashable] = Counter()

    @property
    def is_settled(self) -> bool:
        """Whether no step is in flight."""
        return not self._steps

    def scheduled(self, output: SchedulerOutput) -> None:
        """Look at a step that was scheduled."""
        cached = output.scheduled_cached_reqs
        begun = {each.req_id: each.num_computed_tokens for each in output.scheduled_new_reqs}
        positions = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        begun |= {name: position for name, position in positions if name in cached.resumed_req_ids}
        for name, position in begun.items():
            self._begin(self._scheduler.requests[name], position)
        if not output.num_scheduled_tokens:
            return
        known = output.num_scheduled_tokens.keys() & self._stays.keys()
        drafts = output.scheduled_spec_decode_tokens
        self._steps[id(output)] = {
            name: (self._stays[name], output.num_scheduled_tokens[name] - len(drafts.get(name, ()))) for name in known
        }
        for name in known:
            self.scheduled_tokens[self._stays[name].life.owner] += output.num_scheduled_tokens[name]

    def _begin(self, request: Request, position: int) -> None:
        name, owner = request.request_id, self._owner_of(request)
        if name not in self._lives:
            if owner is None:
                return
            self._lives[name] = _Life(request, owner)
        life = self._lives[name]
        life.reached.update(set(range(position)) - self._in_flight(name))
        self._stays[name] = _Stay(life, request.num_preemptions, position)
        self.counts.setdefault(life.owner, Counter())["found"] += position

    def _in_flight(self, name: str) -> set[int]:
        """The positions that steps in flight compute of a request's last stay: these steps count them when they end."""
        last = self._stays.get(name)
        if last is None:
            return set()
        tokens = sum(tokens for of_step in self._steps.values() for stay, tokens in of_step.values() if stay is last)
        return set(range(last.position, last.position + tokens))

    def ending(self, output: SchedulerOutput, result: ModelRunnerOutput) -> None:
        """Look at what the model made of a step, before the scheduler does."""
        for name, (stay, tokens) in self._steps.pop(id(output), {}).items():
            drafted = len(output.scheduled_spec_decode_tokens.get(name, ()))
            sampled = result.sampled_token_ids[result.req_id_to_index[name]]
            accepted = 0 if stay.is_over else max(0, len(sampled) - 1) if sampled else drafted
            counts = self.counts[stay.life.owner]
            counts["draft_rejected"] += drafted - accepted
            for _ in range(tokens + accepted):
                counts["recomputed" if stay.position in stay.life.reached else "computed_first"] += 1
                stay.life.reached.add(stay.position)
                stay.position += 1
