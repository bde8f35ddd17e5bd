"""Runs `vllm bench serve` against one engine, in this process, because importing vLLM takes longer than a run."""

import argparse
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from bench.end_to_end.engines import MODEL, Engine
from bench.end_to_end.results import Run


@dataclass(frozen=True, slots=True)
class Load:
    """The sizes of the load of one run."""

    prompts: int
    concurrency: int
    """Number of concurrent requests in a saturated run."""
    prefixes: int = 20
    prefix_tokens: int = 512
    suffix_tokens: int = 64
    answer_tokens: int = 32


class LoadError(Exception):
    """Requests failed or had wrong answers, so the measurement is invalid."""


def run(engine: Engine, load: Load, *, tokenizer: Path, seed: int, rate: float | None = None) -> Run:
    """Send the load to an engine, and measure its answers.

    Args:
        engine: the engine to measure.
        load: the load to send.
        tokenizer: the folder of the model's tokenizer.
        seed: the seed; equal seeds give the same prompts in the same order and at the same times.
        rate: the requests per second, which arrive as a Poisson process; None for a saturated run with the load's
            concurrency.

    Raises:
        LoadError: a request failed.
    """
    # Let the benchmark's client print only its results, and use the local model.
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    from vllm.benchmarks import serve

    parser = argparse.ArgumentParser()
    serve.add_cli_args(parser)
    arguments = parser.parse_args(_arguments(engine, load, tokenizer, seed, rate))
    before = engine.cpu_seconds()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        result = serve.main(arguments)
    cpu_seconds = engine.cpu_seconds() - before
    if result["failed"]:
        error = next(filter(None, result["errors"]), "no reason given")
        raise LoadError(f"{engine.name}: {result['failed']} requests failed: {error}")
    if result["total_output_tokens"] != result["completed"] * load.answer_tokens:
        raise LoadError(f"{engine.name}: answers of a length that was not asked for")
    return Run(
        requests_per_second=result["request_throughput"],
        tokens_per_second=result["output_throughput"],
        cpu_milliseconds_per_request=cpu_seconds * 1000 / result["completed"],
        first_token_milliseconds=tuple(seconds * 1000 for seconds in result["ttfts"]),
    )


def _arguments(engine: Engine, load: Load, tokenizer: Path, seed: int, rate: float | None) -> list[str]:
    arguments = [
        "--base-url", engine.url,
        "--model", MODEL,
        "--tokenizer", str(tokenizer),
        "--dataset-name", "prefix_repetition",
        "--prefix-repetition-num-prefixes", str(load.prefixes),
        "--prefix-repetition-prefix-len", str(load.prefix_tokens),
        "--prefix-repetition-suffix-len", str(load.suffix_tokens),
        "--prefix-repetition-output-len", str(load.answer_tokens),
        "--num-prompts", str(load.prompts),
        "--seed", str(seed),
        "--temperature", "0",
        "--ignore-eos",
        "--save-detailed",
    ]  # fmt: skip
    arguments += ["--max-concurrency", str(load.concurrency)] if rate is None else ["--request-rate", str(rate)]
    if engine.headers:
        arguments += ["--header", *engine.headers]
    return arguments
