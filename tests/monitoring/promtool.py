"""promtool, as a user would run it."""

import subprocess
from pathlib import Path

from hack.debian import ensure


def promtool(*arguments: str | Path) -> str:
    """Runs promtool. Returns its output.

    Raises:
        AssertionError: it found something wrong; the message has its output.
    """
    ran = subprocess.run([ensure("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
