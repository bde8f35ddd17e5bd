"""The results of vLLM's tests by kind of model and feature, which the tests' names show."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from hack.conformance.comparison import Comparison

KINDS: Final[Mapping[str, str]] = {
    "several groups of KV caches": r"hybrid|group",
    "sliding windows, chunked local attention": r"swa|sliding|window|chunked_local",
    "Mamba, linear attention": r"mamba|linear",
    "latent attention (MLA)": r"mla|deepseek",
    "speculative decoding": r"spec_dec|speculat|eagle|draft|mtp|lookahead",
    "images, encoders": r"encoder|mm_|multimodal|image|embed|cross_attn|ec_connector",
    "pipelines": r"_pp_",
    "LoRA": r"lora",
    "KV connectors, loads": r"^(?!.*ec_connector).*(connector|remote_kv|external|kv_load)",
    "structured output": r"grammar|structured",
}
"""Words in a test's file or name, by kind; a test may be of several."""


def by_kind(comparison: Comparison) -> Iterator[str]:
    """A table for people, with all tests in its last line."""
    yield f"{'kind':<42} {'tests':>5}  {'both':>5}  {'stock, known':>12}  {'stock':>5}"
    for kind, words in (*KINDS.items(), ("all", "")):
        both, known, stock = (
            sum(re.search(words, test.lower()) is not None for test in tests)
            for tests in (comparison.passed, comparison.explained, comparison.stock_only)
        )
        yield f"{kind:<42} {both + known + stock:>5}  {both:>5}  {known:>12}  {stock:>5}"
