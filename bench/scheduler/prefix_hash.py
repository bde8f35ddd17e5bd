"""Measures the time to hash all blocks of a prompt with vLLM's hash functions, by function and block size."""

import argparse
import random
import time

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request

FUNCTIONS = ("sha256", "sha256_cbor")
BLOCK_TOKENS = (16, 128)
_ROUNDS = 15
_VOCABULARY = 150_000


def main() -> None:
    """Measure each function on the same prompt, and print a table of the best times."""
    parser = argparse.ArgumentParser(prog="python -m bench.scheduler.prefix_hash", description=__doc__)
    parser.add_argument("--tokens", type=int, default=32_768, help="of the prompt; default: %(default)s")
    tokens = parser.parse_args().tokens
    rng = random.Random(1)
    prompt = [rng.randrange(_VOCABULARY) for _ in range(tokens)]
    print(f"milliseconds for {tokens:,} tokens" + "".join(f"{name:>14}" for name in FUNCTIONS))
    for block_tokens in BLOCK_TOKENS:
        times = {name: float("inf") for name in FUNCTIONS}
        # Measure in turn, so that other load on the machine affects all functions alike.
        for _ in range(_ROUNDS):
            for name in FUNCTIONS:
                times[name] = min(times[name], _hash(prompt, name, block_tokens))
        label = f"blocks of {block_tokens} tokens"
        print(f"{label:<30}" + "".join(f"{1000 * times[name]:>14.1f}" for name in FUNCTIONS))


def _hash(prompt: list[int], name: str, block_tokens: int) -> float:
    """Returns the seconds to create a request with the prompt, which hashes the prompt's blocks."""
    function = get_hash_fn_by_name(name)
    init_none_hash(function)
    hasher = get_request_block_hasher(block_tokens, function)
    began = time.perf_counter()
    Request(
        request_id="request",
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        cache_salt="0" * 64,
        block_hasher=hasher,
    )
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
