"""Prints a GPU run as Markdown, and draws its plots: python -m bench.gpu.report FILE [--plots FOLDER]."""

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from bench.figures import markdown_table
from bench.gpu.report.figures import (
    ARMS,
    STOCK,
    WITH_TARGET,
    ZONES,
    Times,
    busiest_client,
    cells_of,
    faults_of_arm,
    faults_of_cell,
    first_token_to_solo,
    flood_rate,
    flood_to_stock,
    interval_share,
    kinds_of,
    pooled,
    reclaim_rows,
    results_of,
    seeds_of,
    throughput_rows,
    throughput_to_stock,
    token_rate,
)
from bench.gpu.report.measures import judged
from bench.gpu.report.plots import draw
from bench.gpu.results import EngineStart, PhaseResult, ResultsError, Run, read

ABSENT: Final = "–"
LONGEST_REASON: Final = 400
"""Maximum number of characters of a reason."""
ERROR: Final = re.compile(r"\S*Error\b|\berror:")
"""Matches the start of the error message in a log line."""
USUAL_SHARE: Final = 0.95
"""Share of measured times between tokens below which the report has a remark."""
BAD_INPUT: Final = 2
"""Exit code if the file is no result of this bench."""


def document(run: Run) -> str:
    """Returns the report in Markdown: environment, measures, a table per phase, and phases that did not complete."""
    sections = {
        "Environment": environment(run),
        "Measures, with goals for an H100": measures(run),
        "Noisy neighbour": noisy_neighbour(run),
        "Reclaim": reclaim(run),
        "Throughput": throughput(run),
        "Equal answers": equal_answers(run),
        **further_phases(run),
        "Phases that did not complete": not_complete(run),
    }
    card = run["environment"]["card"] or "CPUs"
    title = f"# GPU bench: {run['model']['name']} on {card}, {run['started'][:10]}"
    return "\n\n".join([title, *(f"## {name}\n\n{text}" for name, text in sections.items() if text)]) + "\n"


