"""The releases before this commit."""

import subprocess
from pathlib import Path

from hack.version import ROOT


def last_tag() -> str | None:
    """The tag of the newest release among the commits before this one.

    None where nothing was tagged yet, and in a clone that has no history or no tags.
    """
    described: list[str | Path] = ["git", "-C", ROOT, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^"]
    found = subprocess.run(described, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
