"""The command line of the bench, and the checks of its options that need no engine."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.gpu.group import Group

ALL: Final = "all"
"""Value of ``--phases`` that selects all phases."""
DEFAULT_SHAPE: Final = "8b"


def make_parser(description: str | None, shapes: Sequence[str], groups: Sequence[Group]) -> argparse.ArgumentParser:
    """Returns the parser of the command line.

    Args:
        description: the description of the program.
        shapes: the names of the shapes.
        groups: the groups of phases; the first one is the default.
    """
    contents = {group.name: [phase.name for phase in group.phases] for group in groups}
    named = [name for group, phases in contents.items() for name in (group, *phases)]
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu",
        description=description,
        epilog="\n".join(
            ["groups and their phases:", *(f"  {name}: {', '.join(contents[name])}" for name in contents)]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", type=Path, metavar="FOLDER", help="a model with weights")
    model.add_argument(
        "--shape", choices=shapes, help=f"dummy weights of this size (default with a GPU: {DEFAULT_SHAPE})"
    )
    parser.add_argument(
        "--phases",
        nargs="+",
        choices=list(dict.fromkeys([ALL, *named])),
        default=[groups[0].name],
        metavar="NAME",
        help=f"phases or groups, or {ALL} (default: {groups[0].name})",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="a new file for the results, written after each measurement (default: print them at the end)",
    )
    parser.add_argument("--seeds", type=int, default=2, help="repetitions of each measurement (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="an empty folder for models and logs, which stay there")
    parser.add_argument("--note", action="append", default=[], help="a remark about the machine, for the report")
    parser.add_argument(
        "--flags", nargs=argparse.REMAINDER, default=[], help="flags of vLLM for all engines; must come last"
    )
    return parser


def problem(options: argparse.Namespace, *, has_gpu: bool) -> str:
    """Returns a message with the problem in the options and what to change; "" if the options are valid."""
    if options.seeds < 1:
        return f"--seeds is {options.seeds}: give at least 1"
    if not has_gpu and options.shape is None and options.model is None:
        return "no NVIDIA GPU was found: use --shape nano"
    return _problem_of_file(options.json) or _problem_of_folder(options.folder)


def _problem_of_file(path: Path | None) -> str:
    if path is None:
        return ""
    if path.is_dir():
        return f"--json {path} is a folder: name a file in it"
    if path.exists() and path.stat().st_size:
        return f"--json {path} exists, and its content would be lost: name a new file"
    if not os.access(path.parent, os.W_OK):
        return f"--json {path}: {path.parent} is no folder that can be written to: create it, or name another one"
    return ""


def _problem_of_folder(folder: Path | None) -> str:
    """Check the folder, and create it if it is missing; returns the problem, or "" if there is none."""
    if folder is None:
        return ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        return f"--folder {folder} cannot be used, name another one: {error}"
    if not os.access(folder, os.W_OK):
        return f"--folder {folder} cannot be written to: name another one"
    return "" if is_empty else f"--folder {folder} is not empty: name a new folder"
