"""LiteLLM for tests: it pins what the tests' own environment has in other versions."""

from pathlib import Path

from hack import locked

_LOCK = Path(__file__).parents[2] / "requirements" / "litellm.txt"


def litellm_python() -> Path:
    """The path of a Python that has LiteLLM, which is installed first if need be.

    Raises:
        CommandFailed: the installation failed.
    """
    return locked.environment("litellm", _LOCK) / "bin" / "python"
