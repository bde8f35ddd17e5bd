"""A model runner without weights: its next token depends on everything in the request's blocks."""

import zlib

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput

from hack.harness.scheduler import BLOCK_TOKENS

LOWEST_TOKEN, TOKENS = 3, 100


class PagedModel:
    """Keeps block tables as vLLM's workers do, and the memory that they point to.

    A block that is lost, handed to two requests, or read before it was written changes the answer.
    """

    def __init__(self, blocks: int) -> None:
        self._memory = [[0] * BLOCK_TOKENS for _ in range(blocks)]
        self._tables: dict[str, list[int]] = {}
        self._tokens: dict[str, list[int]] = {}
        self._computed: dict[str, int] = {}

    def execute(self, step: SchedulerOutput) -> ModelRunnerOutput:
        for block in step.new_block_ids_to_zero or ():
            self._memory[block] = [0] * BLOCK_TOKENS
        self._update_tables(step)
        names = list(step.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[self._forward(name, step.num_scheduled_tokens[name]) for name in names],
        )

    def _update_tables(self, step: SchedulerOutput) -> None:
        for new in step.scheduled_new_reqs:
            self._tables[new.req_id] = list(new.block_ids[0])
            self._tokens[new.req_id] = list(new.prompt_token_ids)
            self._computed[new.req_id] = new.num_computed_tokens
        known = step.scheduled_cached_reqs
        for name, blocks, computed in zip(known.req_ids, known.new_block_ids, known.num_computed_tokens, strict=True):
            if name in known.resumed_req_ids:
                self._tables[name] = []
                self._tokens[name] = list(known.all_token_ids[name])
            self._tables[name] += blocks[0] if blocks else []
            self._computed[name] = computed

    def _forward(self, name: str, count: int) -> list[int]:
        tokens, start = self._tokens[name], self._computed[name]
        places = [(block, slot) for block in self._tables[name] for slot in range(BLOCK_TOKENS)]
        for position in range(start, start + count):
            block, slot = places[position]
            self._memory[block][slot] = tokens[position]
        if start + count < len(tokens):
            return []
        seen = bytes(self._memory[block][slot] for block, slot in places[: len(tokens)])
        tokens.append(LOWEST_TOKEN + zlib.crc32(seen) % TOKENS)
        return tokens[-1:]
