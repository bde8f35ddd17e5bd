"""How many examples Hypothesis tries: HYPOTHESIS_PROFILE is ci (default), quick, deep or mutation.

Only tests that search large spaces follow the number. The examples of ci are the same ones each time, so that a change
fails for what it changes; deep draws others each time. A failing run prints the seed and the shrunk example.
"""

import os

import pytest
from hypothesis import Phase, settings

from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine

SHARED = {"deadline": None, "print_blob": True}
settings.register_profile("ci", max_examples=200, derandomize=True, **SHARED)
settings.register_profile("quick", max_examples=20, derandomize=True, **SHARED)
settings.register_profile("deep", max_examples=10_000, **SHARED)
settings.register_profile(
    "mutation", max_examples=30, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate], **SHARED
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def core():
    """A pool of 100 blocks."""
    return Core(100)


@pytest.fixture
def engine(core):
    """It serves requests of that pool."""
    return SmallEngine(core)
