"""Two plots of a GPU run: times to first token by arm, and tokens per second by arm."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.gpu.report.figures import (
    ARMS,
    SOLO,
    STOCK,
    TARGETS,
    WITH_TARGET,
    ZONES,
    Times,
    cells_of,
    faults_of_arm,
    faults_of_cell,
    flood_rate,
    kinds_of,
    pooled,
    token_rate,
)
from bench.gpu.results import Run

COLOURS: Final = {STOCK: "#b3541e", ZONES: "#1f6fb4", TARGETS: "#2a8a57"}
TENANTS: Final = {WITH_TARGET: "tenants with a target", "plain": "tenants without a target"}
BAR_WIDTH: Final = 0.4


@dataclass(frozen=True, slots=True)
class Line:
    """A distribution in the first plot.

    Args:
        label: the label in the legend.
        colour: the colour of the engine or arm.
        style: the line style, in matplotlib's notation.
        times: the distribution.
    """

    label: str
    colour: str
    style: str
    times: Times


def lines(run: Run) -> Iterator[Line]:
    """Yields the distributions of the time to first token: dotted without the flood, solid with it.

    In the arm with targets, the tenants without a target get a dashed line of their own. In the other arms all tenants
    are in one line.
    """
    for arm in ARMS:
        engine = next((name for name in (STOCK, ZONES) if arm == SOLO[name]), arm)
        kinds = kinds_of(run, arm)
        for some in [(kind,) for kind in kinds] if arm == TARGETS else [kinds]:
            times = pooled(run, arm, "first_token", some)
            if times:
                label = arm if len(some) == len(kinds) else f"{arm},\n{TENANTS[some[0]]}"
                yield Line(label + _failures(faults_of_arm(run, arm)), COLOURS[engine], _style(arm, some), times)


def _failures(faults: Sequence[str]) -> str:
    """Returns the faults of a figure as lines below its label, without the reasons in parentheses."""
    return "".join(f"\n{fault.partition(' (')[0]}" for fault in faults)


def _style(arm: str, kinds: Sequence[str]) -> str:
    if arm in SOLO.values():
        return ":"
    return "--" if arm == TARGETS and WITH_TARGET not in kinds else "-"


def draw(run: Run, folder: Path, stem: str) -> list[Path]:
    """Write the plots for which the run has figures, and return their paths.

    Args:
        run: the whole run.
        folder: an existing folder.
        stem: the common start of the file names.
    """
    drawn = []
    if any(lines(run)):
        drawn.append(folder / f"{stem}-first-tokens.svg")
        draw_first_tokens(run, drawn[-1])
    if cells_of(run) or flood_rate(run, STOCK):
        drawn.append(folder / f"{stem}-tokens-per-second.svg")
        draw_rates(run, drawn[-1])
    return drawn


def draw_first_tokens(run: Run, path: Path) -> None:
    """Write the distributions of the time to first token.

    Args:
        run: the whole run. A distribution without raw times becomes two markers, at its p50 and its p99.
        path: the file to write; its suffix selects the format.
    """
    figure = _figure()
    axes = figure.subplots()
    for line in lines(run):
        look = {"label": line.label, "color": line.colour, "linestyle": line.style}
        if line.times.raw:
            axes.ecdf([1000 * each for each in line.times.raw], **look)
        else:
            places = [1000 * line.times.p50, 1000 * line.times.p99]
            axes.plot(places, [0.5, 0.99], linewidth=1, marker="o", **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("time to first token, ms (dotted: without the flood; two markers: p50 and p99)")
    axes.set_ylabel("share of the measured requests")
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False)
    _save(figure, path)


def bars(run: Run) -> tuple[list[str], dict[str, list[float]]]:
    """Returns the x labels of the second plot's throughput panel, and the tokens per second of each engine."""
    cells = cells_of(run)
    places = [
        f"{concurrency:,}\n{tenants:,} zone{'s' if tenants > 1 else ''}"
        + "".join(_failures(faults_of_cell(run, engine, tenants, concurrency)) for engine in (STOCK, ZONES))
        for tenants, concurrency in cells
    ]
    return places, {engine: [token_rate(run, engine, *cell) or 0.0 for cell in cells] for engine in (STOCK, ZONES)}


def draw_rates(run: Run, path: Path) -> None:
    """Plot the tokens per second of each cell of the throughput phase, and of the flood in each arm.

    Args:
        run: the whole run. A rate that was not measured has no bar.
        path: the file to write; its suffix selects the format.
    """
    figure = _figure()
    throughput, flood = figure.subplots(1, 2, width_ratios=(5, 2))
    places, engines = bars(run)
    for number, (engine, rates) in enumerate(engines.items()):
        where = [place + (number - 0.5) * BAR_WIDTH for place in range(len(places))]
        _bars(throughput, where, rates, BAR_WIDTH, [COLOURS[engine]] * len(rates), label=engine)
    throughput.set_xticks(range(len(places)), places)
    throughput.set_title("throughput, by requests at once and zones")
    throughput.set_ylabel("tokens per second")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    floods = {arm: rate for arm in (STOCK, ZONES, TARGETS) if (rate := flood_rate(run, arm)) is not None}
    _bars(flood, range(len(floods)), list(floods.values()), 2 * BAR_WIDTH, [COLOURS[arm] for arm in floods])
    labels = [arm.replace(" with ", "\nwith ") + _failures(faults_of_arm(run, arm)) for arm in floods]
    flood.set_xticks(range(len(floods)), labels)
    flood.set_title("flood, with its prompts")
    _save(figure, path)


def _bars(
    axes: Any, places: Sequence[float], rates: Sequence[float], width: float, colours: Sequence[str], **more: Any
) -> None:
    """Draw bars with their values on top."""
    drawn = axes.bar(places, rates, width, color=colours, **more)
    axes.bar_label(drawn, [f"{rate:,.0f}" if rate else "" for rate in rates], fontsize="x-small", padding=2)
    axes.margins(y=0.12)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="y", alpha=0.3)


def _figure() -> Any:
    # matplotlib is slow to import, so import it only to draw.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # A fixed salt makes the SVG reproducible.
    mpl.rcParams["svg.hashsalt"] = "gpu"
    return Figure(figsize=(10, 4.5), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
