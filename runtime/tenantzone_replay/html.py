"""What policies came to, as a page that needs no network: its pictures are drawn in it."""

import html
from collections.abc import Sequence
from typing import Final

from tenantzone_replay.measures import Result
from tenantzone_replay.tables import tables

_WIDTH: Final = 720
_HEIGHT: Final = 240
_COLOURS: Final = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e")
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}
pre{overflow-x:auto;font-size:12px} svg{max-width:100%;height:auto} text{fill:currentColor;font-size:12px}
.axis{stroke:currentColor;stroke-opacity:.4} figure{margin:1.5rem 0} h2{margin-top:2.5rem}
"""

Line = tuple[str, Sequence[tuple[float, float]]]
"""A name, and points from left to right."""


def report(results: Sequence[Result], load: str) -> str:
    """The page.

    Args:
        results: one for each policy.
        load: what was replayed, in words.
    """
    parts = [
        f"<h1>Replay of {html.escape(load)}</h1>",
        f"<pre>{html.escape(tables(results))}</pre>",
        "<h2>Time to the first token, all tenants</h2>",
        _picture([(result.policy, _first_token_curve(result)) for result in results], "seconds", "part of requests"),
        "<h2>Hit rate over time</h2>",
        _picture([(result.policy, _hit_rates(result)) for result in results], "seconds", "of prompt tokens so far"),
    ]
    for result in results:
        parts.append(f"<h2>Who held the blocks: {html.escape(result.policy)}</h2>")
        parts.append(_picture(_ownership(result), "seconds", f"of {result.blocks:,} blocks"))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Replay</title><style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )


def _first_token_curve(result: Result) -> list[tuple[float, float]]:
    merged = result.first_token()
    last = merged.quantile(0.99)
    return [(0.0, 0.0), *(point for point in merged.curve() if point[0] <= last)]


def _hit_rates(result: Result) -> list[tuple[float, float]]:
    return [(each.seconds, each.hit_tokens / each.prompt_tokens) for each in result.moments if each.prompt_tokens]


def _ownership(result: Result) -> list[Line]:
    names = sorted({name for moment in result.moments for name in moment.held})
    return [
        (name or "all", [(each.seconds, each.held.get(name, 0) / result.blocks) for each in result.moments])
        for name in names
    ]


def _picture(lines: Sequence[Line], across: str, upward: str) -> str:
    points = [point for _, line in lines for point in line]
    right = max((x for x, _ in points), default=0.0) or 1.0
    top = max((y for _, y in points), default=0.0) or 1.0
    drawn = [
        f'<path class="axis" fill="none" d="M40 8V{_HEIGHT}H{_WIDTH}"/>',
        f'<text x="0" y="14">{top:.0%}</text><text x="44" y="18">{html.escape(upward)}</text>',
        f'<text x="{_WIDTH}" y="{_HEIGHT + 16}" text-anchor="end">{right:,.3g} {html.escape(across)}</text>',
    ]
    for number, (name, line) in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(
            f"{40 + x / right * (_WIDTH - 40):.1f},{_HEIGHT - y / top * (_HEIGHT - 8):.1f}" for x, y in line
        )
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        x, y = 40 + number % 5 * 135, _HEIGHT + 36 + number // 5 * 18
        drawn.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{colour}"/>')
        drawn.append(f'<text x="{x + 14}" y="{y}">{html.escape(name)}</text>')
    height = _HEIGHT + 48 + len(lines) // 5 * 18
    return f'<figure><svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(drawn)}</svg></figure>'
