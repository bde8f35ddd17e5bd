"""One run of `vllm bench serve` against one engine, in this process: to load vLLM takes longer than to run it."""

import argparse
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from bench.end_to_end.engines import MODEL, Engine
from bench.end_to_end.results import Run


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one run."""

    prompts: int
    concurrency: int
    """Requests at a time in a saturated run."""
    prefixes: int = 20
    prefix_tokens: int = 512
    suffix_tokens: int = 64
    answer_tokens: int = 32


class LoadError(Exception):
    """Requests failed, or had wrong answers: the measurement is worthless."""


def run(engine: Engine, load: Load, *, tokenizer: Path, seed: int, rate: float | None = None) -> Run:
    """Ask the engine for all answers, and say how long they took.

    Args:
        engine: that is measured.
        load: that is sent.
        tokenizer: the model's, as a folder.
        seed: engines that get the same one get the same prompts in the same order, and at the same times.
        rate: requests per second, whose arrivals are a Poisson process; None: saturated, as many at a time as there
            may be.

    Raises:
        LoadError: a request failed.
    """
    # The benchmark's client should print its results only; and the model is on this machine.
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
