"""Sends the same forged requests to stock vLLM and to vLLM with zones, in one run.

A tenant with one key sends requests that imitate other tenants (`bench.attacks.forge.forging`), and requests drawn from
the server's own OpenAPI description (`bench.attacks.forge.described`). Stock vLLM has no tenants, so it can't attribute
a request to the wrong one.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

import httpx

from bench.attacks.engines import attacked_engines
from bench.attacks.forge.described import draw_described
from bench.attacks.forge.forgery import Forgeries, forge_at
from bench.attacks.forge.forging import Forged, Forger, forge
from bench.end_to_end.engines import Engine, EngineError
from bench.progress import say

_VICTIMS = ("tenant-1", "tenant-2")


def main() -> None:
    """Start the engines, send the requests to both, and print the outcomes; exit with 1 if zones failed a check."""
    options = _options()
    try:
        with attacked_engines(zones=1 + len(_VICTIMS)) as (stock, zones):
            forged = _draw(zones, options.requests, options.described, options.seed)
            # Attack zones first, because stock vLLM may crash.
            found = {engine.name: _attack(engine, forged) for engine in (zones, stock)}
    except EngineError as error:
        sys.exit(f"bench.attacks.forge: {error}")
    print(table(found))
    ours = found["zones"]
    if ours.moved or ours.hung or ours.revealing or not ours.is_alive:
        sys.exit(1)


def table(found: dict[str, Forgeries]) -> str:
    """Returns a table of the results, with a column for each engine."""
    rows = {
        "requests": [f"{each.sent:,}" for each in found.values()],
        "  served (2xx)": [_count(each, range(200, 300)) for each in found.values()],
        "  refused (4xx)": [_count(each, range(400, 500)) for each in found.values()],
        "  500": [_count(each, range(500, 501)) for each in found.values()],
        "  503": [_count(each, range(503, 504)) for each in found.values()],
        "  closed without an answer": [f"{each.statuses[None]:,}" for each in found.values()],
        "  neither answered nor closed": [f"{len(each.hung):,}" for each in found.values()],
        "answers that name internals": [f"{len(each.revealing):,}" for each in found.values()],
        "figures of others that moved": [f"{len(each.moved):,}" for each in found.values()],
        "slowest /health meanwhile": [f"{each.slowest_health_seconds:.2f} s" for each in found.values()],
        "/health afterwards": ["200" if each.is_alive else "none" for each in found.values()],
    }
    lines = [f"{'':<32}" + "".join(f"{name:>10}" for name in found)]
    lines += [f"{what:<32}" + "".join(f"{value:>10}" for value in values) for what, values in rows.items()]
    return "\n".join(lines)


def _count(found: Forgeries, statuses: range) -> str:
    return f"{sum(found.statuses[status] for status in statuses):,}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.attacks.forge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=10_000, help="forged by hand (default: %(default)s)")
    parser.add_argument("--described", type=int, default=500, help="by the description (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of both (default: %(default)s)")
    return parser.parse_args()


def _draw(engine: Engine, requests: int, described: int, seed: int) -> list[Forged]:
    own = engine.headers_of(0)
    say(f"drawing {requests:,} requests")
    forged = forge(Forger(engine.model, own, _VICTIMS), requests, seed)
    say(f"drawing {described:,} requests by the server's description of itself")
    description = httpx.get(f"{engine.url}/openapi.json", headers=own, timeout=60).json()
    return forged + draw_described(description, own, described, seed)


def _attack(engine: Engine, forged: Sequence[Forged]) -> Forgeries:
    def say_sent(sent: int) -> None:
        if sent % 1000 == 0:
            say(f"{engine.name}: {sent:,} of {len(forged):,}")

    found = asyncio.run(forge_at(engine, forged, _VICTIMS, say_sent))
    for request, reply in found.revealing + found.failed:
        say(f"{engine.name}: {reply.status}, {reply.body[:200]!r} for {request[:200]!r}")
    for figure in found.moved:
        say(f"{engine.name}: {figure}")
    return found


if __name__ == "__main__":
    main()
