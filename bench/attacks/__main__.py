"""Prefix probing, on stock vLLM and with zones, side by side in one run.

Two engines run on the CPU with the same model, blocks and flags. On each of them a victim sends prompts, and an
attacker tries to learn which (`bench.attacks.probing`). With zones, the attack is repeated by an attacker who knows the
victim's `cache_salt`.
"""

import argparse
import asyncio
import sys

from bench.attacks.channels import ChannelFindings, listen
from bench.attacks.engines import attacked_engines
from bench.attacks.findings import guess_deviation
from bench.attacks.probing import Finding, Probe, probe
from bench.end_to_end.engines import Engine, EngineError
from bench.progress import say

_PROMPT_WORDS = 1024
"""Number of words in a prompt; each word is one token of the bench's model."""
_FLAGS = (
    *("--enable-prompt-tokens-details", "--max-num-batched-tokens", "512"),
    *("--long-prefill-token-threshold", "128"),
)
"""vLLM flags with which a prompt takes several steps, and a step computes parts of several prompts. If a step computed
both prompts of a race, they would end at the same time. If a step computed only the first prompt, the other could never
overtake it, whatever is cached."""
_COPIED = "what-the-victim-sends"


def main() -> None:
    """Start the engines, attack them in turn, and print the findings."""
    options = _options()
    try:
        with attacked_engines(zones=2, flags=_FLAGS) as (stock, zones):
            sides = (
                ("stock", stock, None),
                ("across zones", zones, None),
                ("across zones, salt copied", zones, _COPIED),
            )
            chosen = [(seed, side) for seed, side in enumerate(sides) if side[0] in (options.only or side[0])]
            findings = {
                name: _probe(name, engine, options.samples, salt, seed) for seed, (name, engine, salt) in chosen
            }
            channels = {
                name: _listen(name, engine, options.others, salt, seed) for seed, (name, engine, salt) in chosen
            }
    except EngineError as error:
        sys.exit(f"bench.attacks: {error}")
    print(table(findings, options.samples), table_of_channels(channels), sep="\n\n")


def table(findings: dict[str, Finding], samples: int) -> str:
    """Returns a table of the findings, with a line for each attacked side."""
    lines = [
        f"prefix probing, {samples} prompts of {_PROMPT_WORDS:,} tokens on each side; "
        f"19 times of 20 a guess has an AUC within 0.5 ± {1.96 * guess_deviation(samples):.3f}",
        f"{'':<28} {'AUC':>6} {'KS p':>9}   {'came first':>10} {'p':>9}   {'cached tokens reported':>18}",
    ]
    for name, found in findings.items():
        by_time = f"{found.by_time.auc:>6.3f} {found.by_time.p_value:>9.2g}"
        by_order = f"{found.sent_came_first:>10.3f} {found.order_p_value:>9.2g}"
        lines.append(f"{name:<28} {by_time}   {by_order}   {found.cached_tokens:>18,}")
    return "\n".join(lines)


def table_of_channels(channels: dict[str, ChannelFindings]) -> str:
    """Returns a table of the other channels, with a line for each attacked side."""
    lines = [f"{'':<28} {'logprobs: AUC':>13} {'KS p':>9}   {'error texts':>11}   {'figures moved':>13}"]
    for name, each in channels.items():
        by_logprobs = f"{each.by_logprobs.auc:>13.3f} {each.by_logprobs.p_value:>9.2g}"
        lines.append(f"{name:<28} {by_logprobs}   {each.error_texts:>11}   {each.figures:>13}")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.attacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=250, help="on each side (default: %(default)s)")
    parser.add_argument("--others", type=int, default=25, help="of the other channels (default: %(default)s)")
    parser.add_argument("--only", nargs="*", metavar="SIDE", help="of the table; default: all")
    return parser.parse_args()


def _probe(name: str, engine: Engine, samples: int, salt: str | None, seed: int) -> Finding:
    def say_taken(taken: int) -> None:
        if taken % 25 == 0:
            say(f"{name}: {taken} of {samples}")

    return asyncio.run(probe(engine, Probe(samples, _PROMPT_WORDS, seed, salt), say_taken))


def _listen(name: str, engine: Engine, samples: int, salt: str | None, seed: int) -> ChannelFindings:
    say(f"{name}: logprobs, errors, figures")
    return asyncio.run(listen(engine, Probe(samples, _PROMPT_WORDS, -1 - seed, salt)))


if __name__ == "__main__":
    main()
