"""What several benches compute from their measurements: percentiles, ratios of pairs, and tables in Markdown."""

from collections.abc import Iterable, Iterator, Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns a percentile by linear interpolation between the two nearest values, like vLLM's benchmark."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def paired_ratios(values: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Returns the ratio of each value to the reference's value that was measured next to it.

    Raises:
        ValueError: the numbers of values differ.
    """
    return [mine / theirs for mine, theirs in zip(values, reference, strict=True)]


def markdown_table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table in Markdown, with vertical bars in cells escaped."""
    return "\n".join(_lines(header, rows))


def _lines(header: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |"
