"""The base class and common types of all parts of the runtime config."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tenantzone_contract.zone_config.share import percentage

Name = Annotated[str, Field(min_length=1, max_length=253)]
Weight = Annotated[int, Field(ge=1, lt=2**31)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Seconds = Annotated[float, Field(ge=0)]
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class ConfigModel(BaseModel):
    """A part of the config. Instances are immutable, use camel case in JSON, and reject unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


def canonical(value: Any) -> str:
    """Returns a value as canonical JSON: ASCII on one line, with the same text for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def without_unset(model: BaseModel, dumped: dict[str, Any], *fields: str) -> dict[str, Any]:
    """Returns a dumped model without those ``fields`` that have their default value.

    An engine of an older release would reject these fields. A falsy value is kept unless it is the default.
    """
    unset = {name for name in fields if getattr(model, name) == type(model).model_fields[name].default}
    left_out = unset | {to_camel(name) for name in unset}
    return {name: value for name, value in dumped.items() if name not in left_out}


def exceeds(amount: int | str, bound: int | str | None) -> bool:
    """Returns whether an amount exceeds a bound. Only engines can compare a number with a percentage; returns False."""
    if isinstance(amount, int) and isinstance(bound, int):
        return amount > bound
    if isinstance(amount, str) and isinstance(bound, str):
        return percentage(amount) > percentage(bound)
    return False
