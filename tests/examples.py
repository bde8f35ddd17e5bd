"""How many examples Hypothesis tries: HYPOTHESIS_PROFILE is ci (default), quick, deep or mutation. A pytest plugin.

The examples of ci are the same each time, so that a change fails for what it changes; deep draws new ones each time. A
failing run prints the seed and the shrunk example.
"""

import os

from hypothesis import Phase, settings

# A busy machine makes any example slow; the tests are about results.
_SHARED = {"deadline": None, "print_blob": True}
settings.register_profile("ci", max_examples=200, derandomize=True, **_SHARED)
settings.register_profile("quick", max_examples=20, derandomize=True, **_SHARED)
settings.register_profile("deep", max_examples=10_000, **_SHARED)
settings.register_profile(
    "mutation", max_examples=30, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate], **_SHARED
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
