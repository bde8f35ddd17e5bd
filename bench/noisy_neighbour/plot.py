"""Plots the distribution of the quiet tenant's times to first token, with one colour per arm."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.figures import percentile
from bench.noisy_neighbour.figures import Seed, figure


def draw(arms: Mapping[str, Sequence[Seed]], path: Path) -> None:
    """Write the distributions over all seeds, dotted solo and solid with the flood; the suffix selects the format."""
    # matplotlib is slow to import, so import it only to draw.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # A fixed salt makes the SVG reproducible.
    mpl.rcParams["svg.hashsalt"] = "noisy-neighbour"
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, seeds in arms.items():
        flooded = [1000 * each for seed in seeds for each in seed.flooded.first_token_seconds]
        solo = [1000 * each for seed in seeds for each in seed.solo.first_token_seconds]
        line = axes.ecdf(flooded, label=name)
        axes.ecdf(solo, linestyle=":", color=line.get_color())
    axes.set_xscale("log")
    axes.set_xlabel("time to first token of the quiet tenant, ms (dotted: without the flood)")
    axes.set_ylabel("share of its requests")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def draw_frontier(arms: Mapping[str, Sequence[Seed]], targets: Mapping[str, float], path: Path) -> None:
    """Plot the trade-off of targets: the flood's throughput relative to the first arm, and the quiet tenant's times.

    Args:
        arms: the measurements; the first arm is the reference.
        targets: the target in seconds of each arm that has a target.
        path: the file to write; its suffix selects the format.
    """
    # matplotlib is slow to import, so import it only to draw.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "noisy-neighbour"
    reference = next(iter(arms.values()))
    order = sorted(targets, key=lambda name: targets[name])
    places = [1000 * targets[name] for name in order]
    shares = [
        figure(
            [
                own.flood_tokens_beside / other.flood_tokens_beside
                for own, other in zip(arms[name], reference, strict=True)
            ]
        )
        for name in order
    ]
    picture = Figure(figsize=(8, 6), layout="constrained")
    above, below = picture.subplots(2, sharex=True)
    above.errorbar(places, [each.mean for each in shares], [each.margin for each in shares], marker="o", capsize=3)
    above.set_ylabel("flood's tokens/s, to stock")
    first = [[each for seed in arms[name] for each in seed.flooded.first_token_seconds] for name in order]
    between = [[each for seed in arms[name] for each in seed.flooded.token_seconds] for name in order]
    below.plot(places, [1000 * percentile(each, 99) for each in first], marker="o", label="time to first token")
    below.plot(places, [1000 * percentile(each, 99) for each in between], marker="o", label="between two tokens")
    below.set_ylabel("quiet tenant's p99, ms")
    below.set_xlabel("target, ms")
    below.legend()
    for axes in (above, below):
        axes.grid(visible=True, alpha=0.3)
    picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
