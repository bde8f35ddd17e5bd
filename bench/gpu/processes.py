"""Starts Python processes of the bench."""

import os
import sys
from pathlib import Path


def importing_alike() -> dict[str, str]:
    """The environment of a Python process that finds the same modules as this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(Path.cwd()), *sys.path)))}
