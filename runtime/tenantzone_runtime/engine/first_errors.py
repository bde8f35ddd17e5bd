"""Has the models of vLLM's API look at a list or an object no further than its first bad member.

Pydantic collects what is wrong with each member of a list, once for each kind of thing that the member could be, and
lets no other thread run meanwhile. To `/v1/responses` 3 kB of `{"input": [{}, {}, ...]}` have 233,001 mistakes, which
take the API server seconds; what the front door takes of a body has millions.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final

import pydantic
from pydantic_core import core_schema

_SCHEMAS: Final = ("list_schema", "dict_schema")
_OF_THE_API: Final = ("vllm.", "openai.")
_BUILT: Final = ("__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__")
"""Of a model, what is made of such a schema."""


def stop_at_first_errors() -> None:
    """Have each list and object of models stop at its first bad member, those with them that are there already."""
    if hasattr(core_schema.list_schema, "__wrapped__"):
        return
    for name in _SCHEMAS:
        setattr(core_schema, name, _failing_fast(getattr(core_schema, name)))
    built = [
        model
        for model in dict.fromkeys(_below(pydantic.BaseModel))
        if model.__module__.startswith(_OF_THE_API) and model.__pydantic_complete__
    ]
    # All of them first: a model takes over what was built of those that it is made of.
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
