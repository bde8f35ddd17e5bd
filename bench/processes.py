"""The environment of the Python processes that benches start."""

import os
import sys
from pathlib import Path


def importing_alike() -> dict[str, str]:
    """Returns environment variables with which a Python process finds the same modules as this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(Path.cwd()), *sys.path)))}
