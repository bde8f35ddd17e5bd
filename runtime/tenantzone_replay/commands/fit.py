"""Measure over HTTP how long an engine's steps take, and write the result for ``compare --profile``.

First, prompts of several lengths are sent one at a time, to measure the cost of prefill. Then several requests with
long answers run at the same time, to measure the cost of decode steps. The engine should have no other load.
"""

import argparse
import asyncio
import statistics
import sys
from urllib.parse import urlsplit

from tenantzone_replay.commands.option_types import file_to_write, whole
from tenantzone_replay.engine.measured import described, errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe the engine."""
    parser.add_argument(
        "url", type=_url, metavar="URL", help="URL of the engine's OpenAI API, for example http://127.0.0.1:8000"
    )
    parser.add_argument(
        "--out", type=file_to_write, required=True, metavar="FILE", help="write the measured engine to this file"
    )
    parser.add_argument("--model", default="", help="name of the served model (default: the first one)")
    parser.add_argument("--key", default="", help="API key (default: none)")
    parser.add_argument(
        "--step-tokens",
        type=whole(64),
        default=2048,
        help="maximum number of tokens per step of the engine (default: %(default)s)",
    )
    parser.add_argument(
        "--at-once",
        type=whole(),
        nargs="+",
        default=[1, 2, 4, 8, 16, 32],
        help="numbers of concurrent answers to measure (default: 1 2 4 8 16 32)",
    )
    parser.add_argument(
        "--blocks", type=whole(), default=0, help="KV-cache blocks of the engine (default: as reported in its /metrics)"
    )
    parser.add_argument(
        "--block-tokens", type=whole(), default=0, help="tokens per block (default: as reported in /metrics, or 16)"
    )
    parser.add_argument(
        "--cache-bytes-per-token",
        type=whole(),
        default=0,
        help="bytes of KV cache per token, so that advice can print GiB (default: unknown)",
    )
    parser.add_argument(
        "--gpus", type=whole(), default=1, help="number of the engine's GPUs, for GPU seconds (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed of the prompts (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    """Measure the engine, write the fitted costs to a file, and print the costs and the errors of the fit.

    Raises:
        TraceError: the engine can't be reached or measured.
    """
    # Imported here, because --help does not need an HTTP client.
    from tenantzone_replay.engine.fitting import REPEATS, measure

    measured, samples = asyncio.run(measure(options))
    off = errors(measured, samples)
    measured = described(measured, options.cache_bytes_per_token, options.gpus)
    measured.write(options.out)
    print(
        f"{measured.name}: a step takes {1e3 * measured.step:.3f} ms, and {1e6 * measured.token:.2f} us a token, "
        f"{1e6 * measured.request:.1f} us a request, {1e9 * measured.pair:.3f} ns a pair of tokens that attend, "
        f"{1e9 * measured.read:.2f} ns a token that is read; the way to the engine and back takes "
        f"{1e3 * measured.first_token:.2f} ms"
    )
    print(
        f"{len(samples)} medians of {REPEATS}: they are off by {statistics.median(off):.1%} in the median, "
        f"{max(off):.1%} at most"
    )
    if not measured.block_count:
        print("the engine does not report its number of blocks, so compare will need --blocks", file=sys.stderr)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise argparse.ArgumentTypeError(
            f"expected a URL with a host that begins with http:// or https://, got {text!r:.100}"
        )
    return text
