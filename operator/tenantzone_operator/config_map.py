"""The ConfigMap that carries a pool's runtime config, and whose it is. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenantzone_contract.config import CONFIG_KEY
from tenantzone_operator.names import FIELD_MANAGER, MANAGED_BY_LABEL, POOL_LABEL
from tenantzone_operator.resources import Body, Pool


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """As the API server has it."""

    uid: str
    version: str
    labels: Mapping[str, str]
    owners: tuple[str, ...]
    """Uids of the objects with which it goes."""
    text: str
    """The config; empty if it has none."""

    def belongs_to(self, pool: Pool) -> bool:
        """Whether it was made for a pool of this name by an operator of ours; the pool may be another one by now."""
        return self._is_labelled(pool) or pool.meta.uid in self.owners

    def is_in_order(self, pool: Pool) -> bool:
        """Whether it says whose it is, and goes when the pool goes and not before."""
        return self._is_labelled(pool) and self.owners == (pool.meta.uid,)

    def _is_labelled(self, pool: Pool) -> bool:
        return config_map_labels(pool.meta.name).items() <= self.labels.items()


def config_map_labels(pool: str) -> dict[str, str]:
    return {MANAGED_BY_LABEL: FIELD_MANAGER, POOL_LABEL: pool}


def read_config_map(body: Body) -> ConfigMap:
    metadata = body["metadata"]
    return ConfigMap(
        uid=metadata["uid"],
        version=str(metadata["resourceVersion"]),
        labels=metadata.get("labels") or {},
        owners=tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ()),
        text=(body.get("data") or {}).get(CONFIG_KEY, ""),
    )
