"""Renders the results of policies as a self-contained HTML page with inline pictures."""

import html
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tenantzone_replay.results.capacities import Curve, curves_table
from tenantzone_replay.results.pictures import Line, as_number, as_part, bars, curve
from tenantzone_replay.results.tables import tables
from tenantzone_replay.simulation.distribution import Distribution
from tenantzone_replay.simulation.locality import Locality
from tenantzone_replay.simulation.locality import lines as locality_lines
from tenantzone_replay.simulation.measures import Moment, Result

_SHOWN: Final = 20
"""Maximum number of tenants that a picture shows individually."""
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}
pre{overflow-x:auto;font-size:12px} svg{max-width:100%;height:auto} text{fill:currentColor;font-size:12px}
.axis{stroke:currentColor;stroke-opacity:.4} figure{margin:1.5rem 0} h2{margin-top:2.5rem}
"""


def report(
    results: Sequence[Result],
    load: str,
    about: Mapping[str, str],
    locality: Locality,
    curves: Sequence[Curve] = (),
) -> str:
    """Returns the HTML page.

    Args:
        results: the results, one for each policy.
        load: the description of the replayed load.
        about: descriptions of the load, the memory, the model and the options, by label.
        locality: the locality of the load's blocks.
        curves: the hit rates by capacity, or nothing if they were not requested.
    """
    rows = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in about.items())
    parts = [
        f"<h1>Replay of {html.escape(load)}</h1>",
        f"<dl>{rows}</dl>",
        f"<pre>{html.escape(tables(results))}</pre>",
        *_of_all(results, curves),
        *_load(locality),
    ]
    for result in results:
        parts.append(f"<h2>{html.escape(result.policy)}</h2><p>{html.escape(result.what)}</p>")
        parts.append("<h3>Who held the blocks</h3>")
        parts.append(curve(_ownership(result), "seconds", f"of {result.blocks:,} blocks"))
        parts += _lost_and_lent(result)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Replay</title><style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )


def pictures(results: Sequence[Result], curves: Sequence[Curve]) -> dict[str, tuple[str, str]]:
    """Returns the title and the SVG of each picture, by file name without suffix."""
    rates = [(each.policy, [(float(point.blocks), point.hit_rate) for point in each.points]) for each in curves]
    first = [(each.policy, _cumulative(each.first_token())) for each in results]
    token = [(each.policy, _cumulative(each.token())) for each in results]
    hits, held = ([(each.policy, points(each)) for each in results] for points in (_hit_rates, _held))
    found = {
        "capacity": ("Hit rate against capacity", curve(rates, "blocks", "of prompt tokens found", dots=True)),
        "first-token": ("Time to the first token, all tenants", curve(first, "seconds", "part of requests")),
        "token": ("Time from token to token, all tenants", curve(token, "seconds", "part of requests")),
        "hits": ("Hit rate over time", curve(hits, "seconds", "of prompt tokens so far")),
        "held": ("Blocks held over time", curve(held, "seconds", "of all blocks")),
    }
    if not curves:
        del found["capacity"]
    for result in results:
        owners = curve(_ownership(result), "seconds", f"of {result.blocks:,} blocks")
        found[f"owners-{result.policy}"] = f"Who held the blocks: {result.policy}", owners
    return found


def _of_all(results: Sequence[Result], curves: Sequence[Curve]) -> Iterator[str]:
    for name, (title, picture) in pictures(results, curves).items():
        if not name.startswith("owners-"):
            yield f"<h2>{html.escape(title)}</h2>{picture}"
    if curves:
        yield f"<pre>{html.escape(curves_table(curves))}</pre>"


def _load(locality: Locality) -> Iterator[str]:
    if not locality.reuse.count:
        return
    yield "<h2>How the load uses blocks</h2>"
    yield f"<pre>{html.escape(chr(10).join(locality_lines(locality)))}</pre>"
    yield curve([("used again after", _cumulative(locality.reuse))], "seconds", "part of uses")
    hottest = [("of the hottest", locality.concentration())]
    yield curve(hottest, "of the blocks", "part of uses", right_as=as_part)


def _lost_and_lent(result: Result) -> Iterator[str]:
    evicted = {tenant: each.evicted for tenant, each in result.tenants.items() if each.evicted}
    if evicted:
        lost = _largest({tenant: each.total() for tenant, each in evicted.items()})
        yield "<h3>Cached blocks that tenants lost, by reason</h3>"
        yield bars({name: sum((evicted[each] for each in tenants), Counter()) for name, tenants in lost}, "blocks")
    lent = _by_tenant(result, lambda moment: moment.lent)
    if lent:
        yield "<h3>Blocks of reservations that others stood on, by lender</h3>"
        yield curve(lent, "seconds", "blocks", top_as=as_number)


def _cumulative(distribution: Distribution) -> list[tuple[float, float]]:
    last = distribution.quantile(0.99)
    return [(0.0, 0.0), *(point for point in distribution.curve() if point[0] <= last)]


def _hit_rates(result: Result) -> list[tuple[float, float]]:
    return [(each.seconds, each.hit_tokens / each.prompt_tokens) for each in result.moments if each.prompt_tokens]


def _held(result: Result) -> list[tuple[float, float]]:
    return [(each.seconds, sum(each.held.values()) / result.blocks) for each in result.moments]


def _ownership(result: Result) -> list[Line]:
    held = _by_tenant(result, lambda moment: moment.held)
    return [(name or "all", [(when, blocks / result.blocks) for when, blocks in points]) for name, points in held]


def _by_tenant(result: Result, of: Callable[[Moment], Mapping[str, int]]) -> list[Line]:
    total: Counter[str] = Counter()
    for moment in result.moments:
        total.update(of(moment))
    return [
        (name, [(each.seconds, float(sum(of(each).get(tenant, 0) for tenant in tenants))) for each in result.moments])
        for name, tenants in _largest(total)
    ]


def _largest(amounts: Mapping[str, float]) -> list[tuple[str, Sequence[str]]]:
    """Returns the name and the tenants of each group in a picture: one group per large tenant, and one for the rest."""
    ranked = sorted(amounts, key=lambda tenant: -amounts[tenant])
    shown: list[tuple[str, Sequence[str]]] = [(tenant, [tenant]) for tenant in sorted(ranked[:_SHOWN])]
    others = ranked[_SHOWN:]
    return [*shown, (f"{len(others):,} others", others)] if others else shown
