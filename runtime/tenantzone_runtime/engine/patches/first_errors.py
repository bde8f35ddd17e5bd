"""Makes the request models of vLLM's API stop validation at the first invalid member of a list or an object.

By default, Pydantic collects the errors of each member of a list for each type that the member could have, and holds
the GIL meanwhile. In `/v1/responses`, 3 kB of `{"input": [{}, {}, ...]}` have 233,001 errors, which take the API server
seconds. The largest body that the frontend accepts would have millions of errors.

Upstream change that would make this module unnecessary: vLLM's request models validate lists with ``fail_fast``.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final

import pydantic
from pydantic_core import core_schema

_SCHEMAS: Final = ("list_schema", "dict_schema")
_OF_THE_API: Final = ("vllm.", "openai.")
_BUILT: Final = ("__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__")
"""Attributes of a model that Pydantic builds from its fields."""


def stop_at_first_errors() -> None:
    """Make validation of each list and object stop at the first invalid member, and rebuild existing models."""
    if hasattr(core_schema.list_schema, "__wrapped__"):
        return
    for name in _SCHEMAS:
        setattr(core_schema, name, _failing_fast(getattr(core_schema, name)))
    built = [
        model
        for model in dict.fromkeys(_below(pydantic.BaseModel))
        if model.__module__.startswith(_OF_THE_API) and model.__pydantic_complete__
    ]
    # Clear all models before the first is rebuilt, because a model reuses the schemas of models that it contains.
    for model in built:
        for attribute in _BUILT:
            if attribute in model.__dict__:
                delattr(model, attribute)
        model.__pydantic_complete__ = False
    for model in built:
        model.model_rebuild()


def _failing_fast(schema: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(schema)
    def make(*args: Any, **kwargs: Any) -> Any:
        return schema(*args, **{"fail_fast": True, **kwargs})

    return make


def _below(model: type[pydantic.BaseModel]) -> Iterator[type[pydantic.BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from _below(each)
