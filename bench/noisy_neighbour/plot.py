"""The distribution of the quiet tenant's times to first token, one colour per arm."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.noisy_neighbour.figures import Seed


def draw(arms: Mapping[str, Sequence[Seed]], path: Path) -> None:
    """Write the distributions of all seeds, solo as dots and beside the flood as a line, in the format of the name."""
    # Slow to import, and only wanted where something is drawn.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same figures make the same file.
    mpl.rcParams["svg.hashsalt"] = "noisy-neighbour"
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, seeds in arms.items():
        beside = [1000 * each for seed in seeds for each in seed.beside.first_token_seconds]
        solo = [1000 * each for seed in seeds for each in seed.solo.first_token_seconds]
        line = axes.ecdf(beside, label=name)
        axes.ecdf(solo, linestyle=":", color=line.get_color())
    axes.set_xscale("log")
    axes.set_xlabel("time to first token of the quiet tenant, ms (dotted: without the flood)")
    axes.set_ylabel("share of its requests")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
