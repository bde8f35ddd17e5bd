"""Draws charts as inline SVG, without external resources."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Final

WIDTH: Final = 720
_HEIGHT: Final = 240
_LEFT: Final = 46
_COLOURS: Final = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0",
    "#b3cde3", "#ccebc5",
)  # fmt: skip
_A_ROW: Final = 5
"""Number of names in each row of the legend below a chart."""

Line = tuple[str, Sequence[tuple[float, float]]]
"""The name of a line, and its points from left to right."""


def as_part(number: float) -> str:
    """Formats a fraction as a percentage."""
    return f"{number:.0%}"


def as_number(number: float) -> str:
    """Formats a number below 1000 with three significant digits, and other numbers as integers."""
    return f"{number:,.3g}" if number < 1000 else f"{number:,.0f}"


def curve(
    lines: Sequence[Line],
    across: str,
    upward: str,
    *,
    top_as: Callable[[float], str] = as_part,
    right_as: Callable[[float], str] = as_number,
    dots: bool = False,
) -> str:
    """Returns a line chart.

    Args:
        lines: the lines to draw, with their names.
        across: the label of the horizontal axis.
        upward: the label of the vertical axis.
        top_as: formats the highest value.
        right_as: formats the rightmost value.
        dots: whether to mark each point.
    """
    points = [point for _, line in lines for point in line]
    right = max((x for x, _ in points), default=0.0) or 1.0
    top = max((y for _, y in points), default=0.0) or 1.0
    drawn = [_axes(top_as(top), upward, f"{right_as(right)} {across}")]
    for number, (_, line) in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(_LEFT + x / right * (WIDTH - _LEFT), _HEIGHT - y / top * (_HEIGHT - 8)) for x, y in _thinned(line)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        if dots:
            drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
    return _figure(drawn, [name for name, _ in lines])


def bars(amounts: Mapping[str, Mapping[str, float]], upward: str) -> str:
    """Returns a chart with one stacked bar for each name in ``amounts``. ``upward`` is the vertical axis's label."""
    kinds = sorted({kind for parts in amounts.values() for kind in parts})
    top = max((sum(parts.values()) for parts in amounts.values()), default=0.0) or 1.0
    width = (WIDTH - _LEFT) / max(1, len(amounts))
    drawn = [_axes(as_number(top), upward, "")]
    for place, (name, parts) in enumerate(amounts.items()):
        x, y = _LEFT + (place + 0.1) * width, float(_HEIGHT)
        for number, kind in enumerate(kinds):
            height = parts.get(kind, 0) / top * (_HEIGHT - 8)
            y -= height
            colour = _COLOURS[number % len(_COLOURS)]
            drawn.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.8:.1f}" height="{height:.1f}" fill="{colour}"/>'
            )
        drawn.append(
            f'<text x="{x + 0.4 * width:.1f}" y="{_HEIGHT + 16}" text-anchor="middle">{html.escape(name)}</text>'
        )
    return _figure(drawn, kinds)


def as_file(picture: str) -> str:
    """Returns the content of a standalone SVG file with a chart. It is legible on dark and light pages."""
    begin, end = picture.index("<svg"), picture.index("</svg>")
    head_ends = picture.index(">", begin) + 1
    style = "<style>text{font:12px system-ui,sans-serif;fill:#808080}.axis{stroke:#808080}</style>"
    return f"{picture[begin:head_ends]}{style}{picture[head_ends:end]}</svg>\n"


def _axes(top: str, upward: str, right: str) -> str:
    return (
        f'<path class="axis" fill="none" d="M{_LEFT} 8V{_HEIGHT}H{WIDTH}"/>'
        f'<text x="0" y="14">{html.escape(top)}</text><text x="{_LEFT + 4}" y="18">{html.escape(upward)}</text>'
        f'<text x="{WIDTH}" y="{_HEIGHT + 16}" text-anchor="end">{html.escape(right)}</text>'
    )


def _figure(drawn: Sequence[str], names: Sequence[str]) -> str:
    below = []
    for number, name in enumerate(names):
        x, y = _LEFT + number % _A_ROW * 134, _HEIGHT + 38 + number // _A_ROW * 18
        colour = _COLOURS[number % len(_COLOURS)]
        below.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{colour}"/>')
        below.append(f'<text x="{x + 14}" y="{y}">{html.escape(name)}</text>')
    height = _HEIGHT + 50 + max(0, len(names) - 1) // _A_ROW * 18
    return (
        f'<figure><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"{''.join([*drawn, *below])}</svg></figure>"
    )


def _thinned(line: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Returns a subset of the points, about one per pixel of the chart's width, including the last point."""
    step = max(1, len(line) // WIDTH)
    return [*line[::step], *line[-1:]] if step > 1 else line
