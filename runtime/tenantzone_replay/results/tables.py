"""Formats the results of policies as text tables."""

from collections.abc import Sequence

from tenantzone_replay.simulation.measures import Result


def tables(results: Sequence[Result]) -> str:
    """Returns a table of all policies, followed by a table of the tenants for each policy."""
    parts = [_policies(results)]
    for result in results:
        parts.append(f"{result.policy}: {result.what}\n\n{_tenants(result)}")
    return "\n\n".join(parts)


def _policies(results: Sequence[Result]) -> str:
    rows: list[Sequence[str]] = [
        (
            "policy",
            "hit rate",
            "worst tenant",
            "TTFT p50",
            "p99",
            "worst p99",
            "TPOT p99",
            "in time",
            "worst",
            "refused",
        )
    ]
    for result in results:
        every = list(result.tenants.values())
        rows.append(
            (
                result.policy,
                f"{result.hit_rate:.1%}",
                f"{min(each.hit_rate for each in every):.1%}",
                f"{result.first_token().quantile(0.5):.2f} s",
                f"{result.first_token().quantile(0.99):.2f} s",
                f"{max(each.first_token.quantile(0.99) for each in every):.2f} s",
                f"{max(each.token.quantile(0.99) for each in every):.3f} s",
                f"{result.attainment:.1%}",
                f"{min(each.attainment for each in every):.1%}",
                f"{sum(each.refused for each in every):,}",
            )
        )
    if any(result.cut_short for result in results):
        shown = ["cut short", *(f"{result.cut_short:,}" for result in results)]
        rows = [(*row, cell) for row, cell in zip(rows, shown, strict=True)]
    return columns(rows)


def _tenants(result: Result) -> str:
    rows: list[Sequence[str]] = [
        (
            "tenant",
            "requests",
            "hit rate",
            "TTFT p50",
            "p99",
            "TPOT p50",
            "p99",
            "in time",
            "seats",
            "blocks",
            "lent",
            "borrowed",
            "withheld",
            "evicted",
        )
    ]
    seconds = max(result.seconds, 1e-9)
    for tenant, each in result.tenants.items():
        evicted = ", ".join(f"{reason} {blocks:,}" for reason, blocks in sorted(each.evicted.items()))
        rows.append(
            (
                tenant,
                f"{each.requests:,}",
                f"{each.hit_rate:.1%}",
                f"{each.first_token.quantile(0.5):.2f} s",
                f"{each.first_token.quantile(0.99):.2f} s",
                f"{each.token.quantile(0.5):.3f} s",
                f"{each.token.quantile(0.99):.3f} s",
                f"{each.attainment:.1%}",
                f"{each.seat_seconds / seconds:.1f}",
                f"{each.block_seconds / seconds:,.0f}",
                f"{each.lent:,}",
                f"{each.borrowed:,}",
                f"{each.withheld_tokens:,.0f}",
                evicted or "none",
            )
        )
    return columns(rows, last_is_text=True)


def percent(part: float) -> str:
    """Formats a fraction from the command line as a percentage, without rounding."""
    return f"{100 * part:.10g}%"


def whole_percent(part: float) -> str:
    """Formats a computed fraction as a rounded percentage. A negative zero becomes 0%."""
    return f"{round(part, 2) + 0.0:.0%}"


def columns(rows: Sequence[Sequence[str]], *, last_is_text: bool = False) -> str:
    """Formats rows as lines of aligned columns.

    The first column is aligned to the left, the others to the right. With ``last_is_text``, the last column is
    also aligned to the left.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[0] = row[0].ljust(widths[0])
        if last_is_text:
            cells[-1] = row[-1]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
