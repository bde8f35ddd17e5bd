"""The paths of the repository's parts and of the demo's own files."""

import os
import sys
from pathlib import Path

from hack.controlplane.cache import cache_folder

REPOSITORY = Path(__file__).resolve().parents[2]

STATE = REPOSITORY / ".demo"
"""Logs, keys, process records and the control plane's data of the run at hand."""

CACHE = cache_folder()
"""The folder for files that outlive a clone: models and Kubernetes binaries."""

PYTHON = sys.executable
"""The interpreter of the virtual environment that the demo was started with."""

RUNTIME = Path(sys.executable).with_name("tenantzone-runtime")


def demo_environment(**variables: str) -> dict[str, str]:
    """The environment of this process, with the demo importable and Hugging Face kept off the network."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1", **variables}
