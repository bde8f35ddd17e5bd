"""Writes ``manifests/monitoring``."""

import argparse

from hack.monitoring.files import FOLDER, RUNBOOKS, files


def main() -> None:
    """Write all files of ``manifests/monitoring``."""
    parser = argparse.ArgumentParser(prog="python -m hack.monitoring", description=__doc__)
    parser.add_argument(
        "--runbooks", default=RUNBOOKS, help="where the alerts' runbooks are: a URL or a folder (default: %(default)s)"
    )
    FOLDER.mkdir(exist_ok=True)
    for name, text in files(parser.parse_args().runbooks).items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
