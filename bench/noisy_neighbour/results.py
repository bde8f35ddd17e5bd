"""Stores measurements in a file, so that an interrupted run continues where it stopped."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.noisy_neighbour.figures import Phase, Seed


class ResultsError(Exception):
    """The file has results of a measurement with other settings; the message says what to do."""


class Results:
    """The measured seeds of each arm.

    Args:
        path: the file, which may not exist yet; None for results that are not stored.
        settings: the settings of the measurement, which must equal the settings in the file.

    Raises:
        ResultsError: the file has results with other settings.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self._path = path
        self._settings = json.loads(json.dumps(settings))
        self._arms: dict[str, dict[int, Seed]] = {}
        if path is not None and path.exists():
            content = json.loads(path.read_text())
            if content["settings"] != self._settings:
                raise ResultsError(f"{path} was measured with {content['settings']}: name another file")
            for name, seeds in content["arms"].items():
                self._arms[name] = {int(number): _seed(seed) for number, seed in seeds.items()}

    def has(self, arm: str, number: int) -> bool:
        """Returns whether this seed of an arm was measured."""
        return number in self._arms.get(arm, {})

    def add(self, arm: str, number: int, seed: Seed) -> None:
        """Store a measurement, replacing the whole file."""
        self._arms.setdefault(arm, {})[number] = seed
        if self._path is None:
            return
        arms = {name: {str(n): dataclasses.asdict(each) for n, each in own.items()} for name, own in self._arms.items()}
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(json.dumps({"settings": self._settings, "arms": arms}))
        new.replace(self._path)

    def of(self, arms: Sequence[str], seeds: int) -> dict[str, list[Seed]]:
        """Returns the first ``seeds`` seeds of the given arms; all must exist."""
        return {name: [self._arms[name][number] for number in range(1, seeds + 1)] for name in arms}


def _seed(content: dict[str, Any]) -> Seed:
    return Seed(**{**content, "solo": _phase(content["solo"]), "flooded": _phase(content["flooded"])})


def _phase(content: dict[str, Any]) -> Phase:
    return Phase(tuple(content["first_token_seconds"]), tuple(content["token_seconds"]), content["refused"])
