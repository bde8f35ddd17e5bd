"""Writes ``manifests/monitoring``, and the runbooks' URL into the cases that alerts are tested with."""

import argparse

from hack.monitoring.files import CASES, FOLDER, RUNBOOKS, cases, files


def main() -> None:
    """Write these files."""
    parser = argparse.ArgumentParser(prog="python -m hack.monitoring", description=__doc__)
    parser.add_argument("--runbooks", default=RUNBOOKS, help="the URL of the alerts' runbooks (default: %(default)s)")
    runbooks = parser.parse_args().runbooks
    FOLDER.mkdir(exist_ok=True)
    for folder, texts in ((FOLDER, files(runbooks)), (CASES, cases(runbooks))):
        for name, text in texts.items():
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()