def environment(run: Run) -> str:
    """Describes the run's environment: hardware, versions, command, engines and remarks."""
    used = run["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in used["packages"].items() if version)
    facts = {
        "started": run["started"],
        "command": f"`{run['command']}`",
        "card": f"{used['gpus']} × {used['card']}" if used["card"] else None,
        "driver": used["driver"],
        "CPU cores": used["cpus"],
        "versions": f"Python {used['python']}, {versions}",
        "TenantZone": f"{used['tenantzone']}, commit {used['commit']}",
        "model": f"{run['model']['name']}, {run['model']['weights']} weights",
    }
    rows = [(name, str(value)) for name, value in facts.items() if value is not None]
    engines = [f"- {name}: {_engine(engine)}" for name, engine in run["engines"].items()]
    notes = [f"- {note}" for note in used["notes"]]
    return "\n\n".join(part for part in (markdown_table(("", ""), rows), "\n".join(engines), "\n".join(notes)) if part)


def _engine(engine: EngineStart) -> str:
    if not engine["command"]:
        return f"ready after {engine['ready_seconds']:.1f} s; command not recorded"
    program, *arguments = engine["command"]
    command = f"`{shlex.join([Path(program).name, *arguments])}`"
    return f"ready after {engine['ready_seconds']:.1f} s; {command}"


def measures(run: Run) -> str:
    """Returns each goal, the measurement, and whether the run met it."""
    rows = [(each.goal, each.measured or ABSENT, each.outcome) for each in judged(run)]
    return markdown_table(("goal", "measured", "outcome"), rows)


def noisy_neighbour(run: Run) -> str:
    """Returns a row for each arm and kind of tenant, then faults and the engine's reasons for latency targets."""
    rows = [_arm_row(run, arm, kind) for arm in ARMS for kind in kinds_of(run, arm)]
    if not rows:
        return ""
    header = (
        "arm", "tenants", "requests", "failed", "TTFT p50, ms", "TTFT p99, ms", "p99 to solo", "token p50, ms",
        "token p99, ms", "flood's tokens/s", "to stock", "busiest client",
    )  # fmt: skip
    remarks = [f"- {arm}: {fault}" for arm in ARMS for fault in faults_of_arm(run, arm)]
    remarks += [
        f"- {arm}, seed {seed['seed']}: {tenant}: {reason}"
        for arm in ARMS
        for seed in seeds_of(run, arm)
        for tenant, reason in seed["conditions"].items()
    ]
    return "\n\n".join(part for part in (markdown_table(header, rows), "\n".join(remarks)) if part)


def _arm_row(run: Run, arm: str, kind: str) -> list[str]:
    measured = [seed["tenants"][kind] for seed in seeds_of(run, arm) if kind in seed["tenants"]]
    targets = [seed["target_seconds"] for seed in seeds_of(run, arm) if seed["target_seconds"]]
    return [
        arm,
        f"target {1000 * targets[0]:g} ms" if kind == WITH_TARGET and targets else kind,
        f"{sum(each['requests'] for each in measured):,}",
        f"{sum(each['failed'] for each in measured):,}",
        *_milliseconds(pooled(run, arm, "first_token", (kind,))),
        _figure(first_token_to_solo(run, arm, (kind,)), ".2f"),
        *(f"{time}{_few_intervals(run, arm, kind)}" for time in _milliseconds(pooled(run, arm, "token", (kind,)))),
        _figure(flood_rate(run, arm), ",.0f"),
        _figure(flood_to_stock(run, arm), ".2f"),
        _figure(busiest_client(seeds_of(run, arm)), ".0%"),
    ]


def _milliseconds(times: Times | None) -> tuple[str, str]:
    if times is None:
        return ABSENT, ABSENT
    return f"{1000 * times.p50:,.1f}", f"{1000 * times.p99:,.1f}"


def _few_intervals(run: Run, arm: str, kind: str) -> str:
    """Returns a remark if many times between tokens are missing because events carried several tokens."""
    share = interval_share(run, arm, kind)
    return f" ({share:.0%} measured)" if share is not None and share < USUAL_SHARE else ""


def _figure(value: float | None, form: str) -> str:
    return ABSENT if value is None else format(value, form)


def reclaim(run: Run) -> str:
    """Returns a table with a row for each engine and seed."""
    rows = [
        (engine, str(row["seed"]), f"{row['tokens']:,}", f"{row['slowest_seconds']:.2f}", f"{row['found_again']:.1%}")
        for engine in (STOCK, ZONES)
        for row in reclaim_rows(run, engine)
    ]
    return markdown_table(("engine", "seed", "tokens", "slowest first token, s", "found again"), rows) if rows else ""


def throughput(run: Run) -> str:
    """Returns a row for each cell of the throughput phase, with both engines and their ratio, then the faults."""
    rows = [
        [
            f"{tenants:,}",
            f"{concurrency:,}",
            *(_figure(token_rate(run, engine, tenants, concurrency), ",.0f") for engine in (STOCK, ZONES)),
            _figure(throughput_to_stock(run, tenants, concurrency), ".2f"),
            *(
                f"{sum(row['failed'] for row in throughput_rows(run, engine, tenants, concurrency)):,}"
                for engine in (STOCK, ZONES)
            ),
            *(
                _figure(busiest_client(throughput_rows(run, engine, tenants, concurrency)), ".0%")
                for engine in (STOCK, ZONES)
            ),
        ]
        for tenants, concurrency in cells_of(run)
    ]
    header = (
        "tenants", "requests at once", "stock, tokens/s", "zones, tokens/s", "zones to stock", "failed, stock",
        "failed, zones", "busiest client, stock", "busiest client, zones",
    )  # fmt: skip
    faults = [
        f"- tenants: {tenants:,}, requests at once: {concurrency:,}, {engine}: {fault}"
        for tenants, concurrency in cells_of(run)
        for engine in (STOCK, ZONES)
        for fault in faults_of_cell(run, engine, tenants, concurrency)
    ]
    return "\n\n".join(part for part in (markdown_table(header, rows), "\n".join(faults)) if part) if rows else ""


def equal_answers(run: Run) -> str:
    """Returns a row per case: whether it happened, and how many answers have the same tokens and log probabilities."""
    rows = results_of(run, "default", "equal").get("rows", ())
    header = (
        "case",
        "happened",
        "answers",
        "same tokens",
        "same top tokens",
        "largest difference",
        "stock to itself",
        "note",
    )
    keys = (
        "case", "happened", "answers", "same_tokens", "same_top_logprobs", "largest_difference", "stock_same_tokens",
        "note",
    )  # fmt: skip
    return markdown_table(header, [[cell(row.get(key)) for key in keys] for row in rows]) if rows else ""


def further_phases(run: Run) -> dict[str, str]:
    """Returns the tables of phases outside the default group, each with its own columns, by section name."""
    sections = {}
    for phase in run["phases"]:
        if phase["group"] == "default" or not phase["results"]:
            continue
        name = phase["group"] if phase["name"] == phase["group"] else f"{phase['group']}: {phase['name']}"
        model = phase["results"].get("model")
        parts = [f"Model: {model['name']}, {model['weights']} weights."] if model else []
        parts += [_own_columns(rows) for rows in phase["results"].values() if isinstance(rows, list) and rows]
        sections[name.capitalize()] = "\n\n".join(parts)
    return sections


def _own_columns(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table with every column that any row has, except columns with nested values."""
    columns = dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, dict | list))
    return markdown_table(list(columns), [[_reason(cell(row.get(column))) for column in columns] for row in rows])


def not_complete(run: Run) -> str:
    """Returns the phases that failed, timed out or were not possible, grouped by reason."""
    together: dict[tuple[str, str, str], list[PhaseResult]] = {}
    for phase in run["phases"]:
        if phase["status"] != "done":
            together.setdefault((phase["group"], phase["status"], phase["why"]), []).append(phase)
    rows = [
        (
            group,
            ", ".join(phase["name"] for phase in phases),
            status,
            ", ".join(cell(phase.get("limit_seconds")) for phase in phases),
            _reason(why),
            cell(any(phase["results"] for phase in phases)),
        )
        for (group, status, why), phases in together.items()
    ]
    return markdown_table(("group", "phases", "status", "limit, s", "reason", "results so far"), rows) if rows else ""


def _reason(text: str) -> str:
    """Returns the text in one line; a long text keeps its start, and its last line with an error, or else its end."""
    line = " ".join(text.split()) or ABSENT
    if len(line) <= LONGEST_REASON:
        return line
    half = LONGEST_REASON // 2
    errors = [found for found in map(ERROR.search, text.splitlines()[1:]) if found]
    kept = errors[-1].string[errors[-1].start() :][:half] if errors else line[-half:]
    return f"{line[:half]} … {kept}"


def cell(value: Any) -> str:
    """Returns a value as text, with four significant digits for fractions; a dash for None."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def main() -> None:
    """Read the file of a run, print the report, and draw the plots if the user gave a folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.report", description=__doc__)
    parser.add_argument("file", type=Path, help="what `python -m bench.gpu --json FILE` wrote")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write two plots there, as SVG")
    options = parser.parse_args()
    try:
        run = read(options.file)
        text = document(run)
        if options.plots:
            _write_plots(run, options.plots, options.file.stem)
    except (ResultsError, ImportError) as error:
        _end(str(error))
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}")
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        _end(f"{options.file}: not a whole result of bench.gpu: {missing}")
    print(text, end="")


def _write_plots(run: Run, folder: Path, stem: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _end(f"the folder {folder} for the plots cannot be made: {error.strerror}")
    if not draw(run, folder, stem):
        print("bench.gpu.report: the run has no figures to draw, so no plot was written", file=sys.stderr)


def _end(message: str) -> NoReturn:
    print(f"bench.gpu.report: {message}", file=sys.stderr)
    sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
