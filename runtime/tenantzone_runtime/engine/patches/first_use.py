"""Compiles vLLM's sampling code before an engine is ready, instead of at the first request that needs the code.

Some functions and kernels of vLLM's sampler are compiled at their first call, for example when a request asks for log
probabilities. Compiling takes seconds in the worker, while the requests of all tenants wait.

Upstream change that would make this module unnecessary: vLLM's warm-up runs the sampler with every kind of sampling
parameters.
"""

import logging
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final

import torch
from vllm.v1.executor.abstract import Executor

_log = logging.getLogger(__name__)

_SLOW_SECONDS: Final = 2.0
_AFTER: Final = ("compile_or_warm_up_model", "initialize_from_config")
"""Names of methods of vLLM's executor in different versions. vLLM calls the first method that exists as the last step
before an engine is ready."""
_ROWS: Final = (1, 2)
"""Batch sizes to warm up. Two sizes, because a compiler may generate special code for a batch of one request."""


def warm_up_sampling_at_start() -> None:
    """Make vLLM's executors warm up sampling after vLLM has warmed up the model."""
    name = next(each for each in _AFTER if hasattr(Executor, each))
    stock = getattr(Executor, name)
    if not hasattr(stock, "__wrapped__"):
        setattr(Executor, name, _with_sampling(stock))


def _with_sampling(stock: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stock)
    def warm_up(executor: Any, *args: Any, **kwargs: Any) -> Any:
        result = stock(executor, *args, **kwargs)
        executor.collective_rpc(warm_up_sampling)
        return result

    return warm_up


def warm_up_sampling(worker: Any) -> None:
    """Run a worker's sampler once with each kind of sampling that requests can use.

    A failure is only logged, because the engine then compiles at first use, like stock vLLM. Does nothing for a worker
    without vLLM's ``Sampler``: its pipeline stage does not sample, its model does not generate, or it uses vLLM's newer
    model runner, which warms up its kernels itself.

    Args:
        worker: a vLLM worker that has loaded its model.
    """
    began = time.monotonic()
    try:
        _warm_up(worker.model_runner)
    except Exception:
        _log.warning("sampling could not be warmed up, so the first requests may take longer", exc_info=True)
        return
    seconds = time.monotonic() - began
    level = logging.INFO if seconds >= _SLOW_SECONDS else logging.DEBUG
    _log.log(level, "warmed up sampling in %.1f s", seconds)


def _warm_up(runner: Any) -> None:
    from vllm.v1.sample.sampler import Sampler

    sampler = getattr(runner, "sampler", None)
    if not isinstance(sampler, Sampler) or not _samples(runner):
        return
    vocabulary = runner.model_config.get_vocab_size()
    devices = [runner.device] if runner.device.type == "cuda" else []
    # Compile in inference mode, as in vLLM's steps. Restore the random state, which depends on the engine's seed.
    with torch.inference_mode(), torch.random.fork_rng(devices):
        for rows in _ROWS:
            # Zeros replace the model's logits, because the model's layers may not run before adapters are set.
            logits = torch.zeros((rows, vocabulary), dtype=runner.dtype, device=runner.device)
            for metadata in _kinds_of_sampling(rows, vocabulary, runner.device):
                sampler(logits=logits.clone(), sampling_metadata=metadata)
            of_prompt = sampler.compute_logprobs(logits)
            sampler.gather_logprobs(of_prompt, 1, torch.zeros(rows, dtype=torch.int64, device=runner.device))
    _warm_up_grammars(runner)


def _samples(runner: Any) -> bool:
    from vllm.distributed.parallel_state import get_pp_group

    return bool(get_pp_group().is_last_rank) and not getattr(runner, "is_pooling_model", False)


def _kinds_of_sampling(rows: int, vocabulary: int, device: torch.device) -> Iterator[Any]:
    """Iterate over the kinds of sampling. Each item is the sampling metadata of a batch with ``rows`` requests."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    def each(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((rows,), value, dtype=dtype, device=device)

    random: dict[str, Any] = {"temperature": each(0.5), "all_greedy": False, "all_random": True}
    top_k, top_p = {"top_k": each(2, torch.int32)}, {"top_p": each(0.5)}
    seeds = {"generators": {0: torch.Generator(device=device).manual_seed(0)}}
    penalties = {
        "no_penalties": False,
        "prompt_token_ids": torch.zeros((rows, 1), dtype=torch.int64, device=device),
        "output_token_ids": [[0] for _ in range(rows)],
    }
    masks = {"allowed_token_ids_mask": torch.zeros((rows, vocabulary), dtype=torch.bool, device=device)}
    kinds: tuple[dict[str, Any], ...] = (
        {"max_num_logprobs": 1},
        {"logprob_token_ids": {0: [0]}},
        random,
        random | {"all_random": False, "max_num_logprobs": 1},
        random | top_k,
        random | top_p,
        random | top_k | top_p,
        random | seeds,
        random | seeds | top_k | top_p,
        penalties,
        masks,
        {"bad_words_token_ids": {0: [[0]]}},
    )
    for kind in kinds:
        greedy: dict[str, Any] = {
            "temperature": None,
            "all_greedy": True,
            "all_random": False,
            "top_p": None,
            "top_k": None,
            "generators": {},
            "max_num_logprobs": None,
            "no_penalties": True,
            "prompt_token_ids": None,
            "frequency_penalties": each(0.0),
            "presence_penalties": each(0.0),
            "repetition_penalties": each(1.0),
            "output_token_ids": [[] for _ in range(rows)],
            "spec_token_ids": [[] for _ in range(rows)],
            "allowed_token_ids_mask": None,
            "bad_words_token_ids": {},
            "logitsprocs": LogitsProcessors(),
        }
        yield SamplingMetadata(**greedy | kind)


def _warm_up_grammars(runner: Any) -> None:
    """Apply a grammar's token mask, because the grammar library and its kernel are loaded at first use."""
    import xgrammar

    vocabulary = runner.model_config.get_vocab_size()
    dtype = torch.float32 if runner.device.type == "cpu" else runner.dtype
    logits = torch.zeros((1, vocabulary), dtype=dtype, device=runner.device)
    mask = torch.full(xgrammar.get_bitmask_shape(1, vocabulary), -1, dtype=torch.int32, device=runner.device)
    xgrammar.apply_token_bitmask_inplace(logits, mask)
    xgrammar.apply_token_bitmask_inplace(logits, mask, indices=[0])
