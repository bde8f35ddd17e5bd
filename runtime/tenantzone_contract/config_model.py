"""The base of all parts of the runtime config: how they are read, written and bounded."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tenantzone_contract.share import percentage

Name = Annotated[str, Field(min_length=1, max_length=253)]
Weight = Annotated[int, Field(ge=1, lt=2**31)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Seconds = Annotated[float, Field(ge=0)]
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class ConfigModel(BaseModel):
    """A part of the config: immutable, in camel case outside, and refused if it has an unknown field."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


def canonical(value: Any) -> str:
    """Returns a value as canonical JSON: ASCII, on one line, the same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def without_unset(model: BaseModel, dumped: dict[str, Any], *fields: str) -> dict[str, Any]:
    """Returns a dumped model without those ``fields`` that have their default.

    An engine of an older release would refuse them. Empty values stay unless they are the default: a 0 may matter.
    """
    unset = {name for name in fields if getattr(model, name) == type(model).model_fields[name].default}
    left_out = unset | {to_camel(name) for name in unset}
    return {name: value for name, value in dumped.items() if name not in left_out}


def exceeds(amount: int | str, bound: int | str | None) -> bool:
    """Returns whether an amount certainly exceeds a bound; a count and a percentage compare only on an engine."""
    if isinstance(amount, int) and isinstance(bound, int):
        return amount > bound
    if isinstance(amount, str) and isinstance(bound, str):
        return percentage(amount) > percentage(bound)
    return False
