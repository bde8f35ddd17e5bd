"""Configures what happens to requests whose tenant has no zone: they are refused, or a zone is created."""

from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import FailFast, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tenantzone_contract.zone_config.config_model import ConfigModel, Name, Priority, Weight, exceeds, without_unset
from tenantzone_contract.zone_config.share import BlockShare
from tenantzone_contract.zone_config.zone_terms import Idle

MAX_LEVELS: Final = 64
MAX_TENANTS_OF_A_LEVEL: Final = 64
"""Maximum number of names and patterns of a level.

The CRD has the same limit, but a reader must also bound its CPU time for a config that another client wrote.
"""

TenantPattern = Annotated[str, Field(max_length=253, pattern=r"^([A-Za-z0-9][-_.A-Za-z0-9]*\*?|\*)$")]
"""A tenant's name, or a prefix of names followed by ``*``."""


class UnknownTenantTemplate(ConfigModel):
    """The terms of an auto-registered zone whose tenant matches no level. The zone has weight 1 and no reservation."""

    limit: BlockShare | None = None
    priority: Priority = 0
    idle: Idle = Idle()


class TenantLevel(ConfigModel):
    """The terms of auto-registered zones whose tenants match ``tenants``. Their ``idle`` is that of the template."""

    name: Name
    tenants: Annotated[tuple[TenantPattern, ...], Field(min_length=1, max_length=MAX_TENANTS_OF_A_LEVEL), FailFast()]
    """Names or patterns. A pattern ends with ``*``, and matches names that begin with the text before the ``*``."""
    reserved: BlockShare = 0
    """The reservation, granted only if it fits in addition to the reservations of declared zones and older zones."""
    limit: BlockShare | None = None
    weight: Weight = 1
    priority: Priority = 0

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if exceeds(self.reserved, self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        return self

    def has(self, tenant: str) -> bool:
        """Returns whether the tenant matches this level; the caller must try earlier levels first."""
        return tenant in self._names or tenant.startswith(self._prefixes)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.tenants)

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        return tuple(pattern.removesuffix("*") for pattern in self.tenants if pattern.endswith("*"))


class UnknownTenants(ConfigModel):
    """The settings for requests whose tenant has no zone."""

    mode: Literal["Reject", "AutoRegister"] = "Reject"
    template: UnknownTenantTemplate = UnknownTenantTemplate()
    levels: Annotated[tuple[TenantLevel, ...], Field(max_length=MAX_LEVELS), FailFast()] = ()
    """The levels; the first level that a tenant matches applies."""

    @model_validator(mode="after")
    def _levels_are_distinct(self) -> Self:
        names = [level.name for level in self.levels]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"levels: two levels have the name {name!r}")
        return self

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unset(self, dump(self), "levels")

    def level_of(self, tenant: str) -> TenantLevel | None:
        """Returns the first level that the tenant matches; None if the template applies."""
        return next((level for level in self.levels if level.has(tenant)), None)
