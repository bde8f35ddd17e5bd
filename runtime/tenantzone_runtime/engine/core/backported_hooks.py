"""Adds the scheduler hooks that docs/upstream.md proposes to versions of vLLM without these hooks.

The base class ``HookCalls`` overrides methods of vLLM's scheduler, and calls the hooks from them. If vLLM has the
hooks, ``HookCalls`` is empty.
"""

from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from tenantzone_runtime.engine.patches.substitution import zone_classes
from tenantzone_runtime.engine.versions import end_with_next_output


class BackportedHooks(Scheduler):
    """The hooks, and overrides of vLLM's methods that call the hooks. List this class before vLLM's class as a base."""

    failed_reqs: dict[str, Request]
    """Requests, by id, that the next output will end with an error. vLLM never schedules these requests."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.failed_reqs = {}
        with zone_classes():
            super().__init__(*args, **kwargs)

    def may_admit(self, request: Request) -> bool:
        """Returns whether a waiting request may be admitted in this step."""
        return True

    def num_tokens_to_encode(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Returns the number of next tokens whose encoder inputs this step may schedule."""
        return num_new_tokens

    def num_tokens_to_schedule(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Returns how many of the next tokens this step computes. If 0, vLLM skips a running request."""
        return int(super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens))

    def select_victim(self, request: Request, victim: Request | None) -> Request | None:
        """Returns the request to preempt because another request got no blocks, or None to preempt no request."""
        return victim

    def on_preempt(self, request: Request) -> None:
        """Called before vLLM preempts a running request, which loses its blocks and its position."""

    def on_finish(self, request: Request) -> None:
        """Called once for each request that has ended, before it is freed."""

    def on_blocks_freed(self, request: Request) -> None:
        """Called once for each request that has ended, after its blocks were freed."""

    def on_drafts_verified(self, request: Request, num_rejected: int) -> None:
        """Called when vLLM has verified the drafted tokens of a request."""

    def block_ids_to_zero(self, block_ids: list[int] | None) -> list[int] | None:
        """Returns the ids of the blocks that workers must zero before a step."""
        return block_ids

    # vLLM's methods

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        # vLLM calls this first for each waiting request that it considers. It skips the request if the result is False.
        return self.may_admit(request) and bool(super()._handle_blocked_waiting_request(request))

    def _try_schedule_encoder_inputs(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int, *args: Any, **kwargs: Any
    ) -> Any:
        num_new_tokens = self.num_tokens_to_encode(request, num_computed_tokens, num_new_tokens)
        return super()._try_schedule_encoder_inputs(request, num_computed_tokens, num_new_tokens, *args, **kwargs)

    def _reserve_prefill_lookahead(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        # This is the last call before vLLM takes blocks for a request.
        return self.num_tokens_to_schedule(request, num_computed_tokens, num_new_tokens)

    def _request_blocks_can_be_freed(self, request: Request) -> bool:
        # vLLM calls this before it preempts a running request, because another request was just refused blocks. vLLM
        # does not pass the other request.
        return self.select_victim(request, request) is not None and bool(super()._request_blocks_can_be_freed(request))

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        self.on_preempt(request)
        super()._preempt_request(request, timestamp, drop_stale_output)

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        # vLLM calls this for every request that ends, for any reason.
        self.failed_reqs.pop(request.request_id, None)
        self.on_finish(request)
        return super()._free_request(request, delay_free_blocks)

    def _free_blocks(self, request: Request) -> None:
        super()._free_blocks(request)
        self.on_blocks_freed(request)

    def _get_new_block_ids_to_zero(self) -> list[int] | None:
        return self.block_ids_to_zero(super()._get_new_block_ids_to_zero())

    def _enqueue_waiting_request(self, request: Request) -> None:
        if request.request_id not in self.failed_reqs:
            super()._enqueue_waiting_request(request)

    def get_num_unfinished_requests(self) -> int:
        # The next output must end the failed requests, so the engine must not sleep, even if no other requests exist.
        unfinished: int = super().get_num_unfinished_requests()
        return unfinished if self.pause_state == PauseState.PAUSED_ALL else unfinished + len(self.failed_reqs)

    def update_from_output(self, scheduler_output: Any, model_runner_output: ModelRunnerOutput) -> Any:
        end_with_next_output(self, self.failed_reqs)
        return super().update_from_output(scheduler_output, model_runner_output)

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        # vLLM calls this for each request whose drafts were verified in the step, even if statistics are disabled.
        self.on_drafts_verified(self.requests[request_id], num_draft_tokens - num_accepted_tokens)
        return super().make_spec_decoding_stats(
            spec_decoding_stats, num_draft_tokens, num_accepted_tokens, num_invalid_spec_tokens, request_id
        )


class NoBackport:
    """An empty base class, used instead of ``BackportedHooks`` if vLLM has the hooks."""


if TYPE_CHECKING or not hasattr(Scheduler, "may_admit"):  # noqa: SIM108 - a type checker needs the statement
    HookCalls = BackportedHooks
else:
    HookCalls = NoBackport
