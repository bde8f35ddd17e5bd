"""Fuzzes each parser for a while with atheris, which measures a text's coverage and continues from there.

    python -m tests.parsers.fuzz --seconds 30

`make test-deep` runs it. Hypothesis, in `test_parsers.py`, generates texts from knowledge of the formats; atheris knows
only a valid text. A text at which a parser raises an undeclared exception, or takes more than 10 s or 2 GiB, is
printed, and the exit code is 1.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hack import locked
from hack.progress import say
from tests.parsers import known
from tests.parsers.known import PARSERS, Parser

_ROOT = Path(__file__).parents[2]
_NAME = "atheris"
_LONGEST_TEXT = 2**14
_SHOWN = 2000
"""Characters of atheris' last output."""


def fuzz(name: str, parser: Parser, seconds: float, module: str = known.__name__) -> str:
    """Fuzzes one parser for some time.

    Args:
        name: the name of the parser.
        parser: the parser.
        seconds: how long it generates texts.
        module: the module that has the parser in its ``PARSERS``.

    Returns:
        What went wrong; empty: nothing.
    """
    site = locked.environment(_NAME, _ROOT / "requirements" / "atheris.txt").glob("lib/python*/site-packages")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        folder = Path(temporary)
        (folder / "texts").mkdir()
        (folder / "texts" / "good").write_text(parser.good)
        words = sorted(set(re.findall(r"\w+", parser.good)))
        (folder / "words").write_text("".join(f'"{word}"\n' for word in words if word.isascii()))
        flags = [
            *(f"-max_total_time={seconds:.0f}", f"-dict={folder / 'words'}", f"-artifact_prefix={folder}/wrong-"),
            *(f"-max_len={_LONGEST_TEXT}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"),
        ]
        command = [
            sys.executable,
            "-m",
            "tests.parsers.fuzzed",
            str(next(site)),
            module,
            name,
            *flags,
            str(folder / "texts"),
        ]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, errors="replace", check=False)
        said = done.stdout + done.stderr
        wrong = [path.read_bytes() for path in folder.glob("wrong-*")]
    if done.returncode or wrong:
        return "\n".join(
            [*(f"text: {text[:_SHOWN]!r}" for text in wrong), done.stdout[-_SHOWN:], done.stderr[-_SHOWN:]]
        )
    texts, *_ = re.findall(r"number_of_executed_units: *(\d+)", said)
    reached = re.findall(r"cov: (\d+)", said)[-1]
    say(_NAME, f"{name}: {int(texts):,} texts, which reached {reached} places")
    return ""


def main() -> None:
    """Fuzzes the named parsers, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.parsers.fuzz", description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="for each parser (default: %(default)s)")
    parser.add_argument("parsers", nargs="*", metavar="PARSER", help=f"of {', '.join(PARSERS)}; default: all")
    options = parser.parse_args()
    wrong = {name: fuzz(name, PARSERS[name], options.seconds) for name in options.parsers or PARSERS}
    for name, what in wrong.items():
        if what:
            print(f"{name}: {what}")
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
